package allocation

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// A change that is entered into an index matches as an index that is made anew. If it did not, a node would charge by a limit, or
// by labels, that are not declared any more.
func TestIndexFollowsChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	pick := func() ConfiguredBudget {
		b := testBudget(fmt.Sprint("b/", random.IntN(40)), "requests", random.Int64N(100))
		if random.IntN(6) > 0 {
			b.Match = map[string]string{"tenant": fmt.Sprint(random.IntN(3))}
		}
		return ConfiguredBudget{Budget: b, Deleted: random.IntN(12) == 0}
	}
	c := NewCatalogue("here")
	for step := range 3000 {
		changed := []ConfiguredBudget{pick()}
		if random.IntN(2) == 0 {
			changed = append(changed, pick())
		}
		c = c.With(int64(step), changed, nil, nil)
		var live []Budget
		for _, b := range c.Budgets() {
			if !b.Deleted {
				live = append(live, b.Budget)
			}
		}
		for tenant := range 3 {
			l := Labels{"tenant": fmt.Sprint(tenant)}
			got, _ := c.index.Match(l)
			want, _ := MatchBudgets(live, l)
			if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
				t.Fatalf("step %d, tenant %d: %+v, want %+v", step, tenant, got, want)
			}
		}
	}
}

// A change of one of thousands of budgets, as it costs a node.
func BenchmarkChangeOneOfThousands(b *testing.B) {
	var all []ConfiguredBudget
	for i := range 5000 {
		budget := testBudget(fmt.Sprint("firm-", i, "/calls"), "requests", 100)
		budget.Match = map[string]string{"tenant": fmt.Sprint("firm-", i)}
		all = append(all, ConfiguredBudget{Budget: budget})
	}
	c := NewCatalogue("here").With(1, all, nil, nil)
	for b.Loop() {
		c = c.With(2, all[100:102], nil, nil)
	}
}
