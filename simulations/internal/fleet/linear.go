package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// steadyBudget is only spent, and its limit never changes: its history is simple enough for a counter to explain it.
const steadyBudget = "steady"

// longestHistory bounds the operations of one history; a longer one is not judged, and counted as a note.
const longestHistory = 500

// linear holds the history of each owner's share of the steady budget, period by period, against a counter: there must be
// an order of all that happened, each within the time in which it can have happened, in which every admission still fitted
// and every refusal did not. It trusts no row and no clock of the services.
//
//	capacity 12 ├┤        admitted 3 ├──────┤     refused 4 ├───┤
//	                        admitted 6 ├───────────────────── …   nobody was told: open to the end
type linear struct {
	checks     *checks
	capacities map[shareKey][]capacity
}

// shareKey is one period of one region's share.
type shareKey struct {
	region string
	period allocation.Instant
}

type capacity struct{ at, units int64 }

// step is one operation on a counter: it sets the capacity, or asks for so many units.
type step struct {
	capacity int64 // below 0: it asks
	cost     int64
}

type counter struct{ capacity, used int64 }

var counterModel = porcupine.Model{
	Init: func() any { return counter{} },
	Step: func(state, input, output any) (bool, any) {
		s, in := state.(counter), input.(step)
		if in.capacity >= 0 {
			s.capacity = in.capacity
			return true, s
		}
		fits := s.used+in.cost <= s.capacity
		if admitted := output.(bool); !admitted {
			return !fits, s
		}
		s.used += in.cost
		return fits, s
	},
}

func newLinear(c *checks) *linear { return &linear{checks: c, capacities: map[shareKey][]capacity{}} }

func spendable(granted, returned, target, limit int64) int64 {
	return max(0, min(granted-returned, target, limit))
}

// commit notes what a commit makes of a share's capacity.
func (l *linear) commit(r *region, x *ownertwin.Commit) {
	next := map[allocation.Instant]int64{}
	limit := l.limit()
	for _, s := range x.Shares {
		if s.Budget != steadyBudget {
			continue
		}
		for i := range s.Periods.Len() {
			start := s.Periods.At(i).Start
			if e, ok := s.EntryFor(start, allocation.General); ok {
				next[start] = spendable(e.Granted, e.Returned, e.Target, limit)
			}
		}
	}
	for _, u := range x.Usage {
		if u.After.Budget == steadyBudget {
			next[u.After.Period] = spendable(u.After.Granted, u.After.Returned, u.After.Target, limit)
		}
	}
	for period, units := range next {
		key := shareKey{r.name, period}
		list := l.capacities[key]
		if n := len(list); n == 0 || list[n-1].units != units {
			l.capacities[key] = append(list, capacity{int64(l.checks.fleet.w.Elapsed()), units})
		}
	}
}

// limit never changes, also where etcd lost it.
func (l *linear) limit() int64 {
	for _, b := range l.checks.fleet.plan.budgets {
		if b.Name == steadyBudget {
			return b.LimitOrZero()
		}
	}
	return 0
}

// judge judges all histories, at the end of a run.
func (l *linear) judge() {
	f := l.checks.fleet
	histories := map[shareKey][]porcupine.Operation{}
	add := func(key shareKey, from, to int64, in step, out bool) {
		histories[key] = append(histories[key], porcupine.Operation{Input: in, Output: out, Call: from, Return: to})
	}
	for key, list := range l.capacities {
		for _, c := range list {
			add(key, c.at, c.at, step{capacity: c.units}, true)
		}
	}
	l.admissions(add)
	l.refusals(add)
	for key := range histories {
		if l.checks.order.since[key.region] > 0 {
			delete(histories, key) // commits were lost: no one counter explains what was told before and after
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(histories), func(a, b shareKey) int {
		return cmp.Or(cmp.Compare(a.region, b.region), cmp.Compare(a.period, b.period))
	}) {
		history := histories[key]
		if len(history) > longestHistory {
			f.notes["histories too long to judge"]++
			continue
		}
		l.checks.must(porcupine.CheckOperations(counterModel, history), 2,
			"no order of the %d things that happened to %s's share of %s in the period %s fits a counter", len(history), key.region, steadyBudget, key.period)
	}
}

// admissions are what truly was admitted: from the first time that it was asked for to the first time that it was told.
func (l *linear) admissions(add func(key shareKey, from, to int64, in step, out bool)) {
	for key := range l.checks.admissions {
		a := l.checks.admissionOf(key)
		if len(a.now.Lines) != 1 || a.now.Lines[0].Budget != steadyBudget {
			continue
		}
		line := a.now.Lines[0]
		from, to := int64(a.at), int64(a.at)
		if cl := l.checks.claims[key]; cl != nil && len(cl.asked) > 0 {
			from, to = int64(cl.asked[0].from), math.MaxInt64
			for _, x := range cl.asked {
				if x.answered && x.decision.Admitted() {
					to = min(to, int64(x.to))
				}
			}
		}
		add(shareKey{key.region, line.Period}, from, to, step{capacity: -1, cost: line.Spent}, true)
	}
}

// refusals are those that say that the share did not hold the cost.
func (l *linear) refusals(add func(key shareKey, from, to int64, in step, out bool)) {
	for key, cl := range l.checks.claims {
		for _, x := range cl.asked {
			switch x.decision.Reason {
			case allocation.RegionShareSpent, allocation.CeilingReached, allocation.CapacityStranded:
			default:
				continue
			}
			if b := x.decision.Budgets; x.answered && len(b) == 1 && b[0].UsageKey.Budget == steadyBudget {
				add(shareKey{key.region, b[0].Period}, int64(x.from), int64(x.to), step{capacity: -1, cost: b[0].Requested}, false)
			}
		}
	}
}
