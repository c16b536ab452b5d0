package cli

import (
	"encoding/json"
	"testing"
)

// Whoever reads the audit wants to know what was changed, not that something was.
func TestOldToNew(t *testing.T) {
	for name, c := range map[string]struct{ old, now, want string }{
		"a limit":       {`{"version":1,"budget":{"limit":100,"unit":"requests"}}`, `{"version":2,"budget":{"limit":50,"unit":"requests"}}`, "limit 100 → 50"},
		"an override":   {`{"budget":{"limit":100}}`, `{"budget":{"limit":120,"override":{"units":20,"by":"Ada"}}}`, "limit 100 → 120, override.by – → Ada, override.units – → 20"},
		"its end":       {`{"budget":{"limit":120,"override":{"units":20}}}`, `{"budget":{"limit":100}}`, "limit 120 → 100, override.units 20 → –"},
		"something new": {``, `{"name":"alice","role":"viewer"}`, "name alice, role viewer"},
		"many":          {`{"a":1,"b":1,"c":1,"d":1,"e":1}`, `{"a":2,"b":2,"c":2,"d":2,"e":2}`, "a 1 → 2, b 1 → 2, c 1 → 2, d 1 → 2, and 1 more"},
		"a list":        {`{"capabilities":["export"]}`, `{"capabilities":["export","search"]}`, `capabilities ["export"] → ["export","search"]`},
		"nothing":       {`null`, ``, ""},
	} {
		if got := oldToNew(json.RawMessage(c.old), json.RawMessage(c.now)); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
