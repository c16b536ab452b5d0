package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// maxExposedBudgets bounds one answer; the bound over all budgets counts all.
const maxExposedBudgets = 1000

// How sure a Figure is.
const (
	FigureExact   = "exact"
	FigureAtMost  = "at_most" // never more; less, if something is not stated yet or others share it
	FigureUnknown = "unknown" // units is what is known of it: it may be more
	EveryRequest  = "every"   // the budget is charged by every request of the subject
	SomeRequests  = "some"    // by those of further labels
	CutRevoked    = "revoked" // the kinds of a Cut
	CutExpired    = "expired" //
	CutBlocked    = "blocked" //
	maxSubject    = 255       // bytes of a parameter
	askKey        = "key"     // the query parameters
	askTenant     = "tenant"  //
	askCapability = "capability"
	askSince      = "since"
)

// Figure is a number of units, and how sure it is.
type Figure struct {
	Units int64  `json:"units"`
	Kind  string `json:"kind"`
}

func atMost(units int64) Figure { return Figure{units, FigureAtMost} }

// sum adds figures: the sum is as sure as the less sure of both.
func (f Figure) sum(o Figure) Figure {
	kind := FigureExact
	for _, k := range []string{f.Kind, o.Kind} {
		if k == FigureUnknown || k == FigureAtMost && kind == FigureExact {
			kind = k
		}
	}
	return Figure{allocation.SumUp(f.Units, o.Units), kind}
}

// Exposure is what a key, a tenant or a capability has cost since an instant, as far as statements tell, and the most that it
// can still come to spend, from now on and after a revocation.
type Exposure struct {
	At          time.Time           `json:"at"`
	Revision    int64               `json:"revision"`
	EvidenceAge int64               `json:"evidence_age_ms"`
	Subject     ExposedSubject      `json:"subject"`
	Since       *allocation.Instant `json:"since,omitempty"` // absent: of each budget, from its running period on
	Cut         *Cut                `json:"cut,omitempty"`   // what already refuses all of it; absent: nothing does
	Regions     []CutRegion         `json:"regions"`         // where that is enforced, or could be at once
	Budgets     []ExposedBudget     `json:"budgets"`         // by name
	More        int                 `json:"more,omitempty"`
	Bound       []ExposureBound     `json:"bound"` // by unit: the budget of every request that leaves the least
	Notes       []string            `json:"notes"`
}

// ExposedSubject is whose requests are meant.
type ExposedSubject struct {
	Fingerprint  string   `json:"fingerprint,omitempty"`
	Name         string   `json:"name,omitempty"` // of the key, as admission ids know it
	Tenant       string   `json:"tenant,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"` // those that it may ask for; none: any
	OtherKeys    []string `json:"other_keys,omitempty"`   // of the same name: what they spent cannot be told apart
}

// Cut is what refuses all requests of the subject.
type Cut struct {
	How    string             `json:"how"`
	Block  string             `json:"block,omitempty"`
	At     allocation.Instant `json:"at"`
	Number int64              `json:"number"` // of the configuration, as in GET /v1/enforced
	// Until is when a block ends by itself: what is ahead after it can be spent again, and is not in after_cut_ahead.
	Until *allocation.Instant `json:"until,omitempty"`
}

// CutRegion says how a region stands to the cut.
type CutRegion struct {
	Region      string     `json:"region"`
	State       string     `json:"state"`              // in contact, unreachable, never called
	Enforced    bool       `json:"enforced"`           // the cut; false as long as there is none
	AfterMS     *int64     `json:"after_ms,omitempty"` // from the cut to the call that showed it
	LastContact *time.Time `json:"last_contact,omitempty"`
	// Blocks are those that were made in the region, for itself, and refuse some of the subject's requests there. One that was
	// made while the region is cut off is known to its nodes only.
	Blocks []RegionBlock `json:"blocks,omitempty"`
}

// ExposedBudget is one budget that requests of the subject may be charged to.
type ExposedBudget struct {
	Budget   string             `json:"budget"`
	Unit     string             `json:"unit"`
	Template bool               `json:"template,omitempty"` // of instances that the subject does not fix, all count
	Charged  string             `json:"charged"`            // every, some
	Enforced bool               `json:"enforced"`           // false: in shadow or metered for some of them, so it bounds nothing
	Period   *allocation.Period `json:"period,omitempty"`   // the running one
	Limit    int64              `json:"limit"`
	// Spent is by all that share the budget, as stated, in the periods from SpentFrom on.
	Spent     Figure              `json:"spent"`
	SpentFrom *allocation.Instant `json:"spent_from,omitempty"`
	// Now and Ahead are what can still be spent of the whole budget while nothing is revoked: in the running period, and in
	// those after it until Until. Later ones, if the budget goes on, have its limit each.
	Now   Figure              `json:"now"`
	Ahead Figure              `json:"ahead"`
	Until *allocation.Instant `json:"until,omitempty"`
	// AfterCut and AfterCutAhead are what is left of these if all is revoked now, or from the cut on if there is one.
	AfterCut      Figure          `json:"after_cut"`
	AfterCutAhead Figure          `json:"after_cut_ahead"`
	Regions       []ExposedRegion `json:"regions"`
}

// ExposedRegion is one incarnation's part of a budget.
type ExposedRegion struct {
	Region      string     `json:"region"`
	Incarnation string     `json:"incarnation"`
	Cause       string     `json:"cause,omitempty"` // why it cannot be asked
	Spent       Figure     `json:"spent"`
	Reserved    int64      `json:"reserved"` // what was admitted before a revocation is still settled
	Now         Figure     `json:"now"`      // what it holds and has not spent
	Ahead       Figure     `json:"ahead"`
	AfterCut    Figure     `json:"after_cut"`
	AfterAhead  Figure     `json:"after_cut_ahead"`
	StatedAt    *time.Time `json:"stated_at,omitempty"`
}

// ExposureBound is the tightest of the budgets that every request of the subject is charged to, in one unit.
type ExposureBound struct {
	Unit          string `json:"unit"`
	Budget        string `json:"budget"`
	Now           int64  `json:"now"`
	Ahead         int64  `json:"ahead"`
	AfterBudget   string `json:"after_cut_budget"`
	AfterCut      int64  `json:"after_cut"`
	AfterCutAhead int64  `json:"after_cut_ahead"`
}

// ExposureQuery asks for one.
type ExposureQuery struct {
	Key, Tenant, Capability string
	Since                   allocation.Instant // 0: see Exposure.Since
}

// exposure looks at all budgets that the subject's requests may be charged to.
func (s *Service) exposure(q ExposureQuery) (Exposure, error) {
	at := s.now()
	e := Exposure{At: at.UTC(), EvidenceAge: s.evidenceAge().Milliseconds(), Regions: []CutRegion{}, Budgets: []ExposedBudget{}, Bound: []ExposureBound{}}
	s.state.mu.Lock()
	e.Revision = s.state.revision
	x, err := s.subjectOf(&q)
	if err != nil {
		s.state.mu.Unlock()
		return e, err
	}
	x.blocked(s)
	e.Subject, e.Cut = x.ExposedSubject, x.cut
	if q.Since != 0 {
		e.Since = &q.Since
	}
	view := s.cutRegions(&e, x, at)
	names := slices.Clone(s.state.names)
	s.state.mu.Unlock()
	// Some at a time, so that a large answer holds up no sync call.
	for part := range slices.Chunk(names, strandedAtOnce) {
		s.state.mu.Lock()
		for _, name := range part {
			b, found := s.exposedBudget(x, name, q.Since, at, view)
			if !found {
				continue
			}
			e.bound(b)
			if len(e.Budgets) < maxExposedBudgets {
				e.Budgets = append(e.Budgets, b)
			} else {
				e.More++
			}
		}
		s.state.mu.Unlock()
	}
	e.Notes = e.notes(q)
	return e, nil
}

// cutRegions says where the cut is enforced; the answer is by region.
func (s *Service) cutRegions(e *Exposure, x subject, at time.Time) cutView {
	view := cutView{enforces: map[string]bool{}}
	for _, r := range s.state.ordered {
		if r.doc == nil {
			continue
		}
		c := CutRegion{Region: r.name, State: inContactNow}
		switch {
		case r.contact.Incarnation == "":
			c.State = "never called"
		case !r.inContact(at, s.config.ReportUnreachableAfter):
			c.State = CauseUnreachable
		}
		if !r.contact.At.IsZero() {
			contact := r.contact.At
			c.LastContact = &contact
		}
		if e.Cut != nil && r.contact.Incarnation != "" && r.contact.Documents >= e.Cut.Number {
			c.Enforced = true
			if seen, ok := r.reachedAt(e.Cut.Number); ok {
				after := max(0, seen.Sub(e.Cut.At.Time()).Milliseconds())
				c.AfterMS = &after
			}
		}
		c.Blocks = x.blocksIn(s, r.name)
		// Without a cut: what could be revoked there within one call. A block of the region's own ends by itself, and leaves the figures.
		view.enforces[r.name] = c.Enforced || e.Cut == nil && c.State == inContactNow
		view.waiting = view.waiting || c.State == inContactNow && !view.enforces[r.name]
		e.Regions = append(e.Regions, c)
	}
	return view
}

// cutView is where the cut counts, or would.
type cutView struct {
	enforces map[string]bool // by region
	waiting  bool            // some region is in contact, and does not enforce it yet: it may still be granted permits
}

const inContactNow = "in contact"

// bound keeps the tightest budget of each unit.
func (e *Exposure) bound(b ExposedBudget) {
	if b.Charged != EveryRequest || !b.Enforced || b.Now.Kind == FigureUnknown {
		return
	}
	i := slices.IndexFunc(e.Bound, func(o ExposureBound) bool { return o.Unit == b.Unit })
	if i < 0 {
		e.Bound = append(e.Bound, ExposureBound{b.Unit, b.Budget, b.Now.Units, b.Ahead.Units, b.Budget, b.AfterCut.Units, b.AfterCutAhead.Units})
		slices.SortFunc(e.Bound, func(a, b ExposureBound) int { return cmp.Compare(a.Unit, b.Unit) })
		return
	}
	o := &e.Bound[i]
	if allocation.SumUp(b.Now.Units, b.Ahead.Units) < allocation.SumUp(o.Now, o.Ahead) {
		o.Budget, o.Now, o.Ahead = b.Budget, b.Now.Units, b.Ahead.Units
	}
	if allocation.SumUp(b.AfterCut.Units, b.AfterCutAhead.Units) < allocation.SumUp(o.AfterCut, o.AfterCutAhead) {
		o.AfterBudget, o.AfterCut, o.AfterCutAhead = b.Budget, b.AfterCut.Units, b.AfterCutAhead.Units
	}
}

// notes says what the figures are not.
func (e *Exposure) notes(q ExposureQuery) []string {
	notes := []string{
		"spent is what all who share a budget spent, as their regions stated it; what a caller or a tenant itself was charged, its regions' nodes know: GET /v1/charged",
		"what is reserved already may still be settled after a revocation, and cost more than it reserved: where anything is reserved, after_cut is all that the region holds of the period",
		"periods after those of the opened terms are not counted: while nothing is revoked, each of them has the budget's limit again",
	}
	if q.Key == "" && q.Tenant == "" {
		notes = append(notes, "admission ids do not hold capabilities: what was spent on one is known only through the budgets that ask for it")
	}
	if q.Since == 0 {
		notes = append(notes, "without since, spent is of the running periods")
	}
	if e.Cut == nil {
		notes = append(notes, "nothing is revoked or blocked: after_cut is what would be left if it were, once the regions in contact enforce it, which takes one call")
	}
	if len(e.Subject.OtherKeys) > 0 {
		notes = append(notes, "what was charged is that of all keys of the name "+e.Subject.Name+" together, also of "+strings.Join(e.Subject.OtherKeys, ", ")+
			": an admission id holds the name, so that a rotation keeps it, and not the fingerprint")
	}
	if len(e.Bound) == 0 {
		notes = append(notes, "no enforced budget is charged by every request in question: nothing here bounds them together")
	}
	return notes
}
