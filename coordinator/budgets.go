package coordinator

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

const (
	// matchSteps bounds the search for labels that hit too many budgets; see allocation.MostBudgetsHit.
	matchSteps = 20_000
	// maxBudgets bounds how many names a deployment has, with the deleted ones.
	maxBudgets = 1_000_000
)

// BudgetAnswer is a budget as it stands, or, with DryRun, as it would.
type BudgetAnswer struct {
	Budget        allocation.Budget  `json:"budget"` // with its defaults
	Version       int64              `json:"version"`
	Number        int64              `json:"number"` // the configuration number of the change that made this version
	Deleted       bool               `json:"deleted,omitempty"`
	Changed       time.Time          `json:"changed"`
	OpenedThrough allocation.Instant `json:"opened_through"` // end of the last opened term
	Permits       map[string]int64   `json:"permits"`        // by region, of one period; for a template of one instance
	Counted       string             `json:"counted"`        // whose the limit is: shared, or each caller
	Warnings      []string           `json:"warnings,omitempty"`

	// Of a change only.
	DryRun     bool                `json:"dry_run,omitempty"`
	Preview    *Preview            `json:"preview,omitempty"` // of a dry run: the running period
	Difference []FieldChange       `json:"difference,omitempty"`
	From       allocation.Instant  `json:"from,omitempty"`        // the first period that it counts for
	WindowFrom *allocation.Instant `json:"window_from,omitempty"` // a changed window counts from here
	PolicyFrom *allocation.Instant `json:"policy_from,omitempty"` // a template's changed policy counts from here
	Following  int                 `json:"following,omitempty"`   // ledgers that follow in the background, within moments
}

// condition is what a change rests on: If-Match, If-None-Match, or POST.
type condition struct {
	version int64 // that the caller has seen; 0: none
	create  bool  // there must be none yet
}

func (c condition) check(name string, cur *doc[BudgetDocument]) error {
	exists := cur != nil && !cur.value.Deleted
	switch {
	case c.create && exists:
		return problem(http.StatusConflict, CodeExists, fmt.Sprintf("budget %s exists, at version %d", name, cur.value.Version),
			"change it with PUT and If-Match")
	case c.create:
		return nil
	case !exists:
		return notFound("budget", name)
	case cur.value.Version != c.version:
		return problem(http.StatusPreconditionFailed, CodeVersionStale,
			fmt.Sprintf("budget %s is at version %d, not %d: somebody changed it", name, cur.value.Version, c.version), "read it again and decide anew")
	}
	return nil
}

// changeBudget creates, changes or deletes (b is nil) a budget: its document, the configuration's number, and the ledgers
// of all opened terms, as far as one transaction holds them, change together.
func (s *Service) changeBudget(ctx context.Context, who actor, name string, b *allocation.Budget, on condition, dry bool) (BudgetAnswer, error) {
	var answer BudgetAnswer
	act := s.inTurn
	if dry {
		act = s.act
	}
	err := act(ctx, func() (Change, error) {
		cur := s.state.budgets[name]
		if err := on.check(name, cur); err != nil {
			return Change{}, err
		}
		next := b
		if b != nil {
			kept, err := keepOverride(*b, cur)
			if err != nil {
				return Change{}, err
			}
			if err := checkOverrideWindow(kept, cur); err != nil {
				return Change{}, err
			}
			next = &kept
		}
		plan, err := s.planBudget(name, next, cur)
		if err == nil {
			err = s.checkLoosened(who, &plan, cur)
		}
		if err != nil {
			return Change{}, err
		}
		reads, puts := s.keepCompensation(&plan, cur)
		answer = plan.answer
		if dry {
			answer.DryRun, answer.Preview = true, s.preview(plan)
			return Change{}, nil
		}
		change, err := s.writePlan(who, plan, cur)
		change.Reads, change.Puts = append(change.Reads, reads...), append(change.Puts, puts...)
		return change, err
	})
	return answer, err
}

// budgetPlan is a change of a budget, decided and not yet written.
type budgetPlan struct {
	act     string
	next    BudgetDocument
	ledgers []ledgerWrite
	answer  BudgetAnswer
}

// ledgerWrite replaces a ledger; before is nil for a new term.
type ledgerWrite struct {
	before *doc[allocation.Ledger]
	after  allocation.Ledger
}

func (w ledgerWrite) key() string { return ledgerKey(w.after.Budget, w.after.Periods.Start()) }

// addLedger puts a write of a ledger into a change, which then rests on the standing: what a freeze was to hold back is
// refused, however old the picture is that it was decided in.
func (s *state) addLedger(c *Change, w ledgerWrite) {
	s.onStanding(c)
	if w.grants() && !s.descent().Frozen(w.after.Periods.Start()) {
		s.onMembers(c)
	}
	c.Reads = append(c.Reads, w.before.known(w.key()))
	c.Puts = append(c.Puts, put(w.key(), w.after))
}

func (s *Service) planBudget(name string, b *allocation.Budget, cur *doc[BudgetDocument]) (budgetPlan, error) {
	warning := ""
	if b != nil {
		var err error
		if warning, err = s.checkBudget(name, *b, cur); err != nil {
			return budgetPlan{}, err
		}
	}
	plan, err := s.planUnchecked(name, b, cur)
	if warning != "" {
		plan.answer.Warnings = append(plan.answer.Warnings, warning)
	}
	return plan, err
}

// planUnchecked is planBudget for a budget that must be taken as it is.
func (s *Service) planUnchecked(name string, b *allocation.Budget, cur *doc[BudgetDocument]) (budgetPlan, error) {
	plan := budgetPlan{act: "budget.create", next: BudgetDocument{Format: documentFormat, Changed: s.now().UTC(), Version: s.state.versionAfter(0, allocation.History{})}}
	if s.state.deployment == nil {
		return plan, errStarting
	}
	if cur == nil && len(s.state.budgets) >= maxBudgets {
		return plan, refused("delete does not help: names are remembered; use a template", "there are %d budgets already", maxBudgets)
	}
	var old allocation.Budget
	if cur != nil {
		old = cur.value.Budget
		plan.next.Version, plan.next.OpenedThrough = s.state.versionAfter(cur.value.Version, cur.value.Under), cur.value.OpenedThrough
		plan.next.Before = cur.value.beforeHistory(s.state.descent().History)
		if !cur.value.Deleted {
			plan.act = "budget.change"
		}
	}
	if b == nil {
		// A deletion is a change to limit 0, which is remembered.
		plan.act, plan.next.Deleted = "budget.delete", true
		plan.next.Budget = old
		plan.next.Budget.Limit = new(int64)
		plan.next.Budget.Override = nil
	} else {
		plan.next.Budget = *b
	}
	plan.next.Number, plan.next.Under = s.state.deployment.value.Config+1, s.state.descent().History
	following := s.planLedgers(&plan, cur)
	plan.answer = s.answerBudget(plan.next)
	plan.answer.Following = following
	if s.clockNoted() == clockWrong {
		plan.answer.Warnings = append(plan.answer.Warnings, "this coordinator's clock is wrong: the change may count from another period than the running one")
	}
	if b != nil {
		plan.answer.Warnings = append(plan.answer.Warnings, s.timeWarnings(*b)...)
		plan.answer.Warnings = append(plan.answer.Warnings, raisedWarnings(old, *b)...)
		plan.answer.Warnings = append(plan.answer.Warnings, keptWarnings(old, *b)...)
		plan.answer.Warnings = append(plan.answer.Warnings, s.withheldWarnings(plan)...)
	}
	if moved := s.movedByHand(name); moved != "" && b != nil {
		plan.answer.Warnings = append(plan.answer.Warnings, undoesMoves(moved))
	}
	plan.answer.Difference = difference(cur, plan.next)
	plan.answer.From = s.countsFrom(plan)
	if cur != nil && b != nil && cur.value.OpenedThrough > s.instant() {
		through := cur.value.OpenedThrough
		if !plan.next.Budget.Window.Equal(old.Window) {
			plan.answer.WindowFrom = &through
		}
		if old.IsTemplate() && !samePolicy(old.Allocation, plan.next.Budget.Allocation) {
			plan.answer.PolicyFrom = &through
		}
	}
	return plan, nil
}

func samePolicy(a, b allocation.Policy) bool {
	return a.Policy == b.Policy && a.Region == b.Region && a.HashOf == b.HashOf && a.RegionFrom == b.RegionFrom && maps.Equal(a.Weights, b.Weights)
}

// countsFrom is the start of the first period that the plan's ledgers change.
func (s *Service) countsFrom(plan budgetPlan) allocation.Instant {
	now := s.instant()
	for _, w := range plan.ledgers {
		return w.after.Periods.At(runningIndex(w.after, now)).Start
	}
	return now
}

// runningIndex is the period of the term that contains now; 0 if the term has not begun.
func runningIndex(l allocation.Ledger, now allocation.Instant) int {
	i, _ := l.Periods.Find(now)
	return i
}

// planLedgers lets the ledgers of all opened terms follow the plan's budget, and opens new terms, as far as one
// transaction holds. It returns how many have to follow later: the background work sees that they are behind.
func (s *Service) planLedgers(plan *budgetPlan, cur *doc[BudgetDocument]) (later int) {
	now, members := s.instant(), s.state.members()
	room := actRoom{}
	if cur != nil {
		for _, l := range s.state.opened(cur.value.Budget.Name, now) {
			next, err := s.settled(l.value)
			if err == nil {
				next, err = next.Follow(plan.next.Budget, plan.next.Version, runningIndex(next, now), members, s.generation(next))
			}
			if err != nil || !room.take(next) {
				later++ // a lower limit is never refused: the budget changes, the ledger follows
				continue
			}
			plan.ledgers = append(plan.ledgers, ledgerWrite{before: l, after: next})
		}
	}
	for {
		periods, ok := s.nextTerm(plan.next, now)
		if !ok {
			return later
		}
		l, err := allocation.OpenUnproven(firstOrLater(plan.next), plan.next.Version, periods, s.state.termMembers(plan.next.Budget), s.state.descent(), s.generation(allocation.Ledger{}))
		if err != nil || !room.take(l) {
			return later
		}
		plan.ledgers = append(plan.ledgers, ledgerWrite{after: l})
		plan.next.OpenedThrough = periods.End()
	}
}

// actRoom counts what one transaction may still hold of ledgers.
type actRoom struct{ documents, bytes int }

func (r *actRoom) take(l allocation.Ledger) bool {
	n := len(encode(l))
	if n > maxLedgerBytes || r.documents+1 > maxLedgersAct || r.bytes+n > maxActBytes {
		return false
	}
	r.documents, r.bytes = r.documents+1, r.bytes+n
	return true
}

func (s *Service) writePlan(who actor, plan budgetPlan, cur *doc[BudgetDocument]) (Change, error) {
	key := budgetKey(plan.next.Budget.Name)
	_, deployment, raised, err := s.state.raise(func(d *Deployment) { d.Config = plan.next.Number })
	if err != nil {
		return Change{}, err
	}
	var old any
	if cur != nil {
		old = cur.value
	}
	change := Change{
		Reads: []Item{deployment, cur.known(key)},
		Puts:  []Item{raised, put(key, plan.next), s.auditLine(who, plan.act, plan.next.Budget.Name, old, plan.next)},
	}
	for _, w := range plan.ledgers {
		s.state.addLedger(&change, w)
	}
	return change, nil
}

// answerBudget is a budget's document with what follows from it.
func (s *Service) answerBudget(d BudgetDocument) BudgetAnswer {
	answer := BudgetAnswer{
		Budget: d.Budget.WithDefaults(), Version: d.Version, Number: d.Number, Deleted: d.Deleted, Changed: d.Changed,
		OpenedThrough: d.OpenedThrough, Permits: s.permits(d.Budget), Counted: d.Budget.CountedBy(),
	}
	if d.Deleted {
		return answer
	}
	answer.Warnings = d.Budget.SplitWarnings(answer.Permits)
	answer.Warnings = append(answer.Warnings, s.neverCalled(d.Budget, answer.Permits)...)
	answer.Warnings = append(answer.Warnings, s.insteadWarnings(d.Budget)...)
	if draining := newNames(s.state.removed(), s.state.members().Draining); len(draining) > 0 {
		answer.Warnings = append(answer.Warnings, "draining, and without permits: "+strings.Join(draining, ", "))
	}
	return answer
}

// neverCalled warns of regions that the budget counts on and that have no owner yet.
func (s *Service) neverCalled(b allocation.Budget, permits map[string]int64) (warnings []string) {
	for _, r := range s.state.ordered {
		if _, ok := r.holder(); ok || r.doc == nil || r.doc.value.Draining {
			continue
		}
		_, named := permits[r.name]
		switch {
		case b.Allocation.HashOf != "" && !named:
			warnings = append(warnings, fmt.Sprintf("region %s has not called yet: no instance is at home there in terms that are opened before it does", r.name))
		case b.Allocation.HashOf != "":
			warnings = append(warnings, fmt.Sprintf("region %s has not called yet: the instances that are at home there are refused until it does", r.name))
		case b.Allocation.Region == r.name:
			warnings = append(warnings, fmt.Sprintf("region %s has not called yet, and is the home of this budget: every request of it is refused until it does", r.name))
		case permits[r.name] > 0:
			warnings = append(warnings, fmt.Sprintf("region %s has not called yet: its part stays unallocated until it does", r.name))
		}
	}
	return warnings
}

// permits is what each region gets of one period once all have called; of a budget at home by hash, each that a term opened
// now would name. It asks the ledger itself, so that no second place knows how a limit is split.
func (s *Service) permits(b allocation.Budget) map[string]int64 {
	m := s.state.termMembers(b)
	m.Holders = nil
	out := map[string]int64{}
	for _, region := range m.Regions {
		out[region] = 0
		if !slices.Contains(m.Draining, region) {
			m.Holders = append(m.Holders, allocation.Holder{Region: region})
		}
	}
	any := allocation.Periods{First: 0, Step: 1, Count: 1}
	l := allocation.OpenLedger(b.Later(), 1, any, m, allocation.Generation{Number: 1})
	for _, a := range l.EntryAt(0).Allocations {
		out[a.Region] += a.Target
	}
	return out
}
