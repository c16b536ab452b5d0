package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// StandingDocument is what etcd holds of its own descent: see allocation.Standing. Every transaction that opens a term or
// changes a ledger compares it, so that a replica whose picture is older than a freeze is refused.
type StandingDocument struct {
	Format int `json:"format"`
	allocation.Standing
	Since time.Time `json:"since,omitzero"` // of the freeze
	// Named are the regions that some region knows of: a freeze waits for them, also when etcd lost their registration.
	Named []string `json:"named,omitempty"`
}

// standingOf is the standing of a history that begins.
func standingOf(h allocation.History) StandingDocument {
	return StandingDocument{Format: documentFormat, Standing: allocation.Standing{History: h}}
}

// descent is what is known of etcd's descent. Before the document is there nothing fits it.
func (s *state) descent() allocation.Standing {
	if s.standing == nil {
		return allocation.Standing{}
	}
	return s.standing.value.Standing
}

// frozen says whether the history is frozen.
func (s *state) frozen() bool { return s.descent().Freeze != nil }

// onStanding makes a change rest on the standing; once is enough.
func (s *state) onStanding(c *Change) {
	known := s.standing.known(historyKey)
	if !slices.ContainsFunc(c.Reads, func(i Item) bool { return i.Key == historyKey }) {
		c.Reads = append(c.Reads, known)
	}
}

// enterStanding takes the standing; a freeze or a thaw decides of every ledger whether it may be granted from.
func (s *state) enterStanding(e Event) error {
	s.standing = nil
	s.feed.touch(topic{kind: 'd'})
	return enter(e, func(d *doc[StandingDocument]) {
		s.standing = d
		s.touchTold()
		if d.value.History.Number > s.newest.Number {
			s.newest = d.value.History
		}
	})
}

// awaited are the regions that a freeze still waits for, by name.
func (s *state) awaited() []string {
	if !s.frozen() {
		return nil
	}
	d := s.standing.value
	var missing []string
	for _, name := range s.awaitable(d.Named) {
		if !slices.ContainsFunc(d.Freeze.Stated, func(h allocation.Holder) bool { return h.Region == name }) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// awaitable are the registered regions, and those named by others that were not removed.
func (s *state) awaitable(named []string) []string {
	return mergeNames(s.members().Regions, newNames(s.removed(), named))
}

// removed are the names of regions that were removed and not registered again.
func (s *state) removed() (names []string) {
	for _, r := range s.ordered {
		if r.tomb != nil {
			names = append(names, r.name)
		}
	}
	return names
}

// settled is the ledger fit to be granted from, under the present history. It fails with ErrFrozen.
func (s *Service) settled(l allocation.Ledger) (allocation.Ledger, error) {
	next, _, err := l.Settle(s.state.descent(), s.random.hex(8))
	return next, err
}

// contradiction begins a new history and freezes all that etcd holds. It is decided under the lock; the caller puts the
// document into its change.
func (s *Service) newHistory(why string, heard allocation.History, clock allocation.Instant) StandingDocument {
	next := s.state.standing.value
	if s.state.newest.Number > heard.Number {
		heard = s.state.newest
	}
	latest := max(s.instant(), clock)
	for _, r := range s.state.ordered {
		if !r.contact.At.IsZero() {
			latest = max(latest, allocation.At(r.contact.At.Add(time.Duration(r.contact.SkewMicros)*time.Microsecond)))
		}
	}
	next.Standing = next.Contradict(why, heard, allocation.FurthestOpened(latest), s.random.hex(8))
	if why != coldStart { // which says nothing of whether etcd went back; what is found later of that still counts
		next.Standing = next.LoseReplaced(s.instant())
	}
	next.Since = s.now().UTC()
	return next
}

// freeze begins a new history unless another replica has begun one since `under`.
func (s *Service) freeze(ctx context.Context, who actor, why string, under, heard allocation.History, clock allocation.Instant) error {
	return s.act(ctx, func() (Change, error) {
		if s.state.standing == nil || s.state.deployment == nil {
			return Change{}, errStarting
		}
		if s.state.descent().History != under {
			return Change{}, nil
		}
		return s.freezeChange(who, s.newHistory(why, heard, clock)), nil
	})
}

// lineGap is by how much numbers of the configuration and versions of budgets rise where a new history begins: more than
// were given out in what was lost, so that none is ever given out twice.
const lineGap = 1000

// versionAfter is the version of a budget after one that was made under some history. Each history that began since may have
// had versions of its own, also one of which nothing is left.
func (s *state) versionAfter(version int64, under allocation.History) int64 {
	if now := s.descent().History; now.Number > max(under.Number, 1) {
		return version + 1 + lineGap*(now.Number-max(under.Number, 1))
	}
	return version + 1
}

// beforeHistory is the version that etcd had when a history began.
func (d BudgetDocument) beforeHistory(now allocation.History) int64 {
	if d.Under == now && !d.Lost {
		return d.Before
	}
	return d.Version
}

// freezeChange writes a new history. It is an act that stands in the audit with its reason.
func (s *Service) freezeChange(who actor, next StandingDocument) Change {
	s.log.Error("everything is frozen until every region has stated what it holds", "why", next.Freeze.Why, "history", next.History.String())
	deployment := s.state.deployment.value
	deployment.Config += lineGap * max(1, next.History.Number-s.state.descent().History.Number)
	return Change{
		Reads: []Item{s.state.standing.item, s.state.deployment.item},
		Puts:  []Item{put(historyKey, next), put(deploymentKey, deployment), s.auditLine(who, "history.freeze", next.History.String(), s.state.descent().History, next.Standing)},
	}
}

// lostByEtcd answers a call that knows what etcd never had: with the new history, and nothing else.
func (s *Service) lostByEtcd(ctx context.Context, from string, call allocation.SyncCall, v verdict) (allocation.SyncAnswer, error) {
	s.metrics.refusals.Inc()
	why := fmt.Sprintf("etcd lost history: region %s says so: %s", call.Region, v.detail)
	clock := allocation.At(time.UnixMicro(call.Clock))
	if err := s.freeze(ctx, nodeOf(call, from), why, v.under, call.History, clock); err != nil {
		return allocation.SyncAnswer{}, err
	}
	return s.bare(call), nil
}

// unheard answers a call of an incarnation that etcd never gave out: etcd lost history. What that incarnation holds nobody
// can state, so it is lost, and its owner is told to ask for another one.
func (s *Service) unheard(ctx context.Context, from string, call allocation.SyncCall, v verdict) (allocation.SyncAnswer, error) {
	s.metrics.refusals.Inc()
	err := s.act(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		if r == nil || r.doc == nil || s.state.standing == nil {
			return Change{}, notFound("region", call.Region)
		}
		if s.judge(r, call).claim != allocation.ClaimUnheard {
			return Change{}, nil // another replica has done it
		}
		next, change := s.state.standing.value, Change{Reads: []Item{s.state.standing.item}}
		if next.Freeze == nil {
			next = s.newHistory(fmt.Sprintf("etcd lost history: region %s says so: %s", r.name, v.detail), call.History, allocation.At(time.UnixMicro(call.Clock)))
			change = s.freezeChange(nodeOf(call, from), next)
			change.Puts = change.Puts[1:]
		}
		next.Standing = next.Lose(allocation.Holder{Region: r.name, Incarnation: call.Incarnation})
		doc := r.doc.value.with(r.doc.value.residence().Heard(call.Incarnation))
		change.Reads = append(change.Reads, r.doc.item)
		change.Puts = append(change.Puts, put(historyKey, next), put(regionKey(r.name), doc),
			s.auditLine(nodeOf(call, from), "region.unheard", r.name, nil, allocation.Holder{Region: r.name, Incarnation: call.Incarnation}))
		return change, nil
	})
	if err != nil {
		return allocation.SyncAnswer{}, err
	}
	a := s.bare(call)
	// No incarnation is named: where the region started over in what was lost, the recorded one is a former one to its owner,
	// who hears nothing of what is said to that.
	a.Refusal, a.Detail, a.Incarnation = v.refusal, v.detail, ""
	return a, nil
}

// bare is an answer that says which history counts, and nothing else of weight. It is to the incarnation that called, whichever
// is recorded: its owner must hear of the history before anything that it says can count.
func (s *Service) bare(call allocation.SyncCall) allocation.SyncAnswer {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	a := s.baseAnswer(s.state.regions[call.Region])
	a.Config, a.More, a.Incarnation = min(call.Config, s.state.deployment.value.Config), true, call.Incarnation
	return a
}
