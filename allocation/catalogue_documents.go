package allocation

import (
	"maps"
	"slices"
)

// WithDocuments returns the catalogue after documents changed: those that are new, and those that replace others. Those of
// a kind, or of a content, that this program does not know are kept, and decide nothing.
func (c *Catalogue) WithDocuments(changed []Document) *Catalogue {
	if len(changed) == 0 {
		return c
	}
	out := *c
	if out.documents = maps.Clone(c.documents); out.documents == nil {
		out.documents = map[DocumentRef]Document{}
	}
	var replacing []Document
	for _, d := range changed {
		if had, ok := out.documents[d.Ref()]; !ok || d.Replaces(had) {
			out.documents[d.Ref()] = d
			out.enterRoutes(d)
			replacing = append(replacing, d)
		}
	}
	out.policy = c.policy.with(replacing)
	return &out
}

// Document is one that the region knows.
func (c *Catalogue) Document(kind, name string) (Document, bool) {
	d, ok := c.documents[DocumentRef{kind, name}]
	return d, ok
}

// enterRoutes takes the routes table over. One that this program cannot read leaves the one before in force.
func (c *Catalogue) enterRoutes(d Document) {
	if d.Kind != KindRoutes || d.Name != NameRoutes {
		return
	}
	if t, err := d.Routes(); err == nil {
		c.routes, c.routed = t, newRouteIndex(t)
	}
}

// Documents are those of a kind, by name.
func (c *Catalogue) Documents(kind string) (list []Document) {
	for ref, d := range c.documents {
		if ref.Kind == kind {
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b Document) int { return compare(a.Name, b.Name) })
	return list
}
