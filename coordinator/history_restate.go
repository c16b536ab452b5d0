package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
)

// errOwnerLost: the owner states less than the ledger knows for certain that it did.
var errOwnerLost = errors.New("the region's database lost commits")

// forgottenReturn is a mark that no owner holds: the refusal with which it comes leaves no doubt.
var forgottenReturn = allocation.Mark{Writer: "ledger", Count: 1, Value: "return"}

// maxRestateBytes is how large a ledger may grow while regions state what they hold. It may not be refused: what is not in
// it would be granted again.
const maxRestateBytes = 400 << 10

// maxRestatedAct is how many shares one transaction enters: each is a ledger and, at most, a budget.
const maxRestatedAct = 25

func (s *Service) isFrozen() bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.state.frozen()
}

// restate enters what a region holds while all is frozen. Each step is durable before the next, and a crash in between is
// harmless, since saying it again changes nothing:
//
//	the region's configuration number     ours goes above it
//	each share that it holds              into its ledger, which is made anew where etcd lost it
//	that these are all                    into the standing; the last region's thaws it
//
// It says whether all that the call states was entered: what a later statement has overtaken is to be stated again.
func (s *Service) restate(ctx context.Context, call allocation.SyncCall) (all bool, err error) {
	if err := s.overtakeConfig(ctx, max(call.Config, call.DocumentsThrough)); err != nil {
		return false, err
	}
	due, all := s.restated(call)
	h := allocation.Holder{Region: call.Region, Incarnation: call.Incarnation}
	for part := range slices.Chunk(due, maxRestatedAct) {
		for len(part) > 0 {
			if part, err = s.restatePart(ctx, h, call, part); err != nil {
				return false, err
			}
		}
	}
	if !call.All && len(newNames(s.named(), call.Regions)) == 0 {
		return all, nil
	}
	return all, s.statedAll(ctx, h, call)
}

// restated are the shares that a call states as they are stored, but for statements that a later one has overtaken.
func (s *Service) restated(call allocation.SyncCall) (due []allocation.ShareStatement, all bool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	r := s.state.regions[call.Region]
	all = true
	for _, st := range call.Statements {
		if sh := r.shards[st.Shard]; sh != nil && sh.incarnation == call.Incarnation && st.Number < sh.number {
			all = false
			continue
		}
		for _, sh := range st.Shares {
			if sh.Held != nil {
				due = append(due, sh)
			}
		}
	}
	return due, all
}

// overtakeConfig raises the configuration number above one that a region has: numbers never go backward. An owner that heeds
// a newer history is at its beginning; one that an older node serves still has the number of the history before.
func (s *Service) overtakeConfig(ctx context.Context, theirs int64) error {
	s.state.mu.Lock()
	above := s.state.deployment.value.Config >= theirs
	s.state.mu.Unlock()
	if above {
		return nil
	}
	return s.inTurn(ctx, func() (Change, error) {
		_, deployment, raised, err := s.state.raise(func(d *Deployment) { d.Config = max(d.Config, theirs+1) })
		if err != nil || s.state.deployment.value.Config >= theirs {
			return Change{}, err
		}
		return Change{Reads: []Item{deployment}, Puts: []Item{raised}}, nil
	})
}

// restating is a change that enters several shares at once.
type restating struct {
	change  Change
	config  int64 // the configuration number that it leads to
	budgets map[string]*restatedBudget
	known   []Item // ledgers that have what was stated, as far as this replica can tell
	room    actRoom
}

type restatedBudget struct {
	known *doc[BudgetDocument] // nil: etcd lost it
	next  BudgetDocument
}

// restatePart enters several shares in one transaction. If that does not hold all of them, the rest is to be done.
func (s *Service) restatePart(ctx context.Context, h allocation.Holder, call allocation.SyncCall, part []allocation.ShareStatement) (rest []allocation.ShareStatement, err error) {
	err = s.inTurn(ctx, func() (Change, error) {
		from, err := s.mayRestate(call)
		if err != nil {
			return Change{}, err
		}
		w := &restating{config: s.state.deployment.value.Config, budgets: map[string]*restatedBudget{}}
		w.change.Reads = append(w.change.Reads, from)
		rest = nil
		for i, st := range part {
			took, err := s.restateShare(w, h, call, st)
			if err != nil {
				return Change{}, err
			}
			if !took {
				rest = part[i:]
				break
			}
		}
		s.writeRestated(w)
		w.compareKnown(from)
		return w.change, nil
	})
	return rest, err
}

// mayRestate says whether what a call states still counts, and returns the region's document, on which the entry rests. A
// call is judged once, and its parts are entered later, one after the other: meanwhile its incarnation may have been replaced,
// also by another replica, or another history may have begun.
func (s *Service) mayRestate(call allocation.SyncCall) (Item, error) {
	r := s.state.regions[call.Region]
	switch {
	case !s.state.frozen():
		return Item{}, refused("call again", "the ledgers are not frozen any more")
	case s.state.descent().History != call.History:
		return Item{}, refused("call again", "another history began while this call was entered, and it was made under history %s", call.History)
	case r == nil || r.doc == nil || r.doc.value.Incarnation != call.Incarnation:
		return Item{}, refused("call again", "incarnation %s of region %s was replaced while its call was entered", call.Incarnation, call.Region)
	}
	return r.doc.item, nil
}

// restateShare enters one share. The budget goes with it: a version that etcd lost, and how far its terms are opened.
func (s *Service) restateShare(w *restating, h allocation.Holder, call allocation.SyncCall, st allocation.ShareStatement) (took bool, err error) {
	held, ref := *st.Held, allocation.ShareRef{Budget: st.Budget, Term: st.Term}
	if held.Budget != st.Budget || held.Term() != st.Term {
		return false, invalid("statements", fmt.Sprintf("%s, term of %s comes with a share of %s", st.Budget, st.Term, held.Budget), "state each share as it is stored")
	}
	l := s.state.ledgers[ref]
	over := l == nil && (held.Periods.End() <= call.ClosedBefore || s.state.closings[closingKey(st.Budget, st.Term)] != nil)
	if !over {
		base := allocation.RebuildLedger(held, unitOf(s.state.budgets[st.Budget]))
		if l != nil {
			base = l.value
		}
		next, changed, err := base.Reconcile(h, held, st, s.random.hex(8))
		switch {
		case contradicted(err):
			return false, fmt.Errorf("%w: %w", errOwnerLost, err)
		case err != nil:
			return false, invalid("statements", err.Error(), "state runs of the term's own periods, none twice")
		case len(encode(next)) > maxRestateBytes:
			return false, refused("", "the ledger of %s, term of %s, would have more than %d bytes", st.Budget, st.Term, maxRestateBytes)
		case !w.room.takeAnySize(next):
			return false, nil
		case changed || l == nil:
			s.state.addLedger(&w.change, ledgerWrite{before: l, after: next})
		default:
			w.known = append(w.known, l.item)
		}
	}
	s.restateBudget(w, held)
	return true, nil
}

// takeAnySize is take for a ledger that must be written, however large it is: alone, then.
func (r *actRoom) takeAnySize(l allocation.Ledger) bool {
	n := len(encode(l))
	if r.documents > 0 && (r.documents+1 > maxRestatedAct || r.bytes+n > maxActBytes) {
		return false
	}
	r.documents, r.bytes = r.documents+1, r.bytes+n
	return true
}

func unitOf(d *doc[BudgetDocument]) string {
	if d == nil {
		return ""
	}
	return d.value.Budget.Unit
}

// restateBudget takes over what a share says of its budget: a version above ours, with the lower of both limits, and how
// far its terms are opened. Of a budget that etcd lost only the name is known: it is remembered as lost, so that no term
// of it is ever opened twice.
func (s *Service) restateBudget(w *restating, held allocation.Share) {
	b := w.budgets[held.Budget]
	if b == nil {
		b = &restatedBudget{known: s.state.budgets[held.Budget]}
		if b.known != nil {
			b.next = b.known.value
		} else {
			b.next = BudgetDocument{
				Format: documentFormat, Budget: allocation.Budget{Name: held.Budget, Limit: new(int64)}, Deleted: true, Lost: true, Changed: s.now().UTC(),
			}
		}
		w.budgets[held.Budget] = b
	}
	b.next.OpenedThrough = max(b.next.OpenedThrough, held.Periods.End())
	now := s.state.descent().History
	known := b.next.beforeHistory(now)
	switch {
	case held.Version < known || held.Version == known && (b.next.Lost || !saysOtherwise(held, b.next)):
	case b.next.Lost:
		b.next.Version = held.Version // see lostChanges, which names it
	default:
		ours := allocation.ConfiguredBudget{Budget: b.next.Budget, Version: b.next.Version, Deleted: b.next.Deleted}
		theirs := ours
		theirs.Version = held.Version
		theirs.Budget.Limit, _ = latestLimit(held)
		theirs.Budget.Override = nil // of theirs only the limit is known
		both, version := allocation.Stricter(ours, theirs), max(s.state.versionAfter(b.next.Version, b.next.Under), held.Version+lineGap)
		if b.next.Under == now && held.Version < b.next.Version && both.Budget.LimitOrZero() == b.next.Budget.LimitOrZero() {
			break // that is said already
		}
		w.config++
		b.next.Budget, b.next.Version, b.next.Number, b.next.Changed = both.Budget, version, w.config, s.now().UTC()
		b.next.Under, b.next.Before, b.next.LostVersion = now, known, max(b.next.LostVersion, held.Version)
	}
}

// saysOtherwise says whether a share of the same version as a budget is of another one: etcd had gone back, and gave the version
// out a second time before anybody noticed. The stricter of both then counts, under a version of its own, and no ledger takes
// the one for the other.
func saysOtherwise(held allocation.Share, b BudgetDocument) bool {
	if len(held.Entries) == 0 {
		return false
	}
	limit, from := latestLimit(held)
	return *limit != b.Budget.LimitIn(from) || !held.Template && !samePolicy(held.Policy, b.Budget.Allocation)
}

// writeRestated puts the budgets into the change, and the deployment's number if it was raised.
func (s *Service) writeRestated(w *restating) {
	for _, name := range slices.Sorted(maps.Keys(w.budgets)) {
		b, key := w.budgets[name], budgetKey(name)
		w.change.Reads = append(w.change.Reads, b.known.known(key))
		if b.known == nil || b.next.OpenedThrough != b.known.value.OpenedThrough || b.next.Version != b.known.value.Version {
			w.change.Puts = append(w.change.Puts, put(key, b.next))
		}
	}
	if d := s.state.deployment; w.config > d.value.Config {
		next := d.value
		next.Config = w.config
		w.change.Reads, w.change.Puts = append(w.change.Reads, d.item), append(w.change.Puts, put(deploymentKey, next))
		s.log.Warn("etcd lost versions of budgets: the lower limits count", "budgets", strings.Join(slices.Sorted(maps.Keys(w.budgets)), ", "), "history", s.state.descent().History.String())
	}
	s.state.onStanding(&w.change)
}

// compareKnown makes the change rest on the ledgers that are taken to have what was stated. A replica that hears of a new history
// still shows, until it has read everything again, what is of the line that was lost: taken from there it would be a receipt for
// what stands nowhere. If there is nothing to write the region's document is written as it is, so that they are compared at all.
func (w *restating) compareKnown(region Item) {
	w.change.Reads = append(w.change.Reads, w.known...)
	if len(w.change.Puts) == 0 && len(w.known) > 0 {
		w.change.Puts = append(w.change.Puts, Item{Key: region.Key, Value: region.Value})
	}
}

// latestLimit is the limit of the share's last periods, that of its version, and where they begin.
func latestLimit(held allocation.Share) (of *int64, from allocation.Instant) {
	var limit int64
	for _, e := range held.Entries {
		if e.Class == allocation.General && e.From >= from {
			limit, from = e.Limit, e.From
		}
	}
	return &limit, from
}

// named are the regions that the freeze waits for beside the registered ones.
func (s *Service) named() []string {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.standing == nil {
		return nil
	}
	return slices.Concat(s.state.awaitable(s.state.standing.value.Named), s.state.removed())
}

// newNames are those of b that are not among a.
func newNames(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(b), func(n string) bool { return slices.Contains(a, n) })
}

// statedAll enters that the region has stated all that it holds, if it says so, and which regions it knows of. When all have,
// it is over.
func (s *Service) statedAll(ctx context.Context, h allocation.Holder, call allocation.SyncCall) error {
	thawed := false
	err := s.act(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		if thawed = false; !s.state.frozen() || s.state.descent().History != call.History || r == nil || r.doc == nil || r.doc.value.Incarnation != h.Incarnation {
			return Change{}, nil
		}
		next := s.state.standing.value
		next.Named = newNames(s.state.removed(), mergeNames(next.Named, call.Regions))
		change := Change{Reads: []Item{s.state.standing.item, r.doc.item}}
		if call.All {
			next, thawed = s.enterStated(next, h, &change)
		}
		change.Puts = append(change.Puts, put(historyKey, next))
		if slices.Equal(encode(next), s.state.standing.item.Value) {
			return Change{}, nil
		}
		return change, nil
	})
	if err == nil && thawed {
		s.log.Info("every region has stated what it holds: grants go on", "history", call.History.String())
		s.nudgeBackground()
	}
	return err
}
