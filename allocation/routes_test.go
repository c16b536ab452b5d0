package allocation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var someRoutes = Routes{Routes: []Route{
	{"", "/v1/*", "rest"},
	{"POST", "/v1/chat", "model"},
	{"", "/v1/chat", "history"},
	{"", "/v1/users/{id}", "profile"},
	{"", "/v1/users/me", "self"},
	{"DELETE", "/v1/users/{id}", "erase"},
	{"", "/v1/{kind}/exports/*", "export"},
	{"GET", "/", "home"},
}}

// The most specific line decides, wherever it stands. If this fails a dear endpoint is charged to a cheap capability, or the order of
// a file decides what is charged.
func TestRoutesMatch(t *testing.T) {
	for endpoint, want := range map[string]string{
		"POST /v1/chat": "model", "GET /v1/chat": "history", " /v1/chat": "history", "GET /v1/chat/7": "rest",
		"GET /v1/users/me": "self", "DELETE /v1/users/me": "self", "DELETE /v1/users/7": "erase", "GET /v1/users/7": "profile",
		"GET /v1/users/7/x": "rest", "GET /v1/a/exports/1/2": "export", "GET /v1/a/exports": "rest", "GET /v1": "", "GET /v1/": "",
		"GET /V1/chat": "", "post /v1/chat": "history", "GET /": "home", "POST /": "", "GET /v2": "", "GET v1/chat": "", "GET ": "",
	} {
		method, path, _ := strings.Cut(endpoint, " ")
		for _, list := range [][]Route{someRoutes.Routes, reversed(someRoutes.Routes)} {
			r, found := Routes{Routes: list}.Match(method, path)
			if by, known := newRouteIndex(Routes{Routes: list}).match(method, path); by != r || known != found {
				t.Errorf("%s: by the index %+v, not %+v", endpoint, by, r)
			}
			if r.Capability != want || found != (want != "") {
				t.Errorf("%s: %q, want %q", endpoint, r.Capability, want)
			}
		}
	}
}

func reversed(list []Route) []Route {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// A line that can never fit, or two that fit the same, are refused by their field. If this fails an endpoint has another capability
// than its operator believes.
func TestRoutesValidate(t *testing.T) {
	if err := someRoutes.Validate(); err != nil {
		t.Error(err)
	}
	for want, r := range map[string]Route{
		"routes[1].path: \"v1\" does not begin":    {"", "v1", "a"},
		"routes[1].path: \"/a?b\" has a query":     {"", "/a?b", "a"},
		"routes[1].path: \"/a//b\" has a part":     {"", "/a//b", "a"},
		"routes[1].path: \"/a/\" has a part":       {"", "/a/", "a"},
		"routes[1].path: \"/a/../b\" has a part":   {"", "/a/../b", "a"},
		"routes[1].path: \"/*/b\" has a *":         {"", "/*/b", "a"},
		"routes[1].path: \"/a/{b}c\" has a part":   {"", "/a/{b}c", "a"},
		"routes[1].path: \"/a/{}\" has a part":     {"", "/a/{}", "a"},
		"routes[1].path: \"/a/b*\" has a part":     {"", "/a/b*", "a"},
		"routes[1].path: /x/{other} fits the same": {"GET", "/x/{other}", "a"},
		"routes[1].method: \"get\" is not":         {"get", "/y", "a"},
		"routes[1].capability: is missing":         {"GET", "/y", ""},
		"routes[1].capability: \"a\\nb\" is not":   {"GET", "/y", "a\nb"},
	} {
		err := Routes{Routes: []Route{{"GET", "/x/{id}", "x"}, r}}.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "; ") {
			t.Errorf("%+v: %v, want %s", r, err, want)
		}
	}
	if err := (Routes{Routes: make([]Route, MaxRoutes+1)}).Validate(); err == nil || !strings.HasPrefix(err.Error(), "routes: are 501") {
		t.Error(err)
	}
}

// An endpoint alone is charged to the budgets of its capability, under any table that is carried later; a capability that is named
// stands; and a replay does not see the table. If this fails a moved URL loses its budget, or a change of the table
// turns retries into conflicts.
func TestRoutesComplete(t *testing.T) {
	model, any := testBudget("model", "requests", 100), testBudget("z", "requests", 100)
	model.Match = map[string]string{LabelCapability: "model"}
	table := func(version int64, routes ...Route) Document {
		body, _ := json.Marshal(Routes{Routes: routes})
		return Document{Kind: KindRoutes, Name: NameRoutes, Version: version, Number: version, Body: body}
	}
	l := newOwner(granted{model, 50}, granted{any, 50})
	ask := func(id string, labels Labels) (names []string) {
		r := request(Spend, id, requests(1))
		r.Labels = labels
		for _, b := range l.put(r).Budgets {
			names = append(names, b.Budget)
		}
		return names
	}
	endpoint := Labels{LabelMethod: "POST", LabelPath: "/v1/chat"}
	for i, c := range []struct {
		change []Document
		labels Labels
		want   string
	}{
		{nil, endpoint, "z"},
		{[]Document{table(1, Route{"POST", "/v1/chat", "model"})}, endpoint, "model z"},
		{nil, Labels{LabelMethod: "GET", LabelPath: "/v1/chat"}, "z"},
		{nil, Labels{LabelMethod: "POST", LabelPath: "/v1/chat", LabelCapability: "other"}, "z"},
		{nil, Labels{LabelPath: "/v1/chat", LabelCapability: "model"}, "model z"},
		{[]Document{table(2, Route{"", "/v2/chat", "model"})}, endpoint, "z"},
		{nil, Labels{LabelMethod: "POST", LabelPath: "/v2/chat"}, "model z"},
		{[]Document{table(1, Route{"", "/v1/chat", "model"})}, endpoint, "z"},                                                                             // late: older
		{[]Document{{Kind: KindRoutes, Name: NameRoutes, Version: 3, Number: 3, Body: []byte(`{"routes":7}`)}}, Labels{LabelPath: "/v2/chat"}, "model z"}, // of a later program
	} {
		l.Catalogue = l.Catalogue.WithDocuments(c.change).With(l.Catalogue.Number+1, nil, nil, nil)
		if got := strings.Join(ask(string(rune('a'+i)), c.labels), " "); got != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
		if got, want := l.Catalogue.CapabilityOf(c.labels), l.Catalogue.Complete(c.labels)[LabelCapability]; got != want {
			t.Errorf("%d: the capability is %q, and that of the completed labels %q", i, got, want)
		}
	}
	if len(endpoint) != 2 {
		t.Error("the caller's labels were changed")
	}
	r := request(Spend, "b", requests(1))
	r.Labels = endpoint
	if d := l.put(r); !d.Replayed || len(d.Budgets) != 2 {
		t.Errorf("a replay under another table: %+v", d)
	}
}

// A block and a key's scope see what the table fills in. If this fails an endpoint slips past the block of its capability.
func TestRoutesBeforeBlocks(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 50})
	table, _ := json.Marshal(Routes{Routes: []Route{{"", "/exports/*", "export"}}})
	block, _ := json.Marshal(Block{Match: Labels{LabelCapability: "export"}, From: firstMinute, Until: firstMinute + 3600, Reason: "r", By: "op"})
	l.Catalogue = l.Catalogue.WithDocuments([]Document{
		{Kind: KindRoutes, Name: NameRoutes, Version: 1, Number: 1, Body: table}, {Kind: KindBlock, Name: "b", Version: 1, Number: 2, Body: block},
	}).With(2, nil, nil, nil)
	for path, want := range map[string]Reason{"/exports/7": Blocked, "/other": Allow} {
		r := request(Spend, path, requests(1))
		r.Labels = Labels{LabelMethod: "GET", LabelPath: path}
		if d := l.put(r); d.Reason != want {
			t.Errorf("%s: %s, want %s", path, d.Reason, want)
		}
	}
}

// The index is what requests go by. If this fails a node reads a table otherwise than `tranche routes match` says.
func TestRouteIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"a", "b", "{x}", "{y}"})
		var table Routes
		for range rapid.IntRange(1, 12).Draw(t, "lines") {
			parts := rapid.SliceOfN(part, 1, 3).Draw(t, "parts")
			if rapid.IntRange(0, 3).Draw(t, "rest") == 0 {
				parts = append(parts, "*")
			}
			r := Route{Method: rapid.SampledFrom([]string{"", "GET", "POST"}).Draw(t, "method"), Path: "/" + strings.Join(parts, "/")}
			r.Capability = r.Method + r.Path
			table.Routes = append(table.Routes, r)
			if table.Validate() != nil { // the same as another
				table.Routes = table.Routes[:len(table.Routes)-1]
			}
		}
		x := newRouteIndex(table)
		for range 20 {
			method := rapid.SampledFrom([]string{"GET", "POST", "PUT"}).Draw(t, "asked method")
			path := "/" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 4).Draw(t, "asked"), "/")
			want, found := table.Match(method, path)
			if got, known := x.match(method, path); got != want || known != found {
				t.Fatalf("%s %s: %+v, want %+v of %+v", method, path, got, want, table.Routes)
			}
		}
	})
}

func BenchmarkRoutesComplete(b *testing.B) {
	var table Routes
	for i := range MaxRoutes {
		table.Routes = append(table.Routes, Route{Path: fmt.Sprintf("/v1/part-%d/{id}", i), Capability: "c"})
	}
	x, l := newRouteIndex(table), Labels{LabelMethod: "GET", LabelPath: "/v1/part-499/7", "tenant": "acme"}
	for b.Loop() {
		x.complete(l)
	}
}
