package coordinator

import (
	"context"
	"fmt"
	"time"
)

// reset notes that everything was read at this revision, by a read that began then.
func (m *Mirror) reset(revision int64, at time.Time, giveUp func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded, m.revision, m.readAt, m.reads, m.giveUp = true, revision, at, nil, giveUp
	m.resets++
	m.waiting.wake()
}

// advance notes that all changes up to the revision are applied.
func (m *Mirror) advance(revision int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if revision <= m.revision {
		return
	}
	m.revision = revision
	for len(m.reads) > 0 && m.reads[0].revision <= revision {
		m.count(m.reads[0])
		m.reads = m.reads[1:]
	}
	m.waiting.wake()
}

// end notes that nothing is applied any more.
func (m *Mirror) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.waiting.wake()
}

// count is called with the lock held.
func (m *Mirror) count(r read) {
	if r.at.After(m.readAt) {
		m.readAt = r.at
	}
}

// readOften makes the reads that the age of the evidence is counted from, until ctx ends.
func (m *Mirror) readOften(ctx context.Context) {
	m.Runtime.Sleep(ctx, readEvery)
	for ctx.Err() == nil {
		started := m.Runtime.Now()
		m.readOnce(ctx)
		m.Runtime.Sleep(ctx, rest(m.Runtime, started, readEvery))
	}
}

// readOnce reads one small document, for the revision that comes with it. An error is nobody's to report: the evidence
// ages, and that is what decides.
func (m *Mirror) readOnce(ctx context.Context) {
	m.mu.Lock()
	before := m.revision
	m.begun++
	number := m.begun
	m.mu.Unlock()
	at := m.Runtime.Now()
	ctx, cancel := m.Runtime.WithTimeout(ctx, readTimeout)
	defer cancel()
	if items, revision, err := m.store.Range(ctx, historyKey); err == nil {
		m.noteRead(read{revision, at}, before)
		m.noteStanding(items, before)
		m.noteAnswer(answered{number, revision})
	}
}

// noteAnswer wakes those who may wait for a revision that the store does not have.
func (m *Mirror) noteAnswer(a answered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = a
	if a.revision < m.awaited {
		m.awaited = 0
		m.waiting.wake()
	}
}

// readsBegun is how many reads were begun.
func (m *Mirror) readsBegun() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun
}

// noteRead counts a read that began when the mirror was at the revision before.
func (m *Mirror) noteRead(r read, before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.loaded:
	case r.revision < before:
		// What the mirror shows is not what this store holds.
		m.giveUp(errWentBack)
	case r.revision <= m.revision:
		m.count(r)
	default:
		if len(m.reads) > 0 && r.at.Sub(m.reads[0].at) > stallAfter {
			m.giveUp(errStalled)
		}
		if len(m.reads) < maxReads {
			m.reads = append(m.reads, r)
		}
	}
}

// Reread reads everything again, and returns when it is applied. A store that went back with its revision bumped shows no
// sign of it to a watch.
func (m *Mirror) Reread(ctx context.Context) error {
	m.mu.Lock()
	before := m.resets
	m.giveUp(errReread)
	m.mu.Unlock()
	changed := m.Runtime.NewSignal()
	defer m.leave(changed)
	for {
		m.mu.Lock()
		again, ended := m.resets > before, m.ended
		if !again && !ended {
			m.waiting.add(changed)
		}
		m.mu.Unlock()
		switch {
		case again:
			return nil
		case ended:
			return fmt.Errorf("read everything again: the mirror has ended")
		case ctx.Err() != nil:
			return fmt.Errorf("read everything again: %w", ctx.Err())
		}
		changed.Wait(ctx)
	}
}
