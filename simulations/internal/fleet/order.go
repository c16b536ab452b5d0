package fleet

import (
	"slices"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// order holds what callers are told against a counter with holds, of every share of every budget, in every run. The order
// in which commits became visible is the one order that is looked for: each charge must have fitted when its turn came, and
// each answer must be that of some moment between the question and the answer.
//
//	commits      free 5 ──admit 3──▶ free 2 ──release 2──▶ free 4
//	refused 3        ├──────┤                                       no: 5 was free at every moment of it
//	refused 3                  ├────────────────┤                   yes: 2 was free for a while
//
// So it takes one pass, however long the history is; a caller that was told nothing asks of it nothing. It is cut where a
// database lost commits: what was told before is no statement about what came after.
type order struct {
	checks *checks
	rows   map[rowKey][]rowState // by what was used
	shares map[rowKey][]rowState // by what a row would be made from
	ids    map[claimKey][]idState
	since  map[string]time.Duration // by region: when its database last lost commits
}

type rowKey struct {
	region string
	allocation.UsageKey
}

// rowState is a counter from one moment to the next state.
type rowState struct {
	from           time.Duration
	held           int64 // granted and not returned
	target         int64
	protected      int64
	used, reserved int64
	charged        int64 // by the admissions of the commit that led to it
	clock          int64 // at which that commit was decided
}

// free is what traffic of a priority may still take.
func (s rowState) free(p allocation.Priority, limit int64) int64 {
	if p == allocation.Essential {
		return max(0, min(s.held, max(s.target, s.used+s.protected), limit)-s.used)
	}
	return max(0, min(s.held, s.target, limit)-s.used-s.protected)
}

type idState struct {
	from   time.Duration
	commit *ownertwin.Commit
	state  allocation.State
}

func newOrder(c *checks) *order {
	return &order{checks: c, rows: map[rowKey][]rowState{}, shares: map[rowKey][]rowState{}, ids: map[claimKey][]idState{}, since: map[string]time.Duration{}}
}

// show enters a commit, as it becomes visible.
func (o *order) show(x *ownertwin.Commit) {
	c := o.checks
	r := c.regionOf(x.Database)
	if r == nil || x.Database != r.db.Name() {
		return // a copy beside the region's database is judged by its commits
	}
	at := c.fleet.w.Elapsed()
	for _, a := range slices.Concat(x.Inserted, x.Updated) {
		k := claimKey{r.name, a.IDKey}
		o.ids[k] = append(o.ids[k], idState{at, x, a.State})
	}
	if x.StartsOver {
		o.startOver(r)
		return
	}
	for _, s := range x.Shares {
		for i := range s.Periods.Len() {
			start := s.Periods.At(i).Start
			for _, class := range []allocation.Class{allocation.General, allocation.Protected} {
				if e, ok := s.EntryFor(start, class); ok {
					k := rowKey{r.name, allocation.UsageKey{Budget: s.Budget, Period: start, Class: class}}
					o.shares[k] = enter(o.shares[k], rowState{from: at, held: e.Granted - e.Returned, target: e.Target, protected: e.Protected})
				}
			}
		}
	}
	charged, alone := chargesOf(x)
	for _, u := range merged(x.Usage) {
		k := rowKey{r.name, u.After.UsageKey}
		s := rowState{
			from: at, held: u.After.Granted - u.After.Returned, target: u.After.Target, protected: u.After.Protected, used: u.After.Spent + u.After.Reserved,
			reserved: u.After.Reserved, charged: charged[u.After.UsageKey], clock: x.Clock,
		}
		o.judgeCharge(r, x, u, s, alone[u.After.UsageKey])
		o.rows[k] = enter(o.rows[k], s)
	}
}

func enter(list []rowState, s rowState) []rowState {
	if n := len(list); n > 0 {
		last := list[n-1]
		if last.from, last.charged, last.clock = s.from, s.charged, s.clock; last == s && s.charged == 0 {
			return list
		}
	}
	return append(list, s)
}

// merged makes one change of the changes of each row: one that was made and then charged stands twice.
func merged(list []ownertwin.UsageChange) (out []ownertwin.UsageChange) {
	at := map[allocation.UsageKey]int{}
	for _, u := range list {
		if i, twice := at[u.After.UsageKey]; twice {
			out[i].After = u.After
			continue
		}
		at[u.After.UsageKey] = len(out)
		out = append(out, u)
	}
	return out
}

// newLine is a line of a new admission, and whose it is.
type newLine struct {
	*allocation.AdmissionLine
	priority allocation.Priority
}

// chargesOf is what a commit charges to each row by new admissions, and the line of the only one that it changes a row by.
func chargesOf(x *ownertwin.Commit) (charged map[allocation.UsageKey]int64, alone map[allocation.UsageKey]newLine) {
	charged, alone = map[allocation.UsageKey]int64{}, map[allocation.UsageKey]newLine{}
	seen := map[allocation.UsageKey]int{}
	for _, a := range x.Inserted {
		for i := range a.Lines {
			line := &a.Lines[i]
			if line.Uncharged() {
				continue
			}
			charged[line.UsageKey] += line.Requested
			seen[line.UsageKey]++
			alone[line.UsageKey] = newLine{line, a.First.Priority}
		}
	}
	for _, a := range x.Updated {
		for _, line := range a.Lines {
			charged[line.UsageKey] += chargedBy(line) // it may have grown by an extension
			seen[line.UsageKey] += 2
		}
	}
	for k, n := range seen {
		if n > 1 {
			delete(alone, k)
		}
	}
	return charged, alone
}

// judgeCharge judges that what a commit takes fitted when its turn came, and that what it tells of the row is so.
func (o *order) judgeCharge(r *region, x *ownertwin.Commit, u ownertwin.UsageChange, now rowState, line newLine) {
	before := u.Before.Spent + u.Before.Reserved
	if now.used > before {
		limit := o.checks.highestOf(u.After)
		if line.AdmissionLine != nil {
			limit = line.Limit
		}
		room := max(0, min(u.After.Granted-u.Before.Returned, max(u.After.Target, before+u.After.Protected), limit))
		o.checks.must(now.used <= max(before, room), 2, "%s takes %d of %s, period %s, and its share had room for %d", r.name, now.used-before, u.After.Budget, u.After.Period, max(0, room-before))
	}
	if line.AdmissionLine != nil && x.What == "batch" {
		o.checks.must(line.Remaining == now.free(line.priority, line.Limit) && line.Share == now.held, 12,
			"%s admits %s of %s, and says that %d of %d remain of its share; it is %d of %d", r.name, x.Inserted[0].ID, u.After.Budget, line.Remaining, line.Share, now.free(line.priority, line.Limit), now.held)
	}
}

// highestOf is the highest limit that a row's budget ever had.
func (c *checks) highestOf(u allocation.Usage) int64 {
	if l := c.ledgers[allocation.ShareRef{Budget: u.Budget, Term: u.Term}]; l != nil {
		return l.highest
	}
	return 0
}

// lost cuts the history of a region. Of ids all is kept: another backup may bring back what this one lacks.
func (o *order) lost(r *region) { o.startOver(r) }

// startOver begins the counters of a region anew.
func (o *order) startOver(r *region) {
	o.since[r.name] = o.checks.fleet.w.Elapsed()
	for k := range o.rows {
		if k.region == r.name {
			delete(o.rows, k)
		}
	}
	for k := range o.shares {
		if k.region == r.name {
			delete(o.shares, k)
		}
	}
}

// told judges an answer by the counters: what it refuses did not fit at some moment since it was asked.
func (o *order) told(r *region, from time.Duration, d allocation.Decision) {
	if from <= o.since[r.name] {
		return
	}
	for _, b := range d.Budgets {
		if d.Admitted() || b.Limit == 0 || b.Reason != allocation.RegionShareSpent && b.Reason != allocation.CeilingReached && b.Reason != allocation.CapacityStranded && b.Reason != allocation.OnlyProtectedLeft {
			continue
		}
		o.refused(r, from, d, b)
		if b.Reason == allocation.CeilingReached {
			spent := o.checks.fleet.truth.Total(b.UsageKey).Spent + o.checks.openingOf(b.UsageKey) + o.checks.writtenOffOf(b.UsageKey)
			o.checks.must(b.Requested > b.Limit-spent, 12, "%s refuses %s: all of %s %s is used up, and %d of %d are not spent, for a cost of %d", r.name, d.Key.ID, b.Budget, b.Instance,
				b.Limit-spent, b.Limit, b.Requested)
		}
	}
}

func (o *order) refused(r *region, from time.Duration, d allocation.Decision, b allocation.BudgetDecision) {
	known, short, exact := refusedBy(o.statesOf(rowKey{r.name, b.UsageKey}), from, d.At, d.Evidence.Priority, b)
	if !known {
		o.checks.fleet.notes["refusals without a row"]++
		return
	}
	o.checks.must(short, 2, "%s refuses %d of %s %s, period %s, to %s, and it fitted at every moment since %s", r.name, b.Requested, b.Budget, b.Instance, b.Period, d.Key.ID, from)
	o.checks.must(exact, 12, "%s refuses %s with %d of %s %s left, and so many were left at no moment since %s", r.name, d.Key.ID, b.Remaining, b.Budget, b.Instance, from)
}

// refusedBy says whether any state since the question is known, whether the cost did not fit in one of them, and whether
// as much was left in such a one as the answer says. A refusal that stands in a batch between two others may have seen what
// no commit shows: by then the batch had charged all that it charges, at most.
// What only essential traffic may spend counts as left, unless it is what refuses.
func refusedBy(states []rowState, from time.Duration, decided int64, p allocation.Priority, b allocation.BudgetDecision) (known, short, exact bool) {
	all := allocation.Essential
	if b.Reason == allocation.OnlyProtectedLeft {
		all = p
	}
	for i, s := range states {
		if i+1 < len(states) && states[i+1].from < from {
			continue
		}
		known = true
		if b.Requested > s.free(all, b.Limit) {
			short, exact = true, exact || b.Remaining == s.free(p, b.Limit)
		}
		if s.clock == decided && i > 0 && b.Requested > states[i-1].free(all, b.Limit)-s.charged {
			short, exact = true, true
		}
	}
	return known, short, exact
}

// statesOf are the states of a row, before it is made those of what it would be made from.
func (o *order) statesOf(k rowKey) []rowState {
	rows := o.rows[k]
	k.Instance = ""
	var before []rowState
	for _, s := range o.shares[k] {
		if len(rows) == 0 || s.from < rows[0].from {
			before = append(before, s)
		}
	}
	if len(before) == 0 {
		return rows
	}
	return append(before, rows...)
}

// state judges that an id was in a state at some moment since it was asked for (invariant 6).
func (o *order) state(cl *claim, from time.Duration, d allocation.Decision) {
	if from <= o.since[cl.region.name] || d.State == "" {
		return
	}
	states, found := slices.DeleteFunc(slices.Clone(o.ids[claimKey{cl.region.name, cl.key}]), func(s idState) bool { return !cl.region.db.Holds(s.commit) }), false
	for i, s := range states {
		found = found || s.state == d.State && (i+1 == len(states) || states[i+1].from >= from)
	}
	o.checks.must(found, 6, "%s says that %s is %s, and it was not so at any moment since %s: %v", cl.region.name, cl.key.ID, d.State, from, states)
}
