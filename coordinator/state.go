package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"tranche/allocation"
)

// maxAuditLines is how many of the latest audit lines stay in memory; older ones are read from the store.
const maxAuditLines = 10_000

// state is this replica's picture: the store's documents as the mirror delivered them up to one revision, and what this
// replica heard from regions directly since. The lock is never held across a call of the store.
type state struct {
	now func() time.Time

	mu         sync.Mutex
	revision   int64
	deployment *doc[Deployment]
	standing   *doc[StandingDocument]
	newest     allocation.History // that this process ever knew, whatever etcd shows now: no number is given out twice
	budgets    map[string]*doc[BudgetDocument]
	names      []string       // of budgets, sorted, also the deleted ones
	hits       hits           // of those that are not deleted
	changes    []configChange // by number; superseded ones are left out when it is read
	ledgers    map[allocation.ShareRef]*doc[allocation.Ledger]
	terms      map[string][]*doc[allocation.Ledger] // by budget, sorted by start
	closings   map[string]*doc[Closing]             // by key
	regions    map[string]*region
	ordered    []*region // the same, by name
	rebalances map[string]*doc[Rebalance]
	plans      map[string]*doc[RebalancePlan]
	tokens     map[string]*doc[TokenDocument]
	vouches    map[string]*doc[VouchDocument] // by writer
	audit      []Item                         // the latest maxAuditLines

	behind  map[allocation.ShareRef]bool   // ledgers that have not followed their budget or the members yet
	broken  map[allocation.ShareRef]string // ledgers that are not conserved, and why
	strange map[string]string              // documents that this version does not know, and why
	strandedDocs
	carried
	receiptKeys receiptKeys
	feed        feed

	opening, following cursor // of the background work

	openings schedule[string]              // of the next term of each budget, by instant
	ends     schedule[allocation.ShareRef] // of ledgers, by instant
	over     rota[allocation.ShareRef]     // ledgers whose end was there, and that may not be over everywhere
	overSeen time.Time                     // when some of those were looked at
	bases    schedule[string]              // of budgets of policy demand, by nanosecond: when their bases are looked at

	asking map[asked]bool // running periods of which some region lacks permits

	words     map[string]string // names that very many documents have: see compact.go
	resetting bool              // all is entered anew: look at the ledgers once, at the end
}

type configChange struct {
	number int64
	budget string
}

func newState(now func() time.Time) *state {
	s := &state{now: now, regions: map[string]*region{}, asking: map[asked]bool{}, words: map[string]string{}}
	s.clear()
	return s
}

// clear forgets what came from the store, and keeps what regions said.
func (s *state) clear() {
	s.deployment, s.standing, s.names, s.changes, s.audit = nil, nil, nil, nil, nil
	s.budgets, s.hits = map[string]*doc[BudgetDocument]{}, hits{}
	s.openings, s.ends, s.bases = newSchedule[string](), newSchedule[allocation.ShareRef](), newSchedule[string]()
	s.over = newRota[allocation.ShareRef]()
	s.ledgers = map[allocation.ShareRef]*doc[allocation.Ledger]{}
	s.terms = map[string][]*doc[allocation.Ledger]{}
	s.closings = map[string]*doc[Closing]{}
	s.rebalances = map[string]*doc[Rebalance]{}
	s.plans = map[string]*doc[RebalancePlan]{}
	s.tokens = map[string]*doc[TokenDocument]{}
	s.vouches = map[string]*doc[VouchDocument]{}
	s.behind = map[allocation.ShareRef]bool{}
	s.broken = map[allocation.ShareRef]string{}
	s.strange = map[string]string{}
	s.strandedDocs.clear()
	s.carried.clear()
	s.receiptKeys = receiptKeys{}
	s.feed.clear()
	for _, r := range s.regions {
		r.clear()
	}
}

// apply enters what the mirror delivers: all changes up to a revision; with reset they are everything that there is.
func (s *state) apply(events []Event, revision int64, reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset {
		s.clear()
	}
	s.revision, s.resetting = revision, reset
	members, standing := s.members().Number, s.standing
	for _, e := range events {
		s.enter(e)
	}
	s.resetting = false
	if reset {
		slices.Sort(s.names)
		slices.SortFunc(s.changes, func(a, b configChange) int { return cmp.Compare(a.number, b.number) })
		s.sortChanges()
	}
	if reset || s.members().Number != members || s.standing != standing {
		s.lookAll()
	}
}

// enter takes one change. The kinds of keys are those of the layout in keys.go.
func (s *state) enter(e Event) {
	delete(s.strange, e.Key)
	var err error
	switch kindOf(e.Key) {
	case "deployment":
		err = enter(e, func(d *doc[Deployment]) { s.deployment = d })
	case "history":
		err = s.enterStanding(e)
	case "budgets":
		if e.Deleted {
			s.dropBudget(e.Key)
		}
		err = enter(e, func(d *doc[BudgetDocument]) { s.enterBudget(d) })
	case "ledgers":
		err = s.enterLedger(e)
	case "closings":
		delete(s.closings, e.Key)
		err = enter(e, func(d *doc[Closing]) { s.closings[e.Key] = d })
	case "regions":
		err = s.enterRegion(e)
	case "contacts":
		err = s.enterContact(e)
	case "statements":
		err = s.enterStatement(e)
	case "formers":
		err = s.enterFormerDocument(e)
	case "rebalances":
		delete(s.rebalances, keyName(e.Key))
		err = enter(e, func(d *doc[Rebalance]) { s.rebalances[d.value.ID] = d })
	case "plans":
		delete(s.plans, keyName(e.Key))
		err = enter(e, func(d *doc[RebalancePlan]) { s.plans[d.value.ID] = d })
	case "tokens":
		delete(s.tokens, keyName(e.Key))
		err = enter(e, func(d *doc[TokenDocument]) { s.tokens[d.value.Name] = d })
	case "documents":
		if e.Deleted {
			s.dropDocument(e.Key)
		}
		err = enter(e, func(d *doc[ConfigDocument]) { s.enterDocument(d) })
	case "receipts":
		err = s.receiptKeys.enter(e)
	case "vouches":
		delete(s.vouches, keyName(e.Key))
		err = enter(e, func(d *doc[VouchDocument]) { s.vouches[keyName(e.Key)] = d })
	case "audit":
		if !e.Deleted {
			// By key, as the store has them: another replica's clock may be behind.
			i, _ := slices.BinarySearchFunc(s.audit, e.Key, func(a Item, key string) int { return cmp.Compare(a.Key, key) })
			s.audit = slices.Insert(s.audit, i, e.Item)
			s.audit = s.audit[max(0, len(s.audit)-maxAuditLines):]
		}
	case "feed", "events", "told", "webhook":
		err = s.feed.enterFeed(e)
	default:
		_, err = s.enterStranded(kindOf(e.Key), e)
	}
	if err != nil {
		s.strange[e.Key] = err.Error()
	}
}

// enter decodes a document that was put, and hands it over.
func enter[T any](e Event, take func(*doc[T])) error {
	if e.Deleted {
		return nil
	}
	value, err := decode[T](e.Value)
	if err != nil {
		return err
	}
	take(&doc[T]{item: e.Item, value: value})
	return nil
}

func (s *state) enterBudget(d *doc[BudgetDocument]) {
	name := d.value.Budget.Name
	before := s.budgets[name]
	s.budgets[name] = d
	if before != nil {
		s.hits.drop(name, before.value.Budget.Match)
	}
	if !d.value.Deleted {
		s.hits.put(name, d.value.Budget.Match)
	}
	s.scheduleWork(d.value)
	if before == nil {
		// While a reset is entered, names come in the order of their escaped keys, nearly sorted.
		i, _ := slices.BinarySearch(s.names, name)
		s.names = slices.Insert(s.names, i, name)
	}
	if before != nil && before.value.Number == d.value.Number {
		return // only its terms were opened further
	}
	if s.feed.touch(topic{'b', name}); d.value.Number == 0 {
		return // no region is ever told of it
	}
	s.changes = append(s.changes, configChange{number: d.value.Number, budget: name})
	if len(s.changes) > 2*len(s.budgets)+100 {
		s.changes = slices.DeleteFunc(s.changes, func(c configChange) bool { return s.budgets[c.budget].value.Number != c.number })
	}
	for _, l := range s.terms[name] {
		s.look(refOf(l.value))
	}
	s.wakeAll()
}

// scheduleWork notes when the background has something to do for a budget.
func (s *state) scheduleWork(d BudgetDocument) {
	name := d.Budget.Name
	if at, never := opensAt(d); never {
		s.openings.drop(name)
	} else {
		s.openings.set(name, int64(at))
	}
	if d.Deleted || d.Budget.Allocation.Policy != allocation.PolicyDemand {
		s.bases.drop(name)
	} else {
		s.bases.add(name, 0)
	}
}

func refOf(l allocation.Ledger) allocation.ShareRef {
	return allocation.ShareRef{Budget: l.Budget, Term: l.Periods.Start()}
}

func (s *state) enterLedger(e Event) error {
	if e.Deleted {
		for ref, l := range s.termsOfKey(e.Key) {
			s.dropLedger(ref, l)
		}
		return nil
	}
	var l allocation.Ledger
	if err := json.Unmarshal(e.Value, &l); err != nil {
		return fmt.Errorf("read a ledger: %w", err)
	}
	if l.Format != allocation.LedgerFormat {
		return fmt.Errorf("format %d: %w", l.Format, errFormat)
	}
	l = s.compact(l)
	s.feed.touch(topic{'b', l.Budget})
	ref, d := refOf(l), &doc[allocation.Ledger]{item: e.Item, value: l}
	s.ledgers[ref] = d
	s.ends.set(ref, int64(l.Periods.End()))
	list := s.terms[l.Budget]
	i, found := findTerm(list, ref.Term)
	if found {
		list = slices.Clone(list) // readers may hold the old one
		list[i] = d
	} else {
		list = slices.Insert(slices.Clone(list), i, d)
	}
	s.terms[l.Budget] = list
	delete(s.broken, ref)
	if err := l.Conserved(); err != nil {
		s.broken[ref] = err.Error()
	}
	s.look(ref)
	return nil
}

func findTerm(list []*doc[allocation.Ledger], term allocation.Instant) (int, bool) {
	return slices.BinarySearchFunc(list, term, func(l *doc[allocation.Ledger], t allocation.Instant) int {
		return cmp.Compare(l.value.Periods.Start(), t)
	})
}

// termsOfKey finds the ledger of a key: a deletion has no value to read the name from.
func (s *state) termsOfKey(key string) map[allocation.ShareRef]*doc[allocation.Ledger] {
	budget, term, err := parseLedgerKey(key)
	ref := allocation.ShareRef{Budget: budget, Term: term}
	if l := s.ledgers[ref]; err == nil && l != nil {
		return map[allocation.ShareRef]*doc[allocation.Ledger]{ref: l}
	}
	return nil
}

func (s *state) dropLedger(ref allocation.ShareRef, l *doc[allocation.Ledger]) {
	delete(s.ledgers, ref)
	s.ends.drop(ref)
	delete(s.behind, ref)
	delete(s.broken, ref)
	delete(s.left, ref)
	list := s.terms[ref.Budget]
	if i, found := findTerm(list, ref.Term); found {
		list = slices.Delete(slices.Clone(list), i, i+1)
	}
	if s.terms[ref.Budget] = list; len(list) == 0 {
		delete(s.terms, ref.Budget)
	}
	for _, r := range s.ordered {
		r.forget(ref)
	}
}

// look decides anew what a ledger waits for: to be settled under a new history, to follow its budget and the members, and
// to be stated by its regions. While it is frozen it waits for nothing else.
func (s *state) look(ref allocation.ShareRef) {
	l := s.ledgers[ref]
	if l == nil || s.resetting {
		return
	}
	delete(s.behind, ref)
	s.lookLeft(ref, l.value)
	b := s.budgets[ref.Budget]
	if standing := s.descent(); !standing.Frozen(ref.Term) && (!l.value.Settled(standing) || b != nil && !b.value.Lost && (l.value.Version < b.value.Version || l.value.Members < s.members().Number)) {
		s.behind[ref] = true
	}
	for _, r := range s.ordered {
		r.want(s, ref, l.value)
	}
}

// members are the regions as ledgers see them, each list by name.
func (s *state) members() allocation.Members {
	m := allocation.Members{Lost: s.descent().Lost}
	if s.deployment != nil {
		m.Number = s.deployment.value.Members
	}
	for _, r := range s.ordered {
		if r.tomb != nil {
			m.Draining = append(m.Draining, r.name) // terms that are open may still give it a weight
		}
		if r.doc == nil {
			continue
		}
		m.Regions = append(m.Regions, r.name)
		if r.doc.value.Draining {
			m.Draining = append(m.Draining, r.name)
		} else if h, ok := r.holder(); ok {
			m.Holders = append(m.Holders, h)
		}
	}
	return m
}

// termMembers are the members as a new term of the budget names them. Callers that a hash sends to a region without an
// owner would have no region that can serve them, so such a region takes part in terms that are opened after it called.
// While no region has called at all, all that are registered are named: otherwise the first would have the whole term.
//
// Other policies name a region themselves: its part waits for it, unallocated.
func (s *state) termMembers(b allocation.Budget) allocation.Members {
	m := s.members()
	m.Seen = s.seen(b)
	if b.Allocation.HashOf == "" || len(m.Holders) == 0 {
		return m
	}
	m.Regions = nil
	for _, h := range m.Holders {
		m.Regions = append(m.Regions, h.Region)
	}
	return m
}

// opened are the ledgers of a budget whose terms are not over.
func (s *state) opened(budget string, now allocation.Instant) []*doc[allocation.Ledger] {
	list := s.terms[budget]
	i := slices.IndexFunc(list, func(l *doc[allocation.Ledger]) bool { return l.value.Periods.End() > now })
	if i < 0 {
		return nil
	}
	return list[i:]
}

func (s *state) wakeAll() {
	for _, r := range s.ordered {
		r.wakeUp()
	}
}
