package scenario

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// The names of the alternatives and of the yardstick.
const (
	NameTranche  = "tranche"
	NameStatic   = "static_split"
	NameHome     = "single_home"
	NameRow      = "global_row"
	NameLater    = "sync_later"
	NamePossible = "possible"
)

// alternative is a model of another way to enforce the budgets. Its doc comment and its assumptions say what is left out.
type alternative interface {
	name() string
	assumes() string
	// tick moves on to a tick, before its arrivals.
	tick(at allocation.Duration)
	// gate says what a region may admit of a budget now.
	gate(budget, region int) gate
	// promised is the highest limit that anybody still holds the running period to.
	promised(budget int) int64
	// spend enters requests that passed the gate, and the units of those that were admitted.
	spend(budget, region int, requests, units int64)
	// standing is what a region may spend in the running period, what of it is left, and what is left behind a region
	// that is cut off.
	standing(budget, region int) (granted, held, stranded int64)
}

// gate is what a region may admit.
type gate struct {
	closed   string // why it can admit nothing at all, or empty
	room     int64  // units
	requests int64  // that pass within the tick; below 0: any number
	delay    time.Duration
}

// book is the counter of one budget in one place. It starts anew with each period.
type book struct {
	period allocation.Period
	spent  int64
}

// world is what all alternatives share: the run of periods, limits as they are known in each region, and what is broken.
type world struct {
	s        Scenario
	timeline Timeline
	at       allocation.Duration
	periods  []allocation.Period // running, by budget; empty if there is none
	limits   [][]int64           // by budget and region: as last heard there
	truth    []int64             // by budget
	events   []Event
}

func newWorld(s Scenario) *world {
	w := &world{s: s, timeline: NewTimeline(s), events: s.Events}
	for _, b := range s.Budgets {
		w.periods = append(w.periods, allocation.Period{})
		w.limits = append(w.limits, slices.Repeat([]int64{b.LimitOrZero()}, len(s.Regions)))
		w.truth = append(w.truth, b.LimitOrZero())
	}
	return w
}

// tick moves to a tick: periods begin, and a changed limit reaches every region that is not cut off.
func (w *world) tick(at allocation.Duration) {
	w.at = at
	now := w.s.Start + allocation.Instant(at)
	for len(w.events) > 0 && w.events[0].At <= at {
		if e := w.events[0]; e.Kind == ChangeBudget && e.Limit != nil {
			w.truth[w.s.budget(e.Budget)] = *e.Limit
		}
		w.events = w.events[1:]
	}
	for i, b := range w.s.Budgets {
		if !w.periods[i].Contains(now) {
			w.periods[i], _ = b.Window.PeriodAt(now)
		}
		for r := range w.s.Regions {
			if out, in := w.timeline.links(r, at, true); out && in {
				w.limits[i][r] = w.truth[i]
			}
		}
	}
}

// cutOff says whether a region's callers alone can reach it.
func (w *world) cutOff(region int) bool {
	out, in := w.timeline.links(region, w.at, true)
	return !out || !in
}

// resets is the seconds to the end of a budget's period, at most an hour, as callers are told; 0: never.
func (w *world) resets(budget int) int64 {
	end := w.periods[budget].End
	if end == allocation.Never || end == 0 {
		return 0
	}
	now := w.s.Start + allocation.Instant(w.at)
	return min(max(1, int64(end-now)), 3600)
}

// runAlternatives feeds the same arrivals to all alternatives in one pass.
func runAlternatives(ctx context.Context, s Scenario, seed uint64, progress func(float64)) ([]Series, []string, error) {
	var runs []*alternativeRun
	for _, make := range []func(*world) alternative{newStatic, newHome, newRow, newLater, newPossible} {
		w := newWorld(s)
		a := make(w)
		rec := NewRecorder(a.name(), s)
		runs = append(runs, &alternativeRun{world: w, alternative: a, rec: rec, callers: NewCallers(s, rec, seed)})
	}
	arrivals, tick := NewArrivals(s, seed), s.Tick
	for k := range s.Ticks() {
		if k%1000 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, nil, err
			}
			if progress != nil {
				progress(float64(k) / float64(s.Ticks()))
			}
		}
		at := allocation.Duration(k) * tick
		for _, r := range runs {
			r.world.tick(at)
			r.alternative.tick(at)
			for _, b := range r.callers.Due(k) {
				r.offer(k, b, true)
			}
		}
		arrivals.Tick(k, func(b Batch) {
			for _, r := range runs {
				r.rec.Offered(at, b.Budget, b.Region, b.N, b.Units())
				r.offer(k, b, false)
			}
		})
		for _, r := range runs {
			r.record(at)
		}
	}
	var all []Series
	var assumptions []string
	for _, r := range runs {
		all = append(all, r.rec.Series())
		assumptions = append(assumptions, r.alternative.assumes())
	}
	return all, assumptions, nil
}

type alternativeRun struct {
	world       *world
	alternative alternative
	rec         *Recorder
	callers     *Callers
}

// offer takes a batch through the gate.
func (r *alternativeRun) offer(k int, b Batch, again bool) {
	w := r.world
	if part := w.timeline.NodesLost(b.Region, w.at); part > 0 && r.alternative.name() != NamePossible {
		var gone Batch
		gone, b = split(b, part)
		r.callers.Refused(k, gone, NodeDown, 1, again)
	}
	if b.N == 0 {
		return
	}
	g := r.alternative.gate(b.Budget, b.Region)
	if w.periods[b.Budget] == (allocation.Period{}) {
		g.closed = string(allocation.NoAllocation)
	}
	if g.closed != "" {
		r.callers.Refused(k, b, g.closed, 1, again)
		return
	}
	if g.requests >= 0 && b.N > g.requests {
		var over Batch
		over, b = split(b, float64(b.N-g.requests)/float64(b.N))
		r.callers.Refused(k, over, string(allocation.Overloaded), 1, again)
	}
	n, units, over := fit(b, g.room)
	r.alternative.spend(b.Budget, b.Region, b.N, units)
	if n > 0 {
		r.rec.Admitted(w.at, b.Budget, b.Region, n, units, g.delay, w.periods[b.Budget].Start, r.alternative.promised(b.Budget))
	}
	r.callers.Refused(k, over, string(allocation.CeilingReached), w.resets(b.Budget), again)
}

// fit admits the requests of a batch that fit, in their order.
func fit(b Batch, room int64) (n, units int64, over Batch) {
	over = b
	if b.Costs == nil {
		n = b.N
		if b.Cost > 0 {
			n = min(b.N, max(0, room)/b.Cost)
		}
		over.N -= n
		return n, n * b.Cost, over
	}
	over.Costs = nil
	for _, c := range b.Costs {
		if c <= room {
			room -= c
			units += c
			n++
		} else {
			over.Costs = append(over.Costs, c)
		}
	}
	over.N = int64(len(over.Costs))
	return n, units, over
}

func (r *alternativeRun) record(at allocation.Duration) {
	for i := range r.world.s.Budgets {
		r.rec.Budget(at, i, r.world.truth[i], 0, 0)
		for j := range r.world.s.Regions {
			granted, held, stranded := r.alternative.standing(i, j)
			r.rec.Standing(at, i, j, granted, held, stranded)
		}
	}
}
