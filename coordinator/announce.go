package coordinator

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// A region is granted nothing before another one, that has an incarnation, has said that it knows of it. An etcd that goes back
// to before the region was registered does not know of it, and would grant what it holds once more: the freeze waits for it
// only if somebody names it.
//
//	registered ──calls──▶ incarnation given out ──an earlier region names it──▶ confirmed: ledgers grant to it
//
// The first region has nobody before it, and needs nobody.

const (
	// announcePoll and announceHeld are how often, and for how long, a call of a region that nobody knows yet looks again.
	announcePoll = 100 * time.Millisecond
	announceHeld = time.Second
)

// announced says whether a region may be granted to, as far as others have to know of it.
func (s *state) announced(r *region) bool {
	earlier := false
	for _, o := range s.ordered {
		if _, holds := o.holder(); o == r || !holds {
			continue
		}
		if o.contact.Incarnation == o.doc.value.Incarnation && slices.Contains(o.contact.Regions, r.name) {
			return true
		}
		earlier = true
	}
	return !earlier
}

// unannounced says whether the region waits for that.
func (s *state) unannounced(r *region) bool {
	d := r.doc.value
	return d.Incarnation != "" && !d.Confirmed && !s.announced(r)
}

// tellNames wakes the calls of all regions: one of another name is registered, and they are to hear of it.
func (s *state) tellNames() {
	for _, r := range s.ordered {
		r.wakeUp()
	}
}

// awaitAnnounced waits for another region to name this one. If none does meanwhile, the call is answered, and says nothing of
// shares: the region calls again.
func (s *Service) awaitAnnounced(ctx context.Context, call allocation.SyncCall) (announced bool) {
	for waited := time.Duration(0); ; waited += announcePoll {
		s.state.mu.Lock()
		r := s.state.regions[call.Region]
		announced = r == nil || r.doc == nil || s.state.announced(r)
		s.state.mu.Unlock()
		if announced || waited >= announceHeld || ctx.Err() != nil {
			return announced
		}
		s.runtime.Sleep(ctx, announcePoll)
	}
}

// notYet answers a region that nobody knows yet: it has its incarnation, and is told nothing else of weight.
func (s *Service) notYet(call allocation.SyncCall) allocation.SyncAnswer {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	a := s.baseAnswer(s.state.regions[call.Region])
	a.Config = min(call.Config, s.state.deployment.value.Config)
	return a
}
