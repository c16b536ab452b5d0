package coordinator

import (
	"context"
	"time"
)

// observeEvery is how often a replica looks for what it has to log.
const observeEvery = time.Second

// observer remembers what a replica has logged, so that each change is logged once:
//
//	etcd     answers ──evidence older than maxEvidenceAge──▶ away ──a read──▶ answers
//	region   calls ──no call for ReportUnreachableAfter──▶ silent ──a call──▶ calls
//	terms    opened ──one is late──▶ late ──all are opened──▶ opened
//
// Every replica logs what it sees. While its picture is old it says nothing of regions: they may call other replicas, and
// it would not know.
type observer struct {
	away   bool                 // etcd does not answer
	lastOf time.Time            // the last read before that
	fresh  time.Time            // since when the picture is fresh without a break; zero: it is not
	silent map[string]time.Time // the last contact of each region that was said to be silent
	late   string               // what was said last of terms that are not opened
}

// transition is a change in what is seen of one region.
type transition struct {
	region string
	silent bool
	since  time.Time // its last contact; of one that calls again, that before its silence
}

func (s *Service) observeOften(ctx context.Context) error {
	o := &observer{silent: map[string]time.Time{}}
	for ctx.Err() == nil {
		s.observe(o)
		s.runtime.Sleep(ctx, observeEvery)
	}
	return nil
}

func (s *Service) observe(o *observer) {
	now := s.now()
	_, at := s.mirror.Evidence()
	switch old := now.Sub(at) > maxEvidenceAge; {
	case old && !o.away:
		o.away, o.lastOf, o.fresh = true, at, time.Time{}
		s.log.Warn("etcd does not answer: nothing can be granted or changed", "since", at.UTC().Format(timeForm))
	case !old && o.away:
		o.away = false
		s.log.Info("etcd answers again", "silent_since", o.lastOf.UTC().Format(timeForm), "for", now.Sub(o.lastOf).Round(time.Second))
	}
	if o.away {
		s.freshSince.Store(0)
		return
	}
	if o.fresh.IsZero() {
		o.fresh = now
	}
	s.freshSince.Store(o.fresh.UnixNano())
	for _, c := range s.transitions(o, now) {
		if c.silent {
			s.log.Warn("region is silent: what it holds is reported as stranded", "region", c.region, "since", c.since.UTC().Format(timeForm))
		} else {
			s.log.Info("region calls again", "region", c.region, "silent_since", c.since.UTC().Format(timeForm), "for", now.Sub(c.since).Round(time.Second))
		}
	}
	s.followClock()
	if now.Sub(o.fresh) >= time.Duration(lateAfter)*time.Second { // what is late after a start is opened in a moment
		s.observeLate(o)
	}
}

// transitions are the changes since the last look, by region. A region is said to be silent only after this replica could
// have seen a call for as long: after its start, or after etcd was away, the last contacts that it knows are old.
func (s *Service) transitions(o *observer, now time.Time) (changes []transition) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for _, r := range s.state.ordered {
		if r.doc == nil || r.doc.value.Incarnation == "" {
			continue
		}
		since, silent := o.silent[r.name]
		switch calls := r.inContact(now, s.config.ReportUnreachableAfter); {
		case calls && silent:
			delete(o.silent, r.name)
			changes = append(changes, transition{region: r.name, since: since})
		case !calls && !silent && now.Sub(o.fresh) >= s.config.ReportUnreachableAfter:
			o.silent[r.name] = r.contact.At
			changes = append(changes, transition{region: r.name, silent: true, since: r.contact.At})
		}
	}
	return changes
}
