package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// Documents of what is known about stranded permits. None of them moves a permit: they are records and marks.
//
//	/tranche/strandings/REGION/SHARD   the history of what was stranded in a region, of the budgets of one shard
//	/tranche/writeoffs/ID              stranded permits that an operator counts as spent for good
//	/tranche/compensations/ID          a raise of a limit that stands while a region is away
//	/tranche/refusals/REGION           what the nodes of a region refused, by budget and reason
const (
	strandingPrefix    = Root + "strandings/"
	writeOffPrefix     = Root + "writeoffs/"
	compensationPrefix = Root + "compensations/"
	refusalPrefix      = Root + "refusals/"
)

func strandingKey(region string, shard int) string {
	return fmt.Sprintf("%s%s/%03d", strandingPrefix, region, shard)
}

// StrandingDocument is the history of one region and shard of budgets, oldest first.
type StrandingDocument struct {
	Format  int         `json:"format"`
	Region  string      `json:"region"`
	Shard   int         `json:"shard"`
	Entries []Stranding `json:"entries"`
}

// Why permits are stranded.
const (
	CauseUnreachable = "unreachable"  // the region has not called for a while
	CauseLostHistory = "lost history" // the incarnation was replaced: nobody can state what it did
	CauseFrozen      = "frozen"       // etcd went back, and the region has not stated under the new history yet
)

// How a stranding ended.
const (
	ResolvedReturned   = "region returned"
	ResolvedSealed     = "sealed"
	ResolvedPeriodEnd  = "period ended"
	ResolvedWrittenOff = "written off"
)

// Stranding is one time that an incarnation's part of a budget was stranded: opened, grown, resolved.
type Stranding struct {
	Budget      string                `json:"budget"`
	Unit        string                `json:"unit"`
	Region      string                `json:"region"`
	Incarnation string                `json:"incarnation"`
	Generation  allocation.Generation `json:"generation"` // of the ledger, when it was opened
	Cause       string                `json:"cause"`
	Since       time.Time             `json:"since"`  // the last contact, or when the loss was noticed
	Opened      time.Time             `json:"opened"` // when it was noticed
	Period      allocation.Period     `json:"period"` // the running one, when this was last written
	AtFirst     allocation.Remainder  `json:"at_first"`
	Latest      allocation.Remainder  `json:"latest"`
	Most        int64                 `json:"most"`           // stranded at once, of one running period
	Grew        *time.Time            `json:"grew,omitempty"` // when Most last rose
	allocation.Elapsed
	Counted     allocation.Instant `json:"counted"`                // until when Elapsed is counted
	RefusedBy   map[string]Refused `json:"refused_by,omitempty"`   // by other regions, with capacity_stranded: at least
	RefusedSeen map[string]Refused `json:"refused_seen,omitempty"` // their nodes' counters at that time
	// Of the running period: what each region had spent, and had refused, when it was opened or began.
	SpentAtCut    map[string]int64   `json:"spent_at_cut,omitempty"`
	RefusedBefore map[string]Refused `json:"refused_before,omitempty"`

	SpentStated int64              `json:"spent_stated"`         // over all periods of its terms, as last stated before
	SpentFrom   allocation.Instant `json:"spent_from,omitempty"` // the first of these terms
	Back        *time.Time         `json:"back,omitempty"`       // since when it is not stranded any more; it ends at the next look
	Ended       *time.Time         `json:"ended,omitempty"`
	How         string             `json:"how,omitempty"`
	LateSpent   int64              `json:"late_spent,omitempty"` // what it turned out to have spent meanwhile, also when it was said after the end

	// Former is where an older program kept what an incarnation that was replaced last stated: see former.go.
	Former []allocation.ShareStatement `json:"former,omitempty"`
}

func (e Stranding) holder() allocation.Holder {
	return allocation.Holder{Region: e.Region, Incarnation: e.Incarnation}
}

// Refused counts requests that were refused, and the units that they asked for.
type Refused struct {
	Requests int64 `json:"requests"`
	Units    int64 `json:"units"`
}

func (r Refused) add(o Refused) Refused { return Refused{r.Requests + o.Requests, r.Units + o.Units} }

// since is what came to r after o; a counter that fell was forgotten, and says nothing.
func (r Refused) since(o Refused) Refused {
	return Refused{max(0, r.Requests-o.Requests), max(0, r.Units-o.Units)}
}

// countRefused adds what came to the nodes' counters since they were last seen. The maps are replaced, not changed.
func (e *Stranding) countRefused(seen map[string]Refused) {
	by := maps.Clone(e.RefusedBy)
	for region, n := range seen {
		if more := n.since(e.RefusedSeen[region]); more != (Refused{}) {
			if by == nil {
				by = map[string]Refused{}
			}
			by[region] = by[region].add(more)
		}
	}
	e.RefusedBy, e.RefusedSeen = by, seen
}

// total is the sum over regions.
func total(by map[string]Refused) (sum Refused) {
	for _, r := range by {
		sum = sum.add(r)
	}
	return sum
}

// WriteOff counts stranded permits as spent for good. It is a mark: no counter moves, so it is always safe. If the region
// comes back, its permits are still its own.
type WriteOff struct {
	Format      int                  `json:"format"`
	ID          string               `json:"id"`
	Budget      string               `json:"budget"`
	Unit        string               `json:"unit"`
	Region      string               `json:"region"`
	Incarnation string               `json:"incarnation"`
	Period      allocation.Period    `json:"period"` // the running one, when it was made
	Now         allocation.Remainder `json:"now"`
	Ahead       *StrandedAhead       `json:"ahead,omitempty"`
	Through     allocation.Instant   `json:"through"` // the end of the terms that were open: later ones are not written off
	Reason      string               `json:"reason"`
	By          string               `json:"by"`    // the person who answers for it
	Token       string               `json:"token"` // the name of the token that it was made with
	Made        time.Time            `json:"made"`
	SpentStated int64                `json:"spent_stated"`
	SpentFrom   allocation.Instant   `json:"spent_from,omitempty"` // the first term that SpentStated counts
	Returned    *time.Time           `json:"returned,omitempty"`   // the region called again
	Recorded    bool                 `json:"recorded,omitempty"`
	LateSpent   int64                `json:"late_spent,omitempty"` // and had spent this much of them, once it is recorded
}

func (w WriteOff) holder() allocation.Holder {
	return allocation.Holder{Region: w.Region, Incarnation: w.Incarnation}
}

// Compensation is a raise of a limit, by at most what is stranded. It stands until the region comes back, or the term that
// was running ends; then the limit is what it was.
type Compensation struct {
	Format      int                `json:"format"`
	ID          string             `json:"id"`
	Budget      string             `json:"budget"`
	Unit        string             `json:"unit"`
	Region      string             `json:"region"`
	Incarnation string             `json:"incarnation"`
	Units       int64              `json:"units"`
	Version     int64              `json:"version"` // of the budget that it made
	Before      CompensatedBudget  `json:"before"`
	After       CompensatedBudget  `json:"after"`
	Until       allocation.Instant `json:"until"`
	State       string             `json:"state"`
	Reason      string             `json:"reason"`
	By          string             `json:"by"`
	Token       string             `json:"token"`
	Made        time.Time          `json:"made"`
	Ended       *time.Time         `json:"ended,omitempty"`
	Why         string             `json:"why,omitempty"` // it ended
}

// CompensatedBudget is what a compensation changes of a budget.
type CompensatedBudget struct {
	Limit      int64             `json:"limit"`
	Allocation allocation.Policy `json:"allocation"`
}

// The states of a Compensation.
const (
	CompensationActive     = "active"
	CompensationCancelled  = "cancelled"  // the limit is what it was
	CompensationSuperseded = "superseded" // the budget was changed meanwhile: its limit is what that change says
)

func (c Compensation) holder() allocation.Holder {
	return allocation.Holder{Region: c.Region, Incarnation: c.Incarnation}
}

// Bounds of what is kept.
const (
	maxStrandings     = 60 // of one document
	maxWriteOffs      = 1000
	maxCompensations  = 1000
	strandedRetention = 90 * 24 * time.Hour // of what has ended
)

// strandedDocs is the part of the picture that these documents make.
type strandedDocs struct {
	strandings    map[string]*doc[StrandingDocument] // by key
	writeOffs     map[string]*doc[WriteOff]          // by id
	compensations map[string]*doc[Compensation]      // by id
	overrides     map[string]*doc[Override]          // by id
	refusals      map[string]*doc[RefusalDocument]   // by region
	rates         rates
	left          map[allocation.ShareRef]bool // ledgers that name incarnations that are not current
}

func (d *strandedDocs) clear() {
	d.strandings, d.writeOffs = map[string]*doc[StrandingDocument]{}, map[string]*doc[WriteOff]{}
	d.compensations, d.refusals = map[string]*doc[Compensation]{}, map[string]*doc[RefusalDocument]{}
	d.overrides = map[string]*doc[Override]{}
	d.left = map[allocation.ShareRef]bool{}
}

// enterStranded takes one change of these documents; false if it is of another kind.
func (s *state) enterStranded(kind string, e Event) (bool, error) {
	switch kind {
	case "strandings":
		delete(s.strandings, e.Key)
		region, _, _ := strings.Cut(keyName(e.Key), "/")
		s.feed.touch(topic{'r', region})
		return true, enter(e, func(d *doc[StrandingDocument]) { s.enterStranding(d) })
	case "writeoffs":
		delete(s.writeOffs, keyName(e.Key))
		return true, enter(e, func(d *doc[WriteOff]) { s.writeOffs[d.value.ID] = d })
	case "compensations":
		delete(s.compensations, keyName(e.Key))
		return true, enter(e, func(d *doc[Compensation]) { s.compensations[d.value.ID] = d })
	case "overrides":
		delete(s.overrides, keyName(e.Key))
		return true, enter(e, func(d *doc[Override]) {
			s.overrides[d.value.ID] = d
			s.touchOverride(d)
		})
	case "refusals":
		delete(s.refusals, keyName(e.Key))
		return true, enter(e, func(d *doc[RefusalDocument]) { s.enterRefusals(d) })
	}
	return false, nil
}

// frozenFor says whether an incarnation's part of a term is frozen: etcd went back, and it has not stated since.
func (s *state) frozenFor(h allocation.Holder, term allocation.Instant) bool {
	d := s.descent()
	return d.Frozen(term) && !slices.Contains(d.Freeze.Stated, h)
}

// lookLeft notes whether a ledger names an incarnation that is not its region's current one.
func (s *state) lookLeft(ref allocation.ShareRef, l allocation.Ledger) {
	delete(s.left, ref)
	for _, h := range holders(l) {
		if current, ok := s.currentOf(h.Region); !ok || current != h {
			s.left[ref] = true
			return
		}
	}
}

func (s *state) currentOf(region string) (allocation.Holder, bool) {
	r := s.regions[region]
	if r == nil {
		return allocation.Holder{}, false
	}
	return r.holder()
}

// enterStranding takes in one document. What an older program kept in it goes to where it is kept now.
func (s *state) enterStranding(d *doc[StrandingDocument]) {
	s.strandings[d.item.Key] = d
	for _, e := range d.value.Entries {
		for _, st := range e.Former {
			if ref := (allocation.ShareRef{Budget: st.Budget, Term: st.Term}); s.ledgers[ref] != nil {
				s.region(e.Region).makeFormer(d.value.Shard, e.Incarnation).raise(ref, st)
			}
		}
	}
}

// openStranding is the record of what is stranded now; nil if there is none.
func (s *state) openStranding(h allocation.Holder, budget string) *Stranding {
	d := s.strandings[strandingKey(h.Region, allocation.ShardOf(budget))]
	if d == nil {
		return nil
	}
	for i := range d.value.Entries {
		if e := &d.value.Entries[i]; e.Ended == nil && e.Budget == budget && e.Incarnation == h.Incarnation {
			return e
		}
	}
	return nil
}

// writtenOff is the mark that covers an incarnation's part of a period; nil: none does.
func (s *state) writtenOff(h allocation.Holder, budget string, from allocation.Instant) *WriteOff {
	for _, d := range sortedWriteOffs(s.writeOffs) {
		if w := d.value; w.Budget == budget && w.holder() == h && w.Period.Start <= from && from < w.Through {
			return &w
		}
	}
	return nil
}

// sortedWriteOffs is the latest first.
func sortedWriteOffs(m map[string]*doc[WriteOff]) []*doc[WriteOff] {
	return slices.SortedFunc(maps.Values(m), func(a, b *doc[WriteOff]) int {
		return cmp.Or(b.value.Made.Compare(a.value.Made), cmp.Compare(a.value.ID, b.value.ID))
	})
}

// sortedCompensations is the latest first.
func sortedCompensations(m map[string]*doc[Compensation]) []*doc[Compensation] {
	return slices.SortedFunc(maps.Values(m), func(a, b *doc[Compensation]) int {
		return cmp.Or(b.value.Made.Compare(a.value.Made), cmp.Compare(a.value.ID, b.value.ID))
	})
}

// activeCompensation is the one that stands for a budget; nil: none does.
func (s *state) activeCompensation(budget string) *doc[Compensation] {
	for _, d := range s.compensations {
		if d.value.Budget == budget && d.value.State == CompensationActive {
			return d
		}
	}
	return nil
}
