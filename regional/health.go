package regional

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"tranche/allocation"
)

// clock is the node's idea of its owner's database clock: what it last read there, gone on by the local clock. It only
// chooses which rows to lock; the database's own clock, read after the locks, decides (invariant 10).
type clock struct {
	local func() time.Time
	ahead atomic.Int64 // microseconds that the database is ahead
}

func (c *clock) set(now int64) { c.ahead.Store(now - c.local().UnixMicro()) }
func (c *clock) now() int64    { return c.local().UnixMicro() + c.ahead.Load() }
func (c *clock) instant() allocation.Instant {
	return allocation.At(time.UnixMicro(c.now()))
}

// Bounds of what a lane remembers of its pace.
const (
	paceMost   = 100 * time.Millisecond // one slow spell must not refuse everything for ever
	paceHalved = 100 * time.Millisecond // without a batch, a lane believes half of what it knew
)

// estimate is a moving mean of how long a batch takes. It fades while there is none: a lane that was idle cannot know that
// it is still slow, and a slow first commit says little about the next one, so it tries rather than refuse.
type estimate struct {
	mean time.Duration
	at   time.Time // of the last batch's end
}

func (e *estimate) add(d time.Duration, now time.Time) {
	before := e.typical(now.Add(-d))
	e.at = now
	if before == 0 {
		e.mean = min(d, paceMost)
		return
	}
	e.mean = min(before+(d-before)/8, paceMost)
}

// typical is what a batch must be given at least.
func (e *estimate) typical(now time.Time) time.Duration {
	idle := max(0, now.Sub(e.at))
	halvings := idle / paceHalved
	if halvings >= 10 {
		return 0
	}
	mean := e.mean >> halvings
	return mean - mean/2*(idle%paceHalved)/paceHalved
}

// admitsNothing begins the reasons of a node that cannot admit.
const admitsNothing = "admits nothing: "

// readyWithin is how old the last commit may be for the node to be ready.
const readyWithin = 3 * time.Second

// health is what the node knows of its database: readiness follows real commits, not a ping.
type health struct {
	mu       sync.Mutex
	started  time.Time
	commitAt time.Time
	failedAt time.Time
	failure  string
	setting  string
	log      hclog.Logger
}

func (h *health) start(now time.Time, log hclog.Logger) { h.started, h.log = now, log }

func (h *health) committed(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure != "" {
		h.log.Info("admissions commit again", "after", now.Sub(h.failedAt).Round(time.Millisecond))
	}
	h.commitAt, h.failure = now, ""
}

// failed notes that the database could not be used. The first of several is logged; a commit ends them.
func (h *health) failed(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == "" {
		h.failedAt = now
		h.log.Warn("admissions cannot be committed", "error", err)
	}
	h.failure = err.Error()
}

// settings notes which setting of the database, if any, would lose a commit in a crash.
func (h *health) settings(unsafe string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case unsafe != "" && h.setting != unsafe:
		h.log.Error("stop admitting: a commit would not survive a crash", "setting", unsafe)
	case unsafe == "" && h.setting != "":
		h.log.Info("admit again: a commit survives a crash", "setting", h.setting)
	}
	h.setting = unsafe
}

// unsafe is that setting, or empty.
func (h *health) unsafe() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.setting
}

// undecided is the reason of a request that no lane could decide.
func (h *health) undecided() allocation.Reason {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure != "" {
		return allocation.DatabaseUnavailable
	}
	return allocation.Overloaded
}

// detail tells callers more about a reason of the node's own. The database's own words stay with operators.
func (h *health) detail(r allocation.Reason) string {
	switch r {
	case allocation.DatabaseUnavailable:
		return "this attempt charged nothing; try again with the same admission id"
	case allocation.UnsafeSettings:
		return "the database has " + h.unsafe()
	case allocation.OutcomeUnknown:
		return "ask again with the same admission id"
	}
	return ""
}

// last is when a commit last succeeded, and why none has since.
func (h *health) last() (at time.Time, failure string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commitAt, h.failure
}

// ready says whether admissions commit; if not, why, in words.
func (h *health) ready(now time.Time) (bool, []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var why []string
	switch {
	case h.setting != "":
		why = append(why, admitsNothing+h.setting+" would lose commits in a crash")
	case h.failure != "":
		why = append(why, "admissions fail to commit: the last try to reach the database failed") // no address for callers without a token
	case h.commitAt.IsZero():
		why = append(why, "no commit yet")
	case now.Sub(h.commitAt) > readyWithin:
		why = append(why, "no commit for "+now.Sub(h.commitAt).Truncate(time.Second).String())
	}
	return len(why) == 0, why
}
