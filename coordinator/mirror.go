package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

const (
	// readEvery is how often a mirror asks the store how far it is; it is most of the age of the evidence.
	readEvery = time.Second
	// readTimeout bounds that read. One that took longer says little anyhow.
	readTimeout = 2 * time.Second
	// loadTimeout bounds the read of everything. Each request of it is bounded by the store.
	loadTimeout = 5 * time.Minute
	// maxReads is how many reads wait until the mirror has got as far.
	maxReads = 64
	// stallAfter is how long a read may wait for a watch that says nothing, before the watch is given up.
	stallAfter = 10 * time.Second
	// Waits between two attempts to follow the store.
	mirrorFirstWait = 100 * time.Millisecond
	mirrorMaxWait   = 5 * time.Second
)

// Reasons of our own to read everything again.
var (
	errWentBack = errors.New("the store is at an older revision than before: it was restored or is another one")
	errReread   = errors.New("the store may hold another line of history: everything is read again")
	errStalled  = errors.New("the watch is behind a read for too long")
)

// Mirror is this process's copy of everything below Root. It says for every answer how old the evidence is: not when an
// event came, since nothing may have happened, but when the store was last known to hold nothing newer.
//
//	Run ──▶ Range all ──▶ apply(reset) ──▶ Watch ──▶ apply, apply, …        revision 41, 42, 43
//	  │        ▲                             │
//	  │        └── compacted, failed, stalled, went back
//	  └──▶ every second: a linearizable read, begun at 12:00:07.1, says revision 43
//	         the mirror has 43 ─▶ it is as new as 12:00:07.1
//	         the mirror has 42 ─▶ … as soon as 43 comes, by an event or as progress
//
// Without a quorum the reads fail and the age grows, whatever the watch says or does not say.
type Mirror struct {
	Runtime Runtime      // set before Run
	Log     hclog.Logger // set before Run; hears when the mirror must read everything again

	store Store
	apply func(events []Event, revision int64, reset bool)

	mu       sync.Mutex // never held across a call of the store or of apply
	loaded   bool
	ended    bool
	revision int64       // applied up to here
	readAt   time.Time   // start of the latest read that the mirror is as new as
	reads    []read      // those that it is not yet as new as, oldest first
	waiting  waiters     // for revision to rise, or for the end
	awaited  int64       // the highest revision that one of them may wait for
	begun    int         // reads that were begun
	latest   answered    // the read that was answered last
	resets   int         // how often everything was read
	giveUp   func(error) // ends the watch under way
	standing Item        // what the mirror shows of etcd's descent: see mirror_descent.go
}

type read struct {
	revision int64
	at       time.Time
}

// answered is what a read said; they are numbered as they were begun.
type answered struct {
	number   int
	revision int64
}

// NewMirror makes a mirror of the store. One goroutine calls apply, in the order of the revisions; with reset, events are
// all documents that there are, and what was applied before is void. Apply must not wait for the mirror.
func NewMirror(store Store, apply func(events []Event, revision int64, reset bool)) *Mirror {
	return &Mirror{
		Runtime: Real{}, Log: hclog.NewNullLogger(),
		store: store, apply: apply,
		giveUp: func(error) {},
	}
}

// Ready says whether everything was read once. WaitFor with revision 0 waits for that.
func (m *Mirror) Ready() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loaded
}

// Evidence says that all changes up to revision are applied, and that they were all there were when a read of the store
// began at readAt. Before the first load both are zero.
func (m *Mirror) Evidence() (revision int64, readAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, m.readAt
}

// WaitFor returns once the mirror shows at least the revision, such as that of an own commit. In a store that went back to
// before it that may never be, if nobody writes until it is: then the wait ends with an error, once a read says so.
func (m *Mirror) WaitFor(ctx context.Context, revision int64) error {
	changed := m.Runtime.NewSignal()
	defer m.leave(changed)
	since := m.readsBegun()
	for {
		reached, back, ended := m.look(revision, since, changed)
		switch {
		case reached:
			return nil
		case back:
			return fmt.Errorf("wait for revision %d: %w", revision, errWentBack)
		case ended:
			return fmt.Errorf("wait for revision %d: the mirror has ended", revision)
		case ctx.Err() != nil:
			return fmt.Errorf("wait for revision %d: %w", revision, ctx.Err())
		}
		changed.Wait(ctx)
	}
}

// look says whether the mirror shows the revision, or a read that began since then says that the store does not have it; if
// neither, the next change notifies the signal. A read from before says nothing: the revision may be of a later write.
func (m *Mirror) look(revision int64, since int, changed Signal) (reached, back, ended bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached = m.loaded && m.revision >= revision
	back = m.latest.number > since && m.latest.revision < revision
	if !reached && !back && !m.ended {
		m.waiting.add(changed)
		m.awaited = max(m.awaited, revision)
	}
	return reached, back, m.ended
}

func (m *Mirror) leave(changed Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting.drop(changed)
}

// Run keeps the mirror until ctx ends, then returns nil.
func (m *Mirror) Run(ctx context.Context) error {
	defer m.end()
	all := newParts(m.Runtime)
	all.start("mirror-reads", func() { m.readOften(ctx) })
	defer all.wait()
	pause := mirrorFirstWait
	for {
		loaded, err := m.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if loaded {
			pause = mirrorFirstWait
		}
		m.Log.Warn("mirror reads everything again", "error", err)
		m.Runtime.Sleep(ctx, pause)
		if ctx.Err() != nil {
			return nil
		}
		pause = min(2*pause, mirrorMaxWait)
	}
}

// follow loads everything and then applies the changes, until the watch ends for whatever reason.
func (m *Mirror) follow(ctx context.Context) (loaded bool, err error) {
	started := m.Runtime.Now()
	items, revision, err := m.load(ctx)
	if err != nil {
		return false, err
	}
	events := make([]Event, len(items))
	for i, item := range items {
		events[i].Item = item
	}
	m.apply(events, revision, true)
	m.descends(events, true)
	// The watch's end is made before reset shows its revision, so that a read cannot give up a watch of before.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	m.reset(revision, started, giveUp)
	err = m.store.Watch(ctx, Root, revision, func(events []Event, revision int64) {
		if len(events) > 0 {
			m.apply(events, revision, false)
			if m.descends(events, false) {
				giveUp(errReread)
			}
		}
		m.advance(revision)
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return true, err
}

func (m *Mirror) load(ctx context.Context) ([]Item, int64, error) {
	ctx, cancel := m.Runtime.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return m.store.Range(ctx, Root)
}
