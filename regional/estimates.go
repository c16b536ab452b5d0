package regional

import (
	"slices"
	"sync"

	"tranche/allocation"
)

// estimates are a node's counts of how far true costs were from estimates, since it started. They are told with the
// refusals, as sums that only rise within a run. For people: nothing is decided by them.
type estimates struct {
	mu    sync.Mutex
	words outcomes // the capabilities that are told apart
	sums  map[estimateOf]*allocation.EstimateCount
	risen bool // since they were told
}

type estimateOf struct{ capability, unit string }

// count takes the settlements among decisions: those that were made now, of budgets that are enforced. Requests that count
// themselves have no estimate.
func (e *estimates) count(c *allocation.Catalogue, decisions []allocation.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Op != allocation.Settle || !d.Admitted() || d.Replayed {
			continue
		}
		for j := range d.Budgets {
			b := &d.Budgets[j]
			again := slices.ContainsFunc(d.Budgets[:j], func(o allocation.BudgetDecision) bool { return o.Unit == b.Unit && o.Enforcement == "" })
			if b.Unit == "requests" || b.Enforcement != "" || again {
				continue
			}
			e.add(e.words.capability(c, d.Evidence.Capability), b)
		}
	}
}

func (e *estimates) add(capability string, b *allocation.BudgetDecision) {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := estimateOf{capability, b.Unit}
	sum := e.sums[k]
	if sum == nil {
		if len(e.sums) >= allocation.MaxEstimates {
			return
		}
		if e.sums == nil {
			e.sums = map[estimateOf]*allocation.EstimateCount{}
		}
		sum = &allocation.EstimateCount{Capability: capability, Unit: b.Unit}
		e.sums[k] = sum
	}
	sum.Add(b.Requested, allocation.SumUp(b.Charged, b.Overdraft), b.Overdraft)
	e.risen = true
}

// rose returns the counts if they rose since they were taken last.
func (e *estimates) rose() []allocation.EstimateCount {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.risen {
		return nil
	}
	e.risen = false
	var out []allocation.EstimateCount
	for _, sum := range e.sums {
		out = append(out, *sum)
	}
	slices.SortFunc(out, allocation.EstimateCount.Compare)
	return out
}

// again takes back what could not be told.
func (e *estimates) again(risen bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.risen = e.risen || risen
}
