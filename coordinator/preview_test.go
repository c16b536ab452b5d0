package coordinator_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// Before a limit is lowered somebody must be able to know what may be spent all the same, and by whom; and it must be so.
func TestPreview(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	east.spend("acme/requests", 12)
	east.sync(r)
	preview := func(limit string) *coordinator.Preview {
		t.Helper()
		recorder := w.request(r, "PUT", "/v1/budgets/acme/requests?dry_run=true", budgetJSON("acme/requests", limit), "If-Match", `"1"`)
		return decoded[coordinator.BudgetAnswer](w, recorder).Preview
	}
	if p := preview("300"); p == nil || p.Limit != 100 || p.NewLimit != 300 || p.Out != 100 || p.Overcommitted != 0 || p.Largest != 300 {
		t.Fatalf("raised: %+v", p)
	}
	w.clock.move(40 * time.Second) // us-east has called last; eu-west has not for too long after this
	w.clock.move(55 * time.Second)
	east.untilQuiet(r)
	east.spend("acme/requests", 7)
	east.sync(r)
	p := preview("10")
	if p == nil || p.Out != 100 || p.Overcommitted != 90 || p.Largest != 100 || len(p.Regions) != 2 || len(p.Notes) != 1 {
		t.Fatalf("lowered: %+v", p)
	}
	if away, here := p.Regions[0], p.Regions[1]; away.Region != "eu-west" || away.InContact || away.MaySpend != 40 || away.Target != 4 ||
		!here.InContact || here.Spent != 7 || here.MaySpend != 53 || here.Target != 6 {
		t.Errorf("%+v", p.Regions)
	}
	if get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/requests").Version != 1 {
		t.Error("a preview changed something")
	}
	// It is made, and the region that is away spends all that it may: no more than was said.
	w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "10"), "If-Match", `"1"`)
	east.untilQuiet(r)
	more := west.spend("acme/requests", 1000) + east.spend("acme/requests", 1000)
	if more != 40 || 7+more > p.Largest {
		t.Errorf("%d more are spent in the period from %s", more, allocation.Instant(p.Period.Start))
	}
	recorder := w.request(r, "DELETE", "/v1/budgets/acme/requests?dry_run=true", nil, "If-Match", `"2"`)
	if p := decoded[coordinator.BudgetAnswer](w, recorder).Preview; p == nil || p.NewLimit != 0 || p.Regions[1].Target != 0 {
		t.Errorf("deleted: %+v", p)
	}
}

func decoded[T any](w *world, recorder *httptest.ResponseRecorder) (out T) {
	w.t.Helper()
	if err := json.Unmarshal(recorder.Body.Bytes(), &out); err != nil || recorder.Code/100 != 2 {
		w.t.Fatalf("%d %s", recorder.Code, recorder.Body)
	}
	return out
}

// A drain gives to a region that is silent, where nobody can spend it: whoever drains must know before.
func TestPreviewOfADrainToASilentRegion(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(yearly, `"eu-west":2`, `"eu-west":0`, 1))
	east.untilQuiet(r)
	other := w.must(r, 200, "PUT", "/v1/budgets/acme/year?dry_run=true", yearly, "If-Match", `"1"`)["preview"].(map[string]any)
	if regions := other["regions"].([]any); len(regions) != 2 || other["notes"] != nil {
		t.Errorf("a region that gets its first permits is left out, or warned of: %v", other)
	}
	w.pass(2*time.Minute, east)
	p := decoded[coordinator.MembersPreview](w, w.request(r, "POST", "/v1/regions/us-east/drain?dry_run=true", nil))
	if len(p.Budgets) == 0 || p.Budgets[0].Budget != "acme/requests" {
		t.Fatalf("%+v", p)
	}
	if notes := fmt.Sprint(p.Budgets[0].Preview.Notes); !strings.Contains(notes, "eu-west cannot be asked: the 60 more that it is to hold") {
		t.Errorf("notes %s", notes)
	}
}

// A template's figures are of one instance, and of one that nobody knows: what is stated is the sum over all of them. Where each
// instance has one home, what the regions hold is not added up.
func TestPreviewOfATemplate(t *testing.T) {
	for name, c := range map[string]struct {
		allocation             string
		limit                  string
		out, largest, inRegion int64
	}{
		"home, lowered": {`{"policy":"home","hash_of":"caller"}`, "4", 10, 10, 10},
		"home, raised":  {`{"policy":"home","hash_of":"caller"}`, "25", 10, 25, 10},
		"one region":    {`{"policy":"home","region":"us-east"}`, "4", 10, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			besideOthers(t)
			w, east, west := two(t, 1)
			r := w.replicas[0]
			body := func(limit string) string {
				return `{"budget":"caller/{caller}","unit":"requests","limit":` + limit + `,"window":{"calendar":"day"},"match":{"tenant":"acme"},"max_instances":1000,"allocation":` + c.allocation + `}`
			}
			w.must(r, 201, "POST", "/v1/budgets", body("10"))
			east.untilQuiet(r)
			west.untilQuiet(r)
			p := decoded[coordinator.BudgetAnswer](w, w.request(r, "PUT", "/v1/budgets/caller%2F%7Bcaller%7D?dry_run=true", body(c.limit), "If-Match", `"1"`)).Preview
			if p == nil || !p.PerInstance || p.Limit != 10 || p.Out != c.out || p.Largest != c.largest || p.Overcommitted != max(0, c.out-p.NewLimit) {
				t.Fatalf("%+v", p)
			}
			for _, region := range p.Regions {
				if region.Held != c.inRegion || region.MaySpend != c.inRegion || region.Spent != 0 {
					t.Errorf("%+v", region)
				}
			}
		})
	}
}
