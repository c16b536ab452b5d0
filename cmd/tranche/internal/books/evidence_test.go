package books

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
)

func sound(t testing.TB) Evidence {
	t.Helper()
	limit := int64(100)
	b := allocation.Budget{
		Name: "acme/requests", Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"a": 1}},
	}
	h := allocation.Holder{Region: "a", Incarnation: "a1"}
	l := allocation.OpenLedger(b, 1, allocation.Periods{First: 600, Step: 60, Count: 3}, allocation.Members{Regions: []string{"a"}, Holders: []allocation.Holder{h}}, allocation.Generation{Number: 1, Stamp: "s"})
	share, _, err := allocation.Share{}.Apply(l.GrantTo(h))
	if err != nil {
		t.Fatal(err)
	}
	u, _ := share.Usage(allocation.UsageKey{Budget: b.Name, Period: 600, Class: allocation.General})
	u.Spent = 7
	return Judge(Reading{Deployment: "d", Books: allocation.Books{
		Earlier: []allocation.Ledger{l}, Later: []allocation.Ledger{l}, Now: 610,
		Owners: []allocation.OwnerAccount{{Region: "a", Incarnation: "a1", Shares: []allocation.Share{share}, Usage: []allocation.Usage{u}}},
	}}, time.Unix(610, 0), "test")
}

// Evidence that could be changed without anybody noticing would be none. (Who forges the books too needs the ledger's and
// the owners' word against him: that is what the export at another time is for.)
func TestEvidenceIsJudgedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "evidence.json")
	e := sound(t)
	if err := e.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil || !again.Report.Conserved() || again.Report.Lines[0].Spent != 7 {
		t.Fatalf("%v %+v", err, again.Report)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"books changed":  {`"spent": 7`, `"spent": 6`},
		"unknown field":  {`"kind"`, `"kinds"`},
		"another format": {`"format": 1,`, `"format": 2,`},
		"cut off":        {`"books"`, ``},
	} {
		// The report's own count is the first; the books' stands behind it.
		changed := string(text)
		at := strings.LastIndex(changed, change[0])
		changed = changed[:at] + change[1] + changed[at+len(change[0]):]
		if name == "another format" {
			changed = strings.Replace(string(text), change[0], change[1], 1)
		}
		if _, err := parse([]byte(changed)); err == nil {
			t.Errorf("%s: not noticed", name)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, err := json.Marshal(sound(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"format":1,"kind":"tranche evidence","books":{"later":[{"entries":[{"from":0}],"periods":{"first":"1970-01-01T00:00:00Z","step":1,"count":9}}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = parse(text) // whatever it holds, it is judged or refused
	})
}
