package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

const perCaller = `{"budget":"caller/{caller}","unit":"requests","limit":10,"window":{"calendar":"day"},"match":{"tenant":"acme"},"max_instances":1000,` +
	`"allocation":{"policy":"home","hash_of":"caller"}}`

// homes asks where callers are at home.
func (w *world) homes(r *replica, callers int) (homes []string, problems string) {
	w.t.Helper()
	for i := range callers {
		labels := map[string]string{"tenant": "acme", "caller": fmt.Sprint(i)}
		a := w.must(r, 200, "POST", "/v1/budgets/match", map[string]any{"labels": labels})
		home, _ := a["budgets"].([]any)[0].(map[string]any)["home"].(string)
		if !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
		problems = fmt.Sprint(a["problems"])
	}
	slices.Sort(homes)
	return homes, problems
}

// If this failed, whoever wonders why a budget does not apply would have to compare labels by hand.
func TestMatchTellsTheNearestMiss(t *testing.T) {
	w, _, _ := two(t, 1)
	a := w.must(w.replicas[0], 200, "POST", "/v1/budgets/match", `{"labels":{"tenant":"acmee"}}`)
	if text := fmt.Sprint(a["nearest"]); !strings.Contains(text, "acme/requests") || !strings.Contains(text, "want:acme") || !strings.Contains(text, "has:acmee") {
		t.Errorf("%s", text)
	}
}

// Callers that a hash sends to a region that never called have no region that can serve them; and what match says must be
// what the nodes do, who know the running term only.
func TestHashNamesRegionsThatCalled(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east, west := w.addRegion("us-east"), w.addRegion("eu-west")
	east.join(r)
	a := w.must(r, 201, "POST", "/v1/budgets", perCaller)
	if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "eu-west has not called yet") || !strings.Contains(text, "no instance is at home there") {
		t.Errorf("warnings %s", text)
	}
	if permits := a["permits"].(map[string]any); len(permits) != 1 || permits["us-east"] != 10.0 {
		t.Errorf("permits %v", permits)
	}
	if homes, problems := w.homes(r, 20); !slices.Equal(homes, []string{"us-east"}) || problems != "<nil>" {
		t.Errorf("homes %v, problems %s", homes, problems)
	}
	west.join(r)
	if homes, _ := w.homes(r, 20); !slices.Equal(homes, []string{"us-east"}) {
		t.Errorf("in the running term, which names us-east only, homes are %v", homes)
	}
	w.clock.move(48 * time.Hour) // terms that are opened now
	if homes, problems := w.homes(r, 1); homes[0] != "" || !strings.Contains(problems, "no term of caller/{caller} holds") {
		t.Errorf("homes %v, problems %s while no term is open", homes, problems)
	}
	east.sync(r)
	west.sync(r)
	w.settle(r)
	if homes, _ := w.homes(r, 20); !slices.Equal(homes, []string{"eu-west", "us-east"}) {
		t.Errorf("homes %v after both called", homes)
	}
}

// While no region has called the first one must not get the whole term; and a region that others name has its part kept.
func TestPartsOfRegionsThatNeverCalled(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east, west := w.addRegion("us-east"), w.addRegion("eu-west")
	a := w.must(r, 201, "POST", "/v1/budgets", perCaller)
	if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "eu-west has not called yet") || !strings.Contains(text, "us-east has not called yet") {
		t.Errorf("warnings %s", text)
	}
	east.join(r)
	if homes, _ := w.homes(r, 20); len(homes) != 2 {
		t.Errorf("homes %v", homes)
	}
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(budgetJSON("fixed", "100"), `"acme"`, `"other"`, 1))
	a = w.must(r, 201, "POST", "/v1/budgets", `{"budget":"home","unit":"requests","limit":10,"window":{"every":"1m"},"match":{"tenant":"third"},"allocation":{"policy":"home","region":"eu-west"}}`)
	if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "eu-west has not called yet, and is the home") {
		t.Errorf("warnings %s", text)
	}
	term := get[coordinator.SharesAnswer](w, r, "/v1/shares/fixed").Terms[0]
	if term.Unallocated != 40 || len(term.Regions) != 1 || term.Regions[0].Granted != 60 {
		t.Errorf("%+v", term)
	}
	west.join(r)
	west.untilQuiet(r)
	if west.spend("fixed", 100) != 40 || west.spend("home", 100) != 10 {
		t.Error("its part was not kept")
	}
	w.conserved()
}
