package scenario

import (
	"fmt"
	"slices"

	"tranche/allocation"
)

// local is what the static split and the later counters have in common: a counter in each region, in its database, which
// starts anew with each period. It stands still while the database is lost, and starts at 0 if its data was.
type local struct {
	*world
	books  [][]book // by budget and region
	resets []allocation.Duration
}

func newLocal(w *world) local {
	l := local{world: w, resets: make([]allocation.Duration, len(w.s.Regions))}
	for range w.s.Budgets {
		l.books = append(l.books, make([]book, len(w.s.Regions)))
	}
	return l
}

func (l *local) promised(budget int) int64 { return slices.Max(l.limits[budget]) }

func (l *local) turn() {
	for r := range l.s.Regions {
		_, lost := l.timeline.DatabaseUp(r, l.at)
		for i := range l.books {
			b := &l.books[i][r]
			if b.period != l.periods[i] || lost > l.resets[r] {
				*b = book{period: l.periods[i]}
			}
		}
		l.resets[r] = lost
	}
}

// static is a split that nobody moves: each region has a fixed part of the limit, in a counter of its own.
//
// It assumes equal parts, or those of static_weights; that parts are set by configuration, so that a changed limit reaches
// a region as soon as it is connected; and that a counter whose database lost its data starts again at 0, since nothing
// else knows what was spent: it may then admit its part a second time.
type static struct {
	local
	weights map[string]int64
	last    [][]book // by budget and region: as seen before the region was cut off
}

func newStatic(w *world) alternative {
	weights := w.s.Alternatives.StaticWeights
	if weights == nil {
		weights = map[string]int64{}
		for _, r := range w.s.Regions {
			weights[r.Name] = 1
		}
	}
	a := &static{local: newLocal(w), weights: weights}
	a.last = newLocal(w).books
	return a
}

func (a *static) name() string { return NameStatic }

func (a *static) assumes() string {
	parts := "equal parts"
	if a.s.Alternatives.StaticWeights != nil {
		parts = "the parts of static_weights"
	}
	return "Each region has a fixed part of the limit (" + parts + ") in a counter of its own, which nobody moves. " +
		"A changed limit reaches a region as soon as it is connected. A counter whose database lost its data starts again at 0. " +
		"What was last seen to be left in a part is counted as stranded while its region is cut off or its database is lost; it is of no use to the others at any other time either."
}

func (a *static) tick(allocation.Duration) { a.turn() }

func (a *static) part(budget, region int) int64 {
	return allocation.SplitFixed(a.limits[budget][region], a.weights)[a.s.Regions[region].Name]
}

func (a *static) gate(budget, region int) gate {
	if up, _ := a.timeline.DatabaseUp(region, a.at); !up {
		return gate{closed: string(allocation.DatabaseUnavailable)}
	}
	return gate{room: a.part(budget, region) - a.books[budget][region].spent, requests: -1}
}

func (a *static) spend(budget, region int, _, units int64) { a.books[budget][region].spent += units }

// standing counts what is stranded as Tranche does: as it was last seen, and from the next period on the whole part.
func (a *static) standing(budget, region int) (granted, held, stranded int64) {
	granted = a.part(budget, region)
	now, last := a.books[budget][region], &a.last[budget][region]
	held = max(0, granted-now.spent)
	if up, _ := a.timeline.DatabaseUp(region, a.at); up && !a.cutOff(region) {
		*last = now
		return granted, held, 0
	}
	if last.period != now.period {
		*last = book{period: now.period}
	}
	return granted, held, max(0, granted-last.spent)
}

// syncLater is counters that synchronize later: each region admits against its own count and what it last heard of the
// others, and counts go round every SyncEvery.
//
// It assumes that a count arrives at once when it is sent, which flatters it; that a region which hears nothing goes on
// with the last it heard, since to stop would be to give up what the design is for; and that a region whose database is
// lost admits nothing until it is back. What is admitted above the limit is its price: up to the whole limit per region
// and period while they do not hear each other.
type syncLater struct {
	local
	heard [][][]book // by budget, listener and speaker
	next  allocation.Duration
}

func newLater(w *world) alternative {
	a := &syncLater{local: newLocal(w)}
	for range w.s.Budgets {
		var of [][]book
		for range w.s.Regions {
			of = append(of, make([]book, len(w.s.Regions)))
		}
		a.heard = append(a.heard, of)
	}
	return a
}

func (a *syncLater) name() string { return NameLater }

func (a *syncLater) assumes() string {
	return fmt.Sprintf("Each region admits against its own count and what it last heard of the others; counts go round every %s and arrive at once. "+
		"A region that hears nothing goes on with what it last heard. While regions do not hear each other, each may admit up to the whole limit.",
		a.s.Alternatives.SyncEvery)
}

func (a *syncLater) tick(at allocation.Duration) {
	a.turn()
	if at < a.next {
		return
	}
	a.next = at + max(a.s.Alternatives.SyncEvery, a.s.Tick)
	for i := range a.books {
		for to := range a.s.Regions {
			for from := range a.s.Regions {
				up, _ := a.timeline.DatabaseUp(from, at)
				if to != from && up && a.timeline.Hears(from, to, at) {
					a.heard[i][to][from] = a.books[i][from]
				}
			}
		}
	}
}

func (a *syncLater) room(budget, region int) int64 {
	room := a.limits[budget][region] - a.books[budget][region].spent
	for from, h := range a.heard[budget][region] {
		if from != region && h.period == a.periods[budget] {
			room -= h.spent
		}
	}
	return room
}

func (a *syncLater) gate(budget, region int) gate {
	if up, _ := a.timeline.DatabaseUp(region, a.at); !up {
		return gate{closed: string(allocation.DatabaseUnavailable)}
	}
	return gate{room: a.room(budget, region), requests: -1}
}

func (a *syncLater) spend(budget, region int, _, units int64) { a.books[budget][region].spent += units }

func (a *syncLater) standing(budget, region int) (granted, held, stranded int64) {
	return a.limits[budget][region], max(0, a.room(budget, region)), 0
}
