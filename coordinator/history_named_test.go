package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"tranche/coordinator"
)

// An operator who is not told which budgets etcd lost a change of does not know what to declare again.
func TestLostChangesAreNamed(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, budgetJSON(acmeBudget, "40"), "If-Match", `"1"`)
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	w.round(r, east, west)
	said := func() (list []coordinator.LostChange, what string) {
		s := get[coordinator.Status](w, r, "/v1/status")
		for _, p := range s.Problems {
			if strings.HasPrefix(p.What, "etcd lost changes of budgets") {
				what = p.What
			}
		}
		return s.LostChanges, what
	}
	if list, what := said(); len(list) > 0 || what != "" {
		t.Fatalf("nothing was lost: %v, %s", list, what)
	}
	w.restore(snapshot)
	w.round(r, east, west)
	list, what := said()
	if got := fmt.Sprint(list); got != fmt.Sprintf("[{%s 2 1} {acme/year 1 0}]", acmeBudget) {
		t.Errorf("named are %s", got)
	}
	if !strings.Contains(what, acmeBudget+" (version 2, etcd had 1)") || !strings.Contains(what, "acme/year (its declaration, version 1)") {
		t.Errorf("the status says %s", what)
	}
	b := w.must(r, 200, "GET", "/v1/budgets/"+acmeBudget, nil)
	w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, budgetJSON(acmeBudget, "40"), "If-Match", fmt.Sprintf(`"%v"`, b["version"]))
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	if list, what := said(); len(list) > 0 || what != "" {
		t.Errorf("declared again: %v, %s", list, what)
	}
}
