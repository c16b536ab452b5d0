package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"tranche/coordinator"
)

// moved is a world in which 25 permits are on their way from us-east to eu-west.
func moved(t *testing.T) (w *world, east *fakeRegion, read func() coordinator.RebalanceAnswer) {
	t.Helper()
	w, east, _ = two(t, 1)
	r := w.replicas[0]
	a := w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/requests", From: "us-east", To: "eu-west", Units: 25})
	if notes := fmt.Sprint(a["notes"]); !strings.Contains(notes, "while the budget is not changed") {
		t.Errorf("notes %s", notes)
	}
	return w, east, func() coordinator.RebalanceAnswer {
		t.Helper()
		one := get[coordinator.RebalanceAnswer](w, r, "/v1/rebalances/"+a["id"].(string))
		if list := get[coordinator.RebalancesList](w, r, "/v1/rebalances").Rebalances; len(list) != 1 || list[0].State != one.State || list[0].Waiting != one.Waiting {
			t.Errorf("listed %+v, read %+v", list, one)
		}
		return one
	}
}

// What is told of a move must be about the move: permits that come back because the budget was deleted are none of it.
func TestRebalanceOfADeletedBudget(t *testing.T) {
	for _, complete := range []bool{false, true} {
		w, east, read := moved(t)
		r, want := w.replicas[0], coordinator.RebalanceUndone
		if complete {
			want = coordinator.RebalanceDone
			east.untilQuiet(r)
			w.settle(r)
		}
		w.must(r, 200, "DELETE", "/v1/budgets/acme/requests", nil, "If-Match", `"1"`)
		w.settle(r)
		if a := read(); a.State != want || a.Waiting != 0 || !strings.Contains(fmt.Sprint(a.Notes), "the budget was deleted") {
			t.Errorf("complete %v: %+v", complete, a)
		}
	}
}

// A change of the budget undoes what was moved by hand. Whoever changes it must hear so before, and the move must say so.
func TestChangeUndoesARebalance(t *testing.T) {
	w, east, read := moved(t)
	r := w.replicas[0]
	east.untilQuiet(r)
	w.settle(r)
	if a := read(); a.State != coordinator.RebalanceDone || a.Waiting != 0 {
		t.Errorf("%+v", a)
	}
	for _, query := range []string{"?dry_run=true", ""} {
		a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests"+query, budgetJSON("acme/requests", "110"), "If-Match", `"1"`)
		if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "undoes what rebalances moved (of each period: eu-west +25, us-east -25)") {
			t.Errorf("warnings %s", text)
		}
	}
	if a := read(); !strings.Contains(fmt.Sprint(a.Notes), "the budget was changed") {
		t.Errorf("%+v", a)
	}
	a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "120"), "If-Match", `"2"`)
	if a["warnings"] != nil {
		t.Errorf("warnings %v", a["warnings"])
	}
}
