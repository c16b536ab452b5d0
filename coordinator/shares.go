package coordinator

import (
	"encoding/json"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of pages.
const (
	maxPage     = 1000
	defaultPage = 100
)

// Evidence says which revision of etcd an answer shows, and how long ago that was known to be the newest. Under quorum loss
// the age grows: the figures are those of then.
type Evidence struct {
	Revision    int64 `json:"revision"`
	EvidenceAge int64 `json:"evidence_age_ms"`
}

// evidence is that of the picture. The caller holds the lock.
func (s *Service) evidence() *Evidence {
	return &Evidence{Revision: s.state.revision, EvidenceAge: s.evidenceAge().Milliseconds()}
}

// SharesAnswer shows one budget: what each region was granted, has returned, spent, reserved, as stated when.
type SharesAnswer struct {
	Budget        string             `json:"budget"`
	Unit          string             `json:"unit"`
	Version       int64              `json:"version"`
	Deleted       bool               `json:"deleted,omitempty"`
	Template      bool               `json:"template,omitempty"` // granted, returned and target are per instance
	OpenedThrough allocation.Instant `json:"opened_through"`
	Revision      int64              `json:"revision"`
	EvidenceAge   int64              `json:"evidence_age_ms"`
	Terms         []TermShares       `json:"terms"`
}

// TermShares is one opened term, at its running period, or its first if it has not begun.
type TermShares struct {
	Term          allocation.Instant    `json:"term"`
	Until         allocation.Instant    `json:"until"`
	Periods       int                   `json:"periods"`
	Period        allocation.Period     `json:"period"`
	Running       bool                  `json:"running"`
	Generation    allocation.Generation `json:"generation"`
	Version       int64                 `json:"version"` // of the budget that the ledger follows
	Limit         int64                 `json:"limit"`
	OpeningSpent  int64                 `json:"opening_spent,omitempty"` // of the period, before the budget was declared
	Unallocated   int64                 `json:"unallocated"`
	Overcommitted int64                 `json:"overcommitted"`
	Regions       []RegionShare         `json:"regions"`
}

// RegionShare is one incarnation's part of the period, in one class.
type RegionShare struct {
	Region           string                `json:"region"`
	Incarnation      string                `json:"incarnation"`
	Class            allocation.Class      `json:"class"`
	Granted          int64                 `json:"granted"`
	Returned         int64                 `json:"returned"`
	Target           int64                 `json:"target"`
	Protected        int64                 `json:"protected,omitempty"` // of the target: for essential traffic
	Spent            int64                 `json:"spent"`
	Reserved         int64                 `json:"reserved"`
	Overdraft        int64                 `json:"overdraft"`
	Instances        int64                 `json:"instances,omitempty"`
	Spendable        int64                 `json:"spendable"` // as stated; for a template only of the instances that were seen
	StatedGeneration allocation.Generation `json:"stated_generation"`
	StatedAt         *time.Time            `json:"stated_at,omitempty"`
	InContact        bool                  `json:"in_contact"`
}

func (s *Service) shares(name string) (SharesAnswer, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	d := s.state.budgets[name]
	if d == nil {
		return SharesAnswer{}, notFound("budget", name)
	}
	b := d.value.Budget
	a := SharesAnswer{
		Budget: name, Unit: b.Unit, Version: d.value.Version, Deleted: d.value.Deleted, Template: b.IsTemplate(),
		OpenedThrough: d.value.OpenedThrough, Revision: s.state.revision, EvidenceAge: s.evidenceAge().Milliseconds(), Terms: []TermShares{},
	}
	for _, l := range s.state.opened(name, s.instant()) {
		a.Terms = append(a.Terms, s.termShares(l.value))
	}
	return a, nil
}

func (s *Service) termShares(l allocation.Ledger) TermShares {
	i, running := l.Periods.Find(s.instant())
	return s.sharesAt(l, i, running)
}

// sharesAt is one period of a term.
func (s *Service) sharesAt(l allocation.Ledger, i int, running bool) TermShares {
	at := s.now()
	t := TermShares{
		Term: l.Periods.Start(), Until: l.Periods.End(), Periods: l.Periods.Len(), Period: l.Periods.At(i), Running: running,
		Generation: l.Generation, Version: l.Version, Limit: l.EntryAt(i).Limit, Unallocated: l.Unallocated(i), Overcommitted: l.Overcommitted(i),
		OpeningSpent: l.EntryAt(i).OpeningSpent, Regions: []RegionShare{},
	}
	for _, al := range l.EntryAt(i).Allocations {
		st, statedAt := s.lastStatement(al.Holder, refOf(l))
		r := RegionShare{
			Region: al.Region, Incarnation: al.Incarnation, Class: al.Class, Granted: al.Granted, Returned: al.Returned, Target: al.Target, Protected: al.Protected,
			StatedGeneration: st.Generation, StatedAt: statedAt, InContact: s.canBeAsked(al.Holder, at),
		}
		held := al.Held()
		for _, u := range st.Usage {
			if u.Period == t.Period.Start && u.Class == al.Class {
				r.Spent, r.Reserved, r.Overdraft, r.Instances = u.Spent, u.Reserved, u.Overdraft, u.Instances
			}
		}
		if l.Template {
			held *= r.Instances
		}
		r.Spendable = max(0, held-r.Spent-r.Reserved)
		if r.something() || namedBy(l, al.Region) {
			t.Regions = append(t.Regions, r)
		}
	}
	return t
}

// something says whether the row shows more than that the region is there: every holder has an allocation, so that it is
// told of the term.
func (r RegionShare) something() bool {
	return r.Granted != 0 || r.Returned != 0 || r.Target != 0 || r.Spent != 0 || r.Reserved != 0 || r.Overdraft != 0
}

// namedBy says whether the policy of the term gives the region a part, be it 0.
func namedBy(l allocation.Ledger, region string) bool {
	_, weighted := l.Policy.Weights[region]
	return weighted || l.Policy.Region == region || l.Policy.Policy == allocation.PolicyDemand && slices.Contains(l.Regions, region) || (l.Policy.HashOf != "" || l.Policy.RegionFrom != "") && slices.Contains(l.Regions, region)
}

// LedgersPage is raw ledgers as they are stored, for verify.
type LedgersPage struct {
	Revision    int64           `json:"revision"` // all ledgers are of this revision
	EvidenceAge int64           `json:"evidence_age_ms"`
	Ledgers     []StoredLedger  `json:"ledgers"`
	Next        string          `json:"next,omitempty"` // the `after` of the next page
	Closings    []StoredClosing `json:"closings,omitempty"`
	More        string          `json:"more,omitempty"` // there are more closings: the `after` of the next page
}

// StoredLedger is one document with the revision at which it was written.
type StoredLedger struct {
	Key      string          `json:"key"`
	Revision int64           `json:"revision"`
	Ledger   json.RawMessage `json:"ledger"`
}

// StoredClosing is a closed term.
type StoredClosing struct {
	Key      string  `json:"key"`
	Archived bool    `json:"archived,omitempty"` // it stands in this replica's archive, and not in etcd any more
	Closing  Closing `json:"closing"`
}

func stored(l *doc[allocation.Ledger]) StoredLedger {
	return StoredLedger{Key: l.item.Key, Revision: l.item.Revision, Ledger: l.item.Value}
}

// ledgersPage lists budgets' ledgers by name, all terms of a budget on one page.
func (s *Service) ledgersPage(after string, limit int) LedgersPage {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	page := LedgersPage{Revision: s.state.revision, EvidenceAge: s.evidenceAge().Milliseconds(), Ledgers: []StoredLedger{}}
	for _, name := range s.state.namesAfter(after) {
		if len(page.Ledgers) >= limit {
			return page
		}
		for _, l := range s.state.terms[name] {
			page.Ledgers = append(page.Ledgers, stored(l))
		}
		page.Next = name
	}
	page.Next = ""
	return page
}

// namesAfter is the budgets' names behind one, in order.
func (s *state) namesAfter(after string) []string {
	i, found := slices.BinarySearch(s.names, after)
	if found {
		i++
	}
	return s.names[i:]
}

// BudgetsPage lists budgets by name.
type BudgetsPage struct {
	Budgets []BudgetAnswer `json:"budgets"`
	Next    string         `json:"next,omitempty"` // the `after` of the next page
}

func (s *Service) listBudgets(after string, limit int, deleted bool) BudgetsPage {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	page := BudgetsPage{Budgets: []BudgetAnswer{}}
	for _, name := range s.state.namesAfter(after) {
		d := s.state.budgets[name].value
		if d.Deleted && !deleted {
			continue
		}
		if len(page.Budgets) == limit {
			page.Next = page.Budgets[limit-1].Budget.Name
			return page
		}
		page.Budgets = append(page.Budgets, s.answerBudget(d))
	}
	return page
}
