package allocation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// KindRoutes is the kind of the Document that holds a deployment's routes table; NameRoutes is its one name.
const (
	KindRoutes = "routes"
	NameRoutes = "routes"
)

// The labels that a routes table reads, and the one that it fills in.
const (
	LabelMethod     = "method"
	LabelPath       = "path"
	LabelCapability = "capability"
)

// Bounds of a routes table.
const (
	MaxRoutes    = 500
	MaxRoutePath = 255 // bytes of a pattern
)

// Routes say which capability an endpoint belongs to, so that a gateway may send the endpoint only, and a URL that is moved
// keeps its budgets:
//
//	POST /v1/chat            model
//	     /v1/chat/{id}       history       {id} stands for one part
//	     /v1/exports/*       export        * for all that follows, at least one part
//
// The most specific pattern that fits decides, whatever its place in the table: from the left a part that is written out comes
// before {…}, and {…} before *; of two alike the one that names the method.
type Routes struct {
	Routes []Route `json:"routes"`
}

// Route is one line of the table.
type Route struct {
	Method     string `json:"method,omitempty"` // in capitals; empty: any
	Path       string `json:"path"`
	Capability string `json:"capability"`
}

// Validate returns Problems that name the line and its field, or nil.
func (t Routes) Validate() error {
	var found Problems
	if len(t.Routes) > MaxRoutes {
		found.add("routes", fmt.Sprintf("are %d", len(t.Routes)), fmt.Sprintf("use at most %d; {part} and * stand for many paths", MaxRoutes))
		return found.err()
	}
	seen := map[string]int{}
	for i, r := range t.Routes {
		at := fmt.Sprintf("routes[%d]", i)
		r.check(&found, at)
		key := r.Method + " " + shapeOf(r.Path)
		if first, twice := seen[key]; twice {
			found.add(at+".path", fmt.Sprintf("%.80s fits the same requests as routes[%d]", r.Path, first), "keep one of the two")
		} else {
			seen[key] = i
		}
	}
	return found.err()
}

func (r Route) check(found *Problems, at string) {
	if strings.Trim(r.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" || len(r.Method) > MaxLabelName {
		found.add(at+".method", fmt.Sprintf("%.40q is not a method", r.Method), "write it in capitals, like POST, or leave it out for any")
	}
	if problem := pathProblem(r.Path); problem != "" {
		found.add(at+".path", fmt.Sprintf("%.80q %s", r.Path, problem), "write it like /v1/chat, /v1/users/{id} or /v1/exports/*, without a query")
	}
	if r.Capability == "" {
		found.add(at+".capability", "is missing", "name what the endpoint is for, like model or export")
	} else if (Labels{LabelCapability: r.Capability}).Validate() != nil {
		found.add(at+".capability", fmt.Sprintf("%.70q is not the value of a label", r.Capability), "use 1 to 255 bytes of printable text")
	}
}

// pathProblem says what is wrong with a pattern; empty: nothing. It is written as a path is after it was cleaned, or it would
// never fit.
func pathProblem(path string) string {
	switch {
	case !strings.HasPrefix(path, "/"):
		return "does not begin with a slash"
	case len(path) > MaxRoutePath:
		return "is too long"
	case strings.ContainsAny(path, "?#"):
		return "has a query or a fragment"
	case path == "/":
		return ""
	}
	parts := strings.Split(path[1:], "/")
	for i, part := range parts {
		braces := strings.HasPrefix(part, "{") && strings.HasSuffix(part, "}") && len(part) > 2
		switch {
		case part == "*" && i < len(parts)-1:
			return "has a * before its end"
		case part == "*" || braces && !strings.ContainsAny(part[1:len(part)-1], "{}*"):
		case part == "" || part == "." || part == "..":
			return "has a part that is empty, . or .., which no request's path has"
		case strings.ContainsAny(part, "{}*"):
			return "has a part that is only partly { } or *"
		}
	}
	return ""
}

// shapeOf is the pattern with its names left out: two of one shape fit the same paths.
func shapeOf(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if isPart(part) {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

func isPart(part string) bool { return strings.HasPrefix(part, "{") }

// Match finds the line that decides for an endpoint.
func (t Routes) Match(method, path string) (best Route, found bool) {
	for _, r := range t.Routes {
		if r.fits(method, path) && (!found || r.before(best)) {
			best, found = r, true
		}
	}
	return best, found
}

func (r Route) fits(method, path string) bool {
	return r.fitsParts(method, strings.Split(r.Path, "/"), strings.Split(path, "/"))
}

// fitsParts compares the pattern's parts with the path's.
func (r Route) fitsParts(method string, want, have []string) bool {
	if r.Method != "" && r.Method != method {
		return false
	}
	for i, part := range want {
		switch {
		case i >= len(have):
			return false
		case part == "*" && i > 0:
			return have[i] != ""
		case isPart(part) && have[i] != "":
		case part != have[i]:
			return false
		}
	}
	return len(want) == len(have)
}

// before says whether r is more specific than o, where both fit.
func (r Route) before(o Route) bool {
	a, b := strings.Split(r.Path, "/"), strings.Split(o.Path, "/")
	rank := func(part string) int {
		switch {
		case part == "*":
			return 2
		case isPart(part):
			return 1
		}
		return 0
	}
	return cmp.Or(
		slices.CompareFunc(a, b, func(x, y string) int { return cmp.Compare(rank(x), rank(y)) }),
		cmp.Compare(len(o.Method), len(r.Method)),
	) < 0
}

// Complete returns the labels of a request with the capability of its endpoint, if it names none itself and the table knows the
// endpoint. It never changes l.
func (t Routes) Complete(l Labels) Labels {
	if len(t.Routes) == 0 || l[LabelPath] == "" || l[LabelCapability] != "" {
		return l
	}
	r, ok := t.Match(l[LabelMethod], l[LabelPath])
	if !ok {
		return l
	}
	return l.with(LabelCapability, r.Capability)
}

// Routes reads a document of KindRoutes.
func (d Document) Routes() (Routes, error) {
	var t Routes
	if d.Kind != KindRoutes {
		return t, fmt.Errorf("%s %s is no routes table", d.Kind, d.Name)
	}
	if err := json.Unmarshal(d.Body, &t); err != nil {
		return t, fmt.Errorf("read the routes table: %w", err)
	}
	return t, t.Validate()
}

// Complete returns labels with what the routes table fills in: budgets, keys and blocks see these. What is compared when an
// admission id comes again are the labels as sent.
func (c *Catalogue) Complete(l Labels) Labels { return c.routed.complete(l) }

// CapabilityOf is the capability that a request's labels say once they are completed; empty: none.
func (c *Catalogue) CapabilityOf(l Labels) string {
	if c.routed == nil || l[LabelPath] == "" || l[LabelCapability] != "" {
		return l[LabelCapability]
	}
	r, _ := c.routed.match(l[LabelMethod], l[LabelPath])
	return r.Capability
}

// Routes is the routes table that the region knows.
func (c *Catalogue) Routes() Routes { return c.routes }
