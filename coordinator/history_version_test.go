package coordinator_test

import (
	"strings"
	"testing"

	"tranche/coordinator"
)

// An etcd that was put back gives a version of a budget out once more, before anybody notices. If this fails, a region that has
// the lost one takes the new one for the same, for good: a lower limit that it knows is forgotten, or it decides by a declaration
// that nobody has any more.
func TestAVersionThatWasGivenOutTwiceIsOneAgain(t *testing.T) {
	aged := func(age string) string {
		return strings.Replace(budgetJSON(acmeBudget, "100"), `"limit"`, `"max_evidence_age": "`+age+`", "limit"`, 1)
	}
	for name, k := range map[string]struct {
		lost, again string
		limit       int64
		age         int64 // in seconds
	}{
		"a lower limit that was lost":  {budgetJSON(acmeBudget, "50"), budgetJSON(acmeBudget, "80"), 50, 0},
		"a higher limit that was lost": {budgetJSON(acmeBudget, "80"), budgetJSON(acmeBudget, "50"), 50, 0},
		"what no share tells of":       {aged("20s"), aged("9s"), 100, 9},
	} {
		t.Run(name, func(t *testing.T) {
			w, east, west := two(t, 1)
			r := w.replicas[0]
			before := w.backup()
			w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, k.lost, "If-Match", etagOf(w, r))
			w.round(r, east, west)
			lost := east.budgets[acmeBudget]
			w.restore(before)
			w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, k.again, "If-Match", etagOf(w, r))
			if now := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/"+acmeBudget); now.Version != lost.Version {
				t.Fatalf("version %d was lost, and now it is %d", lost.Version, now.Version)
			}
			w.round(r, east, west)
			now := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/"+acmeBudget)
			if w.standing().Freeze != nil || w.standing().History.Number < 2 || *now.Budget.Limit != k.limit {
				t.Errorf("the limit is %d, the standing %+v", *now.Budget.Limit, w.standing())
			}
			for _, f := range []*fakeRegion{east, west} {
				if knows := f.budgets[acmeBudget]; knows.Version != now.Version || *knows.Budget.Limit != k.limit || int64(knows.Budget.MaxEvidenceAge) != k.age {
					t.Errorf("%s knows %+v, and it is %+v", f.name, knows, now)
				}
			}
			if sum := w.held(east, west); sum > k.limit {
				t.Errorf("%d of %d are held", sum, k.limit)
			}
			w.conserved()
		})
	}
}
