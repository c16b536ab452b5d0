package scenario

import (
	"fmt"
	"time"

	"tranche/allocation"
)

// global is one counter for all, in one place.
type global struct {
	*world
	books []book
	lost  allocation.Duration
}

func newGlobal(w *world) global { return global{world: w, books: make([]book, len(w.s.Budgets))} }

// turn begins periods; lost is when the counter's data was lost last.
func (g *global) turn(lost allocation.Duration) {
	for i := range g.books {
		if g.books[i].period != g.periods[i] || lost > g.lost {
			g.books[i] = book{period: g.periods[i]}
		}
	}
	g.lost = lost
}

func (g *global) promised(budget int) int64 { return g.truth[budget] }

func (g *global) room(budget int) int64 { return g.truth[budget] - g.books[budget].spent }

func (g *global) spend(budget, _ int, _, units int64) { g.books[budget].spent += units }

// home is one region in which all budgets live; every other region asks it over the wide-area network.
//
// It assumes one round trip to the home in the path of each request from elsewhere, and none at home; that the home bears
// any load; that a region which is cut off, and every region but the home while the home is, gets no answer and refuses;
// and that nobody takes over when the home's database is lost, since a second home could admit what the first did.
type home struct {
	global
	where int
}

func newHome(w *world) alternative {
	return &home{newGlobal(w), w.s.region(w.s.Alternatives.Home)}
}

func (a *home) name() string { return NameHome }

func (a *home) assumes() string {
	return "All budgets live in " + a.s.Alternatives.Home + ". A request from another region waits for one round trip to it; at home it waits for none. " +
		"The home bears any load. A region that is cut off, and all but the home while the home is, get no answer and refuse. " +
		"When the home's database is lost nobody takes over, and a counter whose data was lost starts again at 0."
}

func (a *home) tick(at allocation.Duration) {
	_, lost := a.timeline.DatabaseUp(a.where, at)
	a.turn(lost)
}

func (a *home) gate(budget, region int) gate {
	up, _ := a.timeline.DatabaseUp(a.where, a.at)
	switch {
	case !a.timeline.Connected(region, a.where, a.at), region != a.where && a.timeline.NodesLost(a.where, a.at) == 1:
		return gate{closed: Unreachable}
	case !up:
		return gate{closed: string(allocation.DatabaseUnavailable)}
	}
	return gate{room: a.room(budget), requests: -1, delay: a.s.roundTrip(region, a.where)}
}

func (a *home) standing(budget, region int) (granted, held, stranded int64) {
	if region != a.where {
		return 0, 0, 0
	}
	return a.truth[budget], max(0, a.room(budget)), 0
}

// row is one database row for each budget that every region updates over the wide-area network.
//
// It assumes that the row stands where the coordinator does, with the same round trips, and is lost when the coordinator
// is; one round trip per request; that one hot row bears RowPerSecond updates, the others wait in line, and a caller gives
// up after RowTimeout; and that a region which cannot reach it refuses.
type row struct {
	global
	backlog []float64 // requests that wait, by budget
	passed  []int64   // in this tick
}

func newRow(w *world) alternative {
	return &row{newGlobal(w), make([]float64, len(w.s.Budgets)), make([]int64, len(w.s.Budgets))}
}

func (a *row) name() string { return NameRow }

func (a *row) assumes() string {
	return fmt.Sprintf("One row for each budget stands where the coordinator does, and is lost with it. Every request waits for one round trip to it. "+
		"It bears %d updates a second; the others wait in line, and a caller gives up after %s. A region that cannot reach it refuses.",
		a.s.Alternatives.RowPerSecond, a.s.Alternatives.RowTimeout)
}

func (a *row) bears() float64 { return float64(a.s.Alternatives.RowPerSecond) * float64(a.s.Tick) }

func (a *row) tick(allocation.Duration) {
	a.turn(0)
	for i := range a.backlog {
		a.backlog[i] = max(0, a.backlog[i]+float64(a.passed[i])-a.bears())
		a.passed[i] = 0
	}
}

func (a *row) gate(budget, region int) gate {
	calls, answers := a.timeline.Reaches(region, a.at)
	if !calls || !answers || !a.timeline.CoordinatorUp(a.at) {
		return gate{closed: Unreachable}
	}
	// What fits before the line would be longer than a caller waits.
	longest := float64(a.s.Alternatives.RowPerSecond) * float64(a.s.Alternatives.RowTimeout)
	pass := max(0, a.bears()+longest-a.backlog[budget]-float64(a.passed[budget]))
	waits := a.backlog[budget] / float64(a.s.Alternatives.RowPerSecond)
	trip := a.s.Regions[region].RoundTrip
	return gate{
		room: a.room(budget), requests: int64(pass),
		delay: trip + time.Duration(waits*1000)*time.Millisecond,
	}
}

func (a *row) spend(budget, region int, requests, units int64) {
	a.global.spend(budget, region, requests, units)
	a.passed[budget] += requests
}

func (a *row) standing(budget, _ int) (granted, held, stranded int64) {
	return 0, 0, 0
}

// possible is no alternative but the yardstick: one perfect counter that everybody reaches at no cost and that never
// breaks. Nothing with a hard cap can admit more of the same demand, but for the order in which requests come.
type possible struct{ global }

func newPossible(w *world) alternative { return &possible{newGlobal(w)} }

func (a *possible) name() string { return NamePossible }

func (a *possible) assumes() string {
	return "The yardstick: one perfect counter that every region reaches at no cost and that never breaks."
}

func (a *possible) tick(allocation.Duration)          { a.turn(0) }
func (a *possible) gate(budget, _ int) gate           { return gate{room: a.room(budget), requests: -1} }
func (a *possible) standing(int, int) (_, _, _ int64) { return 0, 0, 0 }
