package regional

import (
	"errors"
	"sync"
	"time"

	"tranche/allocation"
)

// syncState is what is known of the contact with the coordinator.
type syncState struct {
	mu          sync.Mutex
	loaded      Loaded // the owner's row as last read; without lists
	last        time.Time
	err         string
	stranger    bool      // the coordinator does not know the region's token
	coordinator time.Time // the coordinator's clock at the last answer
	draining    bool
	elsewhere   map[string]allocation.Elsewhere // by budget
}

// result notes how a call ended, and says in words what that changed, if anything.
func (s *syncState) result(now time.Time, err error) (change string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, ErrTokenUnknown) && !s.stranger:
		s.stranger = true
		change = "the coordinator does not know this region's token: the region goes on with what its terms cover, and gets nothing more"
	case err != nil && (s.err == "" || s.last.IsZero() && s.err != err.Error()):
		change = "out of contact with the coordinator: the region goes on with what its terms cover"
	case err == nil && (s.err != "" || s.last.IsZero()):
		change = "in contact with the coordinator"
	}
	if err != nil {
		s.err = err.Error()
		return change
	}
	s.last, s.err, s.stranger = now, "", false
	return change
}

// answered notes what an answer said that the owner does not store.
func (s *syncState) answered(a allocation.SyncAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.coordinator, s.draining = time.UnixMicro(a.Now), a.Draining
}

// note keeps the owner's row as it was just read.
func (s *syncState) note(l *Loaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := *l
	row.Budgets, row.Terms, row.Gone, row.Elsewhere = nil, nil, nil, nil
	row.OpenReservations, row.OldestReservation = s.loaded.OpenReservations, s.loaded.OldestReservation
	row.OldestSnapshot = s.loaded.OldestSnapshot
	s.loaded = row
}

// noteRest keeps what only a Load reads.
func (s *syncState) noteRest(l *Loaded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded.OpenReservations, s.loaded.OldestReservation = l.OpenReservations, l.OldestReservation
	s.loaded.OldestSnapshot = l.OldestSnapshot
	s.elsewhere = make(map[string]allocation.Elsewhere, len(l.Elsewhere))
	for _, e := range l.Elsewhere {
		s.elsewhere[e.Budget] = e
	}
}

// closable is the instant up to which periods may be closed: the coordinator's last time. Never while cut off, since
// then nobody outside says what time it is.
func (s *syncState) closable(now time.Time) (allocation.Instant, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != "" || s.last.IsZero() || now.Sub(s.last) > 5*time.Second {
		return 0, false
	}
	return allocation.At(s.coordinator), true
}

// elsewhere is what the coordinator last said of permits outside the region, by budget.
func (n *Node) elsewhere() map[string]allocation.Elsewhere {
	n.synced.mu.Lock()
	defer n.synced.mu.Unlock()
	return n.synced.elsewhere
}
