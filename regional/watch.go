package regional

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// Bounds of what a Watch holds.
const (
	watchRing    = 4096 // decisions that wait to be gathered
	gatherEvery  = 512  // of them, and somebody who has just been answered gathers
	maxWatched   = 1000 // budgets
	maxCallers   = 20   // label sets of one cause
	maxSums      = 512  // periods, and instances of templates in them, of one budget
	watchedCause = 64   // causes of one budget
)

// Watch gathers what shadow sees: what enforcement would have refused, to whom, where the limiter that is still in force
// says otherwise, and how much was asked for. It counts what passes through this process only, since its start.
//
// A decision costs an atomic addition and a store; no lock is waited for. Gathering is done after answers, by whoever
// gets the lock without waiting. If more comes than is gathered, the oldest is lost, and counted as lost.
type Watch struct {
	ring [watchRing]atomic.Pointer[watched]
	made atomic.Uint64

	mu      sync.Mutex
	taken   uint64
	lost    int64
	since   time.Time
	all     int64
	budgets map[string]*watchedBudget
}

// watched is one decision.
type watched struct {
	labels   allocation.Labels
	decision allocation.Decision
	legacy   string
}

type watchedBudget struct {
	unit, enforcement string
	limit, share      int64
	decided, asked    int64
	impossible        int64 // requests whose cost is above the whole limit
	greatest          int64 // cost of them
	causes            map[allocation.Reason]*watchedReason
	stricter, looser  int64
	sums              map[sumKey]int64
	periods           map[allocation.Instant]allocation.Instant // their ends
}

type sumKey struct {
	period   allocation.Instant
	instance string
}

type watchedReason struct {
	count, units, legacyAllow, legacyDeny int64
	callers                               map[string]*watchedCaller
	others                                int64
}

type watchedCaller struct {
	labels       allocation.Labels
	count, units int64
}

// NewWatch begins to watch.
func NewWatch(now time.Time) *Watch {
	return &Watch{since: now.UTC(), budgets: map[string]*watchedBudget{}}
}

// note remembers a decision that shadow or the other limiter has something to do with. Replays and checks are not new
// traffic.
func (w *Watch) note(r *allocation.Request, d *allocation.Decision, legacy string, all bool) {
	if r.Op != allocation.Spend && r.Op != allocation.Reserve || d.Replayed {
		return
	}
	if !all && legacy == "" && d.Would == "" && !anyUnenforced(d.Budgets) {
		return
	}
	at := w.made.Add(1) - 1
	w.ring[at%watchRing].Store(&watched{labels: r.Labels, decision: *d, legacy: legacy})
}

func anyUnenforced(budgets []allocation.BudgetDecision) bool {
	for i := range budgets {
		if budgets[i].Enforcement != "" {
			return true
		}
	}
	return false
}

// gatherSome gathers when enough waits and nobody else does.
func (w *Watch) gatherSome() {
	if made := w.made.Load(); made%gatherEvery == 0 && made > 0 && w.mu.TryLock() {
		defer w.mu.Unlock()
		w.gather()
	}
}

// gather enters what waits.
func (w *Watch) gather() {
	made := w.made.Load()
	if made-w.taken > watchRing {
		w.lost += int64(made - w.taken - watchRing)
		w.taken = made - watchRing
	}
	for ; w.taken < made; w.taken++ {
		one := w.ring[w.taken%watchRing].Swap(nil)
		if one == nil { // somebody is about to store it, or has stored the one after it there
			w.lost++
			continue
		}
		w.enter(one)
	}
}

func (w *Watch) enter(one *watched) {
	w.all++
	d := &one.decision
	cause, blames := d.Would, d.WouldBlame
	if !d.Admitted() {
		cause, blames = d.Reason, d.Blames
	}
	seen := make([]string, 0, len(d.Budgets)) // a budget may have several lines, of which each is counted
	for i := range d.Budgets {
		b := &d.Budgets[i]
		of := w.budget(b.Budget)
		if of == nil {
			continue
		}
		of.see(b)
		if slices.Contains(seen, b.Budget) {
			continue
		}
		seen = append(seen, b.Budget)
		of.decided++
		if cause == "" && one.legacy == legacyDeny {
			of.looser++
		}
	}
	if cause == "" {
		return
	}
	as := allocation.Decision{Blames: blames, Budgets: d.Budgets}
	units := int64(0)
	if b := blamed(&as); b != nil {
		units = max(0, b.Requested)
	}
	name := blamedName(&as)
	if of := w.budget(name); of != nil {
		if !slices.Contains(seen, name) { // of no budget, or before any budget was looked at
			of.decided++
		}
		of.refuse(cause, units, one)
	}
}

// budget is the account of a budget; of none, for causes that are no budget's. nil: there are too many.
func (w *Watch) budget(name string) *watchedBudget {
	of := w.budgets[name]
	if of == nil && len(w.budgets) < maxWatched {
		of = &watchedBudget{causes: map[allocation.Reason]*watchedReason{}, sums: map[sumKey]int64{}, periods: map[allocation.Instant]allocation.Instant{}}
		w.budgets[name] = of
	}
	return of
}

// see enters one budget's part of a decision.
func (of *watchedBudget) see(b *allocation.BudgetDecision) {
	of.unit, of.enforcement, of.limit, of.share = b.Unit, cmp.Or(b.Enforcement, allocation.Enforce), b.Limit, b.Share
	cost := max(0, b.Requested)
	of.asked = plus(of.asked, cost)
	if b.Reason == allocation.CostExceedsLimit { // one mistake of a caller's must not be the peak
		of.impossible, of.greatest = of.impossible+1, max(of.greatest, cost)
		return
	}
	if b.Until == 0 {
		return
	}
	key := sumKey{b.Period, b.Instance}
	if _, known := of.sums[key]; !known && len(of.sums) >= maxSums && !of.forgetOldest(b.Period) {
		return
	}
	of.sums[key] = plus(of.sums[key], cost)
	of.periods[b.Period] = b.Until
}

// plus adds, and stays at the most that a limit may be.
func plus(sum, n int64) int64 { return min(sum+n, allocation.MaxUnits) }

// forgetOldest makes room by the oldest period, if it is older than this one; but the greatest sum of it stays.
func (of *watchedBudget) forgetOldest(now allocation.Instant) bool {
	oldest := slices.Min(slices.Collect(maps.Keys(of.periods)))
	if oldest >= now {
		return false
	}
	peak, _ := of.peak()
	for key := range of.sums {
		if key.period == oldest && key != peak {
			delete(of.sums, key)
		}
	}
	if peak.period != oldest {
		delete(of.periods, oldest)
	}
	return len(of.sums) < maxSums
}

// peak is the period, and the instance of a template, of which most was asked.
func (of *watchedBudget) peak() (peak sumKey, sum int64) {
	for key, n := range of.sums {
		if n > sum || n == sum && key.period < peak.period {
			peak, sum = key, n
		}
	}
	return peak, sum
}

// refuse enters what enforcement refuses, or would.
func (of *watchedBudget) refuse(cause allocation.Reason, units int64, one *watched) {
	c := of.causes[cause]
	if c == nil && len(of.causes) < watchedCause {
		c = &watchedReason{callers: map[string]*watchedCaller{}}
		of.causes[cause] = c
	}
	if c == nil {
		return
	}
	c.count, c.units = c.count+1, plus(c.units, units)
	switch one.legacy {
	case legacyAllow:
		c.legacyAllow++
		of.stricter++
	case legacyDeny:
		c.legacyDeny++
	}
	key := one.labels.Canonical()
	to := c.callers[key]
	if to == nil && len(c.callers) < maxCallers {
		to = &watchedCaller{labels: one.labels}
		c.callers[key] = to
	}
	if to == nil {
		c.others++
		return
	}
	to.count, to.units = to.count+1, plus(to.units, units)
}
