package manifest

import (
	"strings"
	"testing"

	"tranche/allocation"
)

// A file of routes is taken as it is written, or refused by line and field. If this fails an endpoint has no capability, and nobody
// hears of it.
func TestLoadRoutes(t *testing.T) {
	got, err := LoadRoutes(strings.NewReader("routes:\n  - {method: POST, path: /v1/chat, capability: model}\n  - path: /v1/exports/*\n    capability: export\n"), "-")
	want := []allocation.Route{{Method: "POST", Path: "/v1/chat", Capability: "model"}, {Path: "/v1/exports/*", Capability: "export"}}
	if err != nil || len(got.Routes) != 2 || got.Routes[0] != want[0] || got.Routes[1] != want[1] {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := LoadRoutes(strings.NewReader("routes: []\n"), "-"); err != nil || len(got.Routes) != 0 {
		t.Errorf("an empty table: %+v, %v", got, err)
	}
	for _, test := range [][2]string{
		{"", "-:1: document: is missing"},
		{"routes:\n", "-:1: routes: is missing"},
		{"route: []\n", "-:1: routes: "},
		{"routes:\n  - {path: /a, capability: a, priority: b}\n", "-:2: routes: "},
		{"routes:\n  - {path: /a, capability: a}\n  - {path: b, capability: c}\n", "-:3: routes[1].path: "},
		{"routes:\n  - {path: /a, capability: a}\n  -\n    path: /a\n    capability: c", "-:4: routes[1].path: "},
		{"routes:\n  - {path: /a}\n", "-:2: routes[0].capability: is missing; "},
		{"routes: [", "-:1: is not YAML"},
	} {
		text, want := test[0], test[1]
		if _, err := LoadRoutes(strings.NewReader(text), "-"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
