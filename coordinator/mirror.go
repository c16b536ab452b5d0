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
	// loadTimeout bounds the read of everything.
	loadTimeout = time.Minute
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
	Now func() time.Time // set before Run
	Log hclog.Logger     // set before Run; hears when the mirror must read everything again

	store Store
	apply func(events []Event, revision int64, reset bool)
	ready chan struct{}
	done  chan struct{}

	mu       sync.Mutex // never held across a call of the store or of apply
	loaded   bool
	revision int64         // applied up to here
	readAt   time.Time     // start of the latest read that the mirror is as new as
	reads    []read        // those that it is not yet as new as, oldest first
	changed  chan struct{} // closed and replaced when revision rises
	giveUp   func(error)   // ends the watch under way
}

type read struct {
	revision int64
	at       time.Time
}

// NewMirror makes a mirror of the store. One goroutine calls apply, in the order of the revisions; with reset, events are
// all documents that there are, and what was applied before is void. Apply must not wait for the mirror.
func NewMirror(store Store, apply func(events []Event, revision int64, reset bool)) *Mirror {
	return &Mirror{
		Now: time.Now, Log: hclog.NewNullLogger(),
		store: store, apply: apply,
		ready: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		giveUp: func(error) {},
	}
}

// Ready is closed after the first load.
func (m *Mirror) Ready() <-chan struct{} { return m.ready }

// Evidence says that all changes up to revision are applied, and that they were all there were when a read of the store
// began at readAt. Before the first load both are zero.
func (m *Mirror) Evidence() (revision int64, readAt time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision, m.readAt
}

// WaitFor returns once the mirror shows at least the revision, such as that of an own commit.
func (m *Mirror) WaitFor(ctx context.Context, revision int64) error {
	for {
		m.mu.Lock()
		reached, changed := m.loaded && m.revision >= revision, m.changed
		m.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d: %w", revision, ctx.Err())
		case <-m.done:
			return fmt.Errorf("wait for revision %d: the mirror has ended", revision)
		}
	}
}

// Run keeps the mirror until ctx ends, then returns nil.
func (m *Mirror) Run(ctx context.Context) error {
	defer close(m.done)
	var wait sync.WaitGroup
	wait.Go(func() { m.readOften(ctx) })
	defer wait.Wait()
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
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, mirrorMaxWait)
	}
}

// follow loads everything and then applies the changes, until the watch ends for whatever reason.
func (m *Mirror) follow(ctx context.Context) (loaded bool, err error) {
	started := m.Now()
	items, revision, err := m.load(ctx)
	if err != nil {
		return false, err
	}
	events := make([]Event, len(items))
	for i, item := range items {
		events[i].Item = item
	}
	m.apply(events, revision, true)
	// The watch's end is made before reset shows its revision, so that a read cannot give up a watch of before.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	m.reset(revision, started, giveUp)
	err = m.store.Watch(ctx, Root, revision, func(events []Event, revision int64) {
		if len(events) > 0 {
			m.apply(events, revision, false)
		}
		m.advance(revision)
	})
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return true, err
}

func (m *Mirror) load(ctx context.Context) ([]Item, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return m.store.Range(ctx, Root)
}
