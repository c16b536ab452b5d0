package coordinator

import (
	"context"
	"time"
)

// reset notes that everything was read at this revision, by a read that began then.
func (m *Mirror) reset(revision int64, at time.Time, giveUp func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.loaded {
		m.loaded = true
		close(m.ready)
	}
	m.revision, m.readAt, m.reads, m.giveUp = revision, at, nil, giveUp
	m.wake()
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
	m.wake()
}

// count and wake are called with the lock held.
func (m *Mirror) count(r read) {
	if r.at.After(m.readAt) {
		m.readAt = r.at
	}
}

func (m *Mirror) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// readOften makes the reads that the age of the evidence is counted from, until ctx ends.
func (m *Mirror) readOften(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.readOnce(ctx)
		}
	}
}

// readOnce reads one small document, for the revision that comes with it. An error is nobody's to report: the evidence
// ages, and that is what decides.
func (m *Mirror) readOnce(ctx context.Context) {
	m.mu.Lock()
	before := m.revision
	m.mu.Unlock()
	at := m.Now()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if _, revision, err := m.store.Range(ctx, deploymentKey); err == nil {
		m.noteRead(read{revision, at}, before)
	}
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
