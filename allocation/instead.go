package allocation

import (
	"slices"
	"strings"
)

// A budget may stand in for another: an override of a default, for one tenant or one tool.
//
//	calls/{caller}         100 a minute, each caller        everybody
//	acme/calls/{caller}    500 a minute, each caller        match tenant=acme, instead_of calls/{caller}
//
// A request of tenant acme is charged to the second and not to the first; all other budgets count as ever. So that no two
// budgets can displace each other, and that nobody is left unlimited, an override counts only where it is enforced, counts the
// same unit, and asks for all labels that the other asks for and for more. Where one of these fails both count.

// Displaces says whether a request that b applies to is not charged to other.
func (b *Budget) Displaces(other *Budget) bool {
	return b.InsteadOf == other.Name && b.enforces() && b.Unit == other.Unit && b.narrows(other)
}

// narrows says whether b asks for all labels that other asks for, and for more.
func (b *Budget) narrows(other *Budget) bool {
	if len(b.Match) <= len(other.Match) {
		return false
	}
	for name, value := range other.Match {
		if b.Match[name] != value {
			return false
		}
	}
	return true
}

// matched gathers what applies to a request while budgets are looked at in the order of their names.
type matched struct {
	hits    []Hit
	missing []*MissingLabel
	without []*Budget // that the missing labels are of
	instead bool      // some budget that applies stands in for another
}

func (m *matched) look(b *Budget, l Labels, instance string, applies bool, label string) {
	switch {
	case applies:
		m.hits = append(m.hits, Hit{Budget: b, Instance: instance})
		m.instead = m.instead || b.InsteadOf != ""
	case label != "" && !b.enforces():
		m.hits = append(m.hits, Hit{Budget: b, Missing: &MissingLabel{Budget: b.Name, Label: label, TooLong: l[label] != ""}})
	case label != "":
		m.missing = append(m.missing, &MissingLabel{Budget: b.Name, Label: label, TooLong: l[label] != ""})
		m.without = append(m.without, b)
	}
}

// result leaves out what others stand in for.
func (m *matched) result() ([]Hit, *MissingLabel) {
	if m.instead {
		all := slices.Clone(m.hits)
		displaced := func(b *Budget) bool {
			return slices.ContainsFunc(all, func(h Hit) bool { return h.Missing == nil && h.Budget.Displaces(b) })
		}
		m.hits = slices.DeleteFunc(m.hits, func(h Hit) bool { return displaced(h.Budget) })
		for i, b := range m.without {
			if displaced(b) {
				m.missing[i] = nil
			}
		}
		m.missing = slices.DeleteFunc(m.missing, func(m *MissingLabel) bool { return m == nil })
	}
	if len(m.missing) == 0 {
		return m.hits, nil
	}
	return m.hits, m.missing[0]
}

// Shared is how a single budget's limit is counted; a template's is counted for each instance.
const Shared = "shared"

// CountedBy says whose the limit is: "shared" by all that the budget applies to, or "each caller", "each tenant and caller".
func (b Budget) CountedBy() string {
	labels := b.TemplateLabels()
	if len(labels) == 0 {
		return Shared
	}
	return "each " + strings.Join(labels, " and ")
}

func (b *Budget) checkCounted(found *Problems) {
	if b.Counted != "" && b.Counted != b.CountedBy() {
		found.add("counted", "is \""+b.Counted+"\", and by its name the limit is "+b.CountedBy(),
			"write "+b.CountedBy()+", change the {label} parts of the name, or leave it out")
	}
	if b.Synthetic && b.Match[tenantLabel] == "" {
		found.add("synthetic", "needs a tenant: a drill spends what its tenant's budgets hold, and nobody else's", "name the tenant for drills in match")
	}
	if b.InsteadOf == "" {
		return
	}
	if _, fault := parseName(b.InsteadOf); fault != nil || b.InsteadOf == b.Name {
		found.add("instead_of", "names no other budget", "name the budget that this one stands in for, like calls/{caller}")
	} else if len(b.Match) == 0 {
		found.add("instead_of", "needs a match: an override is for some of the requests of the other budget", "name the tenant or the tool in match")
	}
}
