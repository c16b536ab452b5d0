package allocation

import (
	"slices"
	"strings"
)

// routeIndex finds what Routes.Match does without looking at every line. Lines are filed by what they begin with that is written
// out, at most two parts, and looked at from the longest beginning to none, which is the order of specificity; within one
// beginning the most specific comes first. It never changes.
type routeIndex struct {
	byStart map[string][]splitRoute
}

// startOf is what a pattern begins with that is written out, or the beginning of a path of so many parts.
func startOf(parts []string, most int) string {
	n := 1
	for n < len(parts) && n <= most && parts[n] != "*" && !isPart(parts[n]) {
		n++
	}
	return strings.Join(parts[:n], "/")
}

const routeStart = 2 // parts

type splitRoute struct {
	Route
	parts []string
}

func newRouteIndex(t Routes) *routeIndex {
	if len(t.Routes) == 0 {
		return nil
	}
	x := &routeIndex{byStart: map[string][]splitRoute{}}
	list := slices.Clone(t.Routes)
	slices.SortStableFunc(list, func(a, b Route) int {
		switch {
		case a.before(b):
			return -1
		case b.before(a):
			return 1
		}
		return 0
	})
	for _, r := range list {
		s := splitRoute{r, strings.Split(r.Path, "/")}
		start := startOf(s.parts, routeStart)
		x.byStart[start] = append(x.byStart[start], s)
	}
	return x
}

func (x *routeIndex) match(method, path string) (Route, bool) {
	have := strings.Split(path, "/")
	if len(have) < 2 || have[0] != "" {
		return Route{}, false
	}
	for n := min(routeStart, len(have)-1); n >= 0; n-- {
		list := x.byStart[strings.Join(have[:n+1], "/")]
		for i := range list {
			if list[i].fitsParts(method, list[i].parts, have) {
				return list[i].Route, true
			}
		}
	}
	return Route{}, false
}

// complete is Routes.Complete.
func (x *routeIndex) complete(l Labels) Labels {
	if x == nil || l[LabelPath] == "" || l[LabelCapability] != "" {
		return l
	}
	r, ok := x.match(l[LabelMethod], l[LabelPath])
	if !ok {
		return l
	}
	return l.with(LabelCapability, r.Capability)
}

// with is a copy with one label more.
func (l Labels) with(name, value string) Labels {
	out := make(Labels, len(l)+1)
	for n, v := range l {
		out[n] = v
	}
	out[name] = value
	return out
}
