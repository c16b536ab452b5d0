package coordinator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of the wait for a change to be enforced.
const (
	maxEnforcedWait = 10 * time.Second
	maxBounds       = 5   // budgets that are named as a bound of an unreachable region
	keptReached     = 200 // of a region
)

// EnforcedAnswer says where a change of keys, blocks or other documents is enforced. A region enforces it as soon as its
// owner has stored it: every batch of every node reads what the owner stored since its last one, before it decides.
type EnforcedAnswer struct {
	Number  int64            `json:"number"`
	Changed *time.Time       `json:"changed,omitempty"`
	All     bool             `json:"all"` // every registered region enforces it
	Regions []EnforcedRegion `json:"regions"`
}

// EnforcedRegion is one region. Unreachable ones may go on for as long as they hold permits.
type EnforcedRegion struct {
	Region   string  `json:"region"`
	Enforced bool    `json:"enforced"`
	AfterMS  *int64  `json:"after_ms,omitempty"` // from the change to the call that showed it; absent: not seen by this replica
	Cause    string  `json:"cause,omitempty"`    // why it is not: waiting, unreachable, never called
	AtMost   []Bound `json:"at_most,omitempty"`  // what it may still spend meanwhile, the tightest first; empty: no plain budget bounds it
}

// Bound is what a region holds of one budget, that all requests in question are charged to.
type Bound struct {
	Budget string             `json:"budget"`
	Unit   string             `json:"unit"`
	Now    int64              `json:"now"`   // in the running period
	Ahead  int64              `json:"ahead"` // in the periods after it, of the opened terms
	Until  allocation.Instant `json:"until"` // the end of these terms
}

// reached is when a region's owner was seen to have stored documents through a number.
type reached struct {
	number int64
	at     time.Time
}

// noteReached notes through which number a contact shows documents.
func (s *state) noteReached(r *region) {
	c := r.contact
	if n := len(r.reached); n > 0 && r.reached[n-1].number >= c.Documents {
		return
	}
	r.reached = append(r.reached, reached{c.Documents, c.At})
	r.reached = r.reached[max(0, len(r.reached)-keptReached):]
	s.enforcing.wake()
}

func (r *region) reachedAt(number int64) (time.Time, bool) {
	i, _ := slices.BinarySearchFunc(r.reached, number, func(x reached, n int64) int { return cmp.Compare(x.number, n) })
	if i == len(r.reached) || i == 0 && len(r.reached) == keptReached {
		return time.Time{}, false
	}
	return r.reached[i].at, true
}

// enforced waits until every region in contact enforces a number, at most for a while, and says where it is. Labels are
// those of the requests in question, for the bounds.
func (s *Service) enforced(ctx context.Context, number int64, labels allocation.Labels, wait time.Duration) EnforcedAnswer {
	held, cancel := s.runtime.WithTimeout(ctx, min(wait, maxEnforcedWait))
	defer cancel()
	news := s.runtime.NewSignal()
	defer func() {
		s.state.mu.Lock()
		s.state.enforcing.drop(news)
		s.state.mu.Unlock()
	}()
	for {
		answer, waits := s.lookEnforced(number, labels, news)
		if !waits || held.Err() != nil {
			return answer
		}
		news.Wait(held)
	}
}

// lookEnforced says whether a region in contact is still to enforce it; then the next contact notifies news.
func (s *Service) lookEnforced(number int64, labels allocation.Labels, news Signal) (a EnforcedAnswer, waits bool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	a = EnforcedAnswer{Number: number, All: true, Regions: []EnforcedRegion{}}
	for _, c := range s.state.documentChanges {
		if d := s.state.documents[c.ref]; c.number == number && d.value.Number == number {
			a.Changed = &d.value.Changed
		}
	}
	now := s.now()
	for _, r := range s.state.ordered {
		if r.doc == nil {
			continue
		}
		e := EnforcedRegion{Region: r.name, Enforced: r.contact.Documents >= number && r.contact.Incarnation != ""}
		inContact := r.inContact(now, s.config.ReportUnreachableAfter)
		switch at, seen := r.reachedAt(number); {
		case e.Enforced && seen && a.Changed != nil:
			after := max(0, at.Sub(*a.Changed).Milliseconds())
			e.AfterMS = &after
		case e.Enforced:
		case r.contact.Incarnation == "":
			e.Cause = "never called"
		case inContact:
			e.Cause, waits = "waiting", true
		default:
			e.Cause, e.AtMost = CauseUnreachable, s.bounds(r, labels, now)
		}
		a.All = a.All && e.Enforced
		a.Regions = append(a.Regions, e)
	}
	if waits {
		s.state.enforcing.add(news)
	}
	return a, waits
}

// bounds are what a region holds of the budgets that every request with these labels is charged to.
func (s *Service) bounds(r *region, labels allocation.Labels, now time.Time) (list []Bound) {
	h, ok := r.holder()
	if !ok {
		return nil
	}
	for _, name := range s.state.names {
		b := s.state.budgets[name].value
		if b.Deleted || b.Budget.IsTemplate() || !within(b.Budget.Match, labels) || b.Budget.EnforcementOf(allocation.Request{}, allocation.At(now)) != allocation.Enforce {
			continue
		}
		line, ok := s.lineIf(name, h, now)
		if !ok {
			continue
		}
		bound := Bound{Budget: name, Unit: b.Budget.Unit, Now: line.Exposed, Until: line.Period.End}
		if line.Ahead != nil {
			bound.Ahead, bound.Until = line.Ahead.Exposed, line.Ahead.Until
		}
		list = append(list, bound)
	}
	slices.SortFunc(list, func(a, b Bound) int { return cmp.Or(cmp.Compare(a.Now, b.Now), cmp.Compare(a.Budget, b.Budget)) })
	return list[:min(len(list), maxBounds)]
}

// within says whether a budget that asks for some labels is charged by every request that has these.
func within(match, labels map[string]string) bool {
	for name, value := range match {
		if labels[name] != value {
			return false
		}
	}
	return true
}
