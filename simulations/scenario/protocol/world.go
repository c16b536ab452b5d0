package protocol

import (
	"container/heap"
	"fmt"
	"time"

	"tranche/allocation"
)

// Defaults of a Config, as the real parts have them.
const (
	DefaultSyncEvery   = time.Second
	DefaultUnreachable = 10 * time.Second
)

// Region is one region of a Config.
type Region struct {
	Name      string
	RoundTrip time.Duration // to the coordinator
}

// Faults says what works at a moment, in whole seconds since the start.
type Faults interface {
	Reaches(region int, at allocation.Duration) (calls, answers bool)
	CoordinatorUp(at allocation.Duration) bool
	DatabaseUp(region int, at allocation.Duration) (up bool, lost allocation.Duration)
}

// Config describes a World.
type Config struct {
	Start       allocation.Instant
	Regions     []Region
	Budgets     []allocation.Budget
	SyncEvery   time.Duration // between two calls of a region; 0: DefaultSyncEvery
	Unreachable time.Duration // a region that was not heard for longer cannot be asked; 0: DefaultUnreachable
	Faults      Faults        // nil: none
}

// World is a coordinator and its regions. It is not safe for concurrent use.
type World struct {
	cfg         Config
	now         int64 // Unix microseconds
	coordinator *coordinator
	owners      []*Owner
	queue       events
	sequence    int64
	err         error
}

// New starts a world at cfg.Start in which every region has joined, and holds what was granted to it.
func New(cfg Config) *World {
	if cfg.SyncEvery == 0 {
		cfg.SyncEvery = DefaultSyncEvery
	}
	if cfg.Unreachable == 0 {
		cfg.Unreachable = DefaultUnreachable
	}
	w := &World{cfg: cfg, now: int64(cfg.Start) * micros}
	w.coordinator = newCoordinator(w)
	for i, r := range cfg.Regions {
		w.owners = append(w.owners, newOwner(w, i, r))
	}
	w.coordinator.tick()
	for i := range w.owners {
		o := w.owners[i]
		o.take(w.coordinator.answer(o.call()), w.now)
		w.every(w.now, int64(cfg.SyncEvery/time.Microsecond), o.sync)
	}
	w.every(w.now, max(micros, int64(cfg.SyncEvery/time.Microsecond)), w.background)
	return w
}

// micros is how many microseconds a second has.
const micros = 1_000_000

// Owner is the owner of region i.
func (w *World) Owner(i int) *Owner { return w.owners[i] }

// Err is the first broken invariant, or nil.
func (w *World) Err() error { return w.err }

func (w *World) violated(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %s: "+format, append([]any{w.instant()}, args...)...)
	}
}

func (w *World) instant() allocation.Instant { return allocation.Instant(w.now / micros) }

// at is the time since the start, for Faults.
func (w *World) at() allocation.Duration { return allocation.Duration(w.instant() - w.cfg.Start) }

// Advance delivers everything that is due before `to`, or at it.
func (w *World) Advance(to allocation.Instant) {
	end := int64(to) * micros
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = end
}

// background is what the coordinator does by itself each second, or as often as it is called, while it is there.
func (w *World) background() {
	if w.coordinatorUp() {
		w.coordinator.tick()
	} else {
		w.coordinator.since = w.now
	}
}

func (w *World) coordinatorUp() bool {
	return w.cfg.Faults == nil || w.cfg.Faults.CoordinatorUp(w.at())
}

func (w *World) reaches(region int) (calls, answers bool) {
	if w.cfg.Faults == nil {
		return true, true
	}
	return w.cfg.Faults.Reaches(region, w.at())
}

func (w *World) databaseUp(region int) (up bool, lost allocation.Duration) {
	if w.cfg.Faults == nil {
		return true, 0
	}
	return w.cfg.Faults.DatabaseUp(region, w.at())
}

// after runs a step later; steps of one instant run in the order in which they were asked for.
func (w *World) after(micros int64, do func()) { w.push(w.now+micros, do) }

func (w *World) push(at int64, do func()) {
	w.sequence++
	heap.Push(&w.queue, event{at: at, sequence: w.sequence, do: do})
}

// every runs a step again and again, first one interval after from.
func (w *World) every(from, interval int64, do func()) {
	w.push(from+interval, func() {
		do()
		w.every(w.now, interval, do)
	})
}

type event struct {
	at, sequence int64
	do           func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].sequence < e[j].sequence
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*e = old[:len(old)-1]
	return last
}
