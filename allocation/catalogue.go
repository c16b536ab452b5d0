package allocation

import (
	"cmp"
	"slices"
)

// Term is what a region must know of one opened term of a budget to place a request in it. It never changes: the periods
// are written once, when the term is opened, and nobody computes them again (invariant 10).
type Term struct {
	Budget   string   `json:"budget"`
	Template bool     `json:"template,omitempty"`
	Policy   Policy   `json:"policy"`
	Regions  []string `json:"regions"`
	Periods  Periods  `json:"periods"`
}

// Catalogue is the budgets, the opened terms and the documents that a region knows, as of one change number of its owner. It is never
// changed; With makes the next one.
type Catalogue struct {
	Region string
	Number int64

	budgets parted[string, *ConfiguredBudget] // none of which is ever changed
	terms   parted[string, []Term]            // by start
	index   *MatchIndex

	documents map[DocumentRef]Document
	routes    Routes
	routed    *routeIndex
	policy    *policy // what they say of requests
}

// NewCatalogue is the empty catalogue of a region.
func NewCatalogue(region string) *Catalogue {
	return &Catalogue{
		Region: region, budgets: newParted[string, *ConfiguredBudget](hashName), terms: newParted[string, []Term](hashName),
		index: NewMatchIndex(nil), policy: &policy{},
	}
}

// With returns the catalogue after some changes: budgets and terms that are new or replaced, and terms that are gone. It costs
// what changed, not what the region knows.
func (c *Catalogue) With(number int64, budgets []ConfiguredBudget, terms []Term, gone []ShareRef) *Catalogue {
	out := &Catalogue{Region: c.Region, Number: number, budgets: c.budgets, terms: c.terms, index: c.index, documents: c.documents, routes: c.routes, routed: c.routed, policy: c.policy}
	if len(budgets) > 0 {
		e := c.budgets.edit()
		for _, b := range budgets {
			e.put(b.Budget.Name, &b)
		}
		out.budgets, out.index = e.parted, c.index.with(budgets)
	}
	if len(terms)+len(gone) > 0 {
		out.terms = c.termsWith(terms, gone)
	}
	return out
}

func (c *Catalogue) termsWith(terms []Term, gone []ShareRef) parted[string, []Term] {
	e := c.terms.edit()
	for _, g := range gone {
		list, _ := e.get(g.Budget)
		e.put(g.Budget, dropTerm(list, g.Term))
	}
	for _, t := range terms {
		list, _ := e.get(t.Budget)
		list = append(dropTerm(list, t.Periods.Start()), t)
		slices.SortFunc(list, func(a, b Term) int { return compare(a.Periods.Start(), b.Periods.Start()) })
		e.put(t.Budget, list)
	}
	return e.parted
}

// dropTerm is a copy without the term of that start.
func dropTerm(list []Term, start Instant) []Term {
	return slices.DeleteFunc(slices.Clone(list), func(t Term) bool { return t.Periods.Start() == start })
}

// Budget is the newest version of a budget that the region knows, deleted ones included.
func (c *Catalogue) Budget(name string) (ConfiguredBudget, bool) {
	if b, ok := c.budgets.get(name); ok {
		return *b, true
	}
	return ConfiguredBudget{}, false
}

// PolicyOf is the allocation policy of a budget that the region knows: not to be changed; nil if it does not.
func (c *Catalogue) PolicyOf(name string) *Policy {
	if b, ok := c.budgets.get(name); ok {
		return &b.Budget.Allocation
	}
	return nil
}

// OnExhausted is the HTTP status of a refusal because a budget is used up; false: the region does not know the budget.
func (c *Catalogue) OnExhausted(name string) (status int, known bool) {
	b, known := c.budgets.get(name)
	if !known {
		return 0, false
	}
	return cmp.Or(b.Budget.OnExhausted, DefaultOnExhausted), true
}

// Budgets are all that the region knows, by name.
func (c *Catalogue) Budgets() []ConfiguredBudget {
	list := make([]ConfiguredBudget, 0, c.budgets.len())
	for _, b := range c.budgets.all() {
		list = append(list, *b)
	}
	slices.SortFunc(list, func(a, b ConfiguredBudget) int { return compare(a.Budget.Name, b.Budget.Name) })
	return list
}

// limit is the newest limit that is known of a budget, in a period; a deleted one has limit 0.
func (c *Catalogue) limit(key UsageKey) int64 {
	limit, _ := c.raised(key)
	return limit
}

// raised is the limit, and the id of the override that it includes; empty: it includes none.
func (c *Catalogue) raised(key UsageKey) (limit int64, override string) {
	b, ok := c.budgets.get(key.Budget)
	if !ok || b.Deleted {
		return 0, ""
	}
	if o := b.Budget.Override; o != nil {
		return b.Budget.LimitIn(key.Period), b.Budget.OverrideIn(key.Period)
	}
	return b.Budget.LimitOrZero(), ""
}

// Terms are the opened terms of a budget, by start.
func (c *Catalogue) Terms(budget string) []Term {
	list, _ := c.terms.get(budget)
	return list
}

// CoveredUntil is how far the opened terms of a budget reach without a gap from now: how long the region can go on
// alone. Zero if no term holds now.
func (c *Catalogue) CoveredUntil(budget string, now Instant) Instant {
	until := now
	for _, t := range c.Terms(budget) {
		if t.Periods.Start() <= until {
			until = max(until, t.Periods.End())
		}
	}
	if until == now {
		return 0
	}
	return until
}

// period finds the period of a budget that holds `now`, in the terms that were opened.
func (c *Catalogue) period(budget string, now Instant) (Term, Period, bool) {
	for _, t := range c.Terms(budget) {
		if i, ok := t.Periods.Find(now); ok {
			return t, t.Periods.At(i), true
		}
	}
	return Term{}, Period{}, false
}

// Plan is a request with the budgets that it is to be charged to, as a region sees it at one instant. Nothing in it is
// decided: the owner's database clock chooses the period once the rows are locked.
type Plan struct {
	Request
	Lines   []Line
	Refusal Reason // found before any counter is looked at: no_budget, label_missing, too_many_budgets, cost_unknown
	Detail  string // of the refusal, for a person
	Blames  string // the budget that the refusal is about, if one is
	at      Instant
	number  int64
	labels  Labels // of the request, completed from the routes table
}

// matched is the request as budgets see it.
func (p Plan) matched() Request {
	r := p.Request
	r.Labels = p.labels
	return r
}

// Line is one budget of a plan.
type Line struct {
	UsageKey
	Until   Instant // the period's end
	Term    Instant
	Budget  *Budget // the catalogue's: not to be changed
	Version int64
	Cost    int64
	Problem Reason // not_home, no_allocation; in shadow or metered also cost_unknown, label_missing: no row is to be locked
	Home    string // for not_home; empty if no region of the term is its home
}

// Plan finds the budgets of a request, bytewise by name, and the period of each that holds `now`. It is for Spend,
// Reserve and Check; the other operations find their lines in the admission.
func (c *Catalogue) Plan(r Request, now Instant) Plan {
	p := Plan{Request: r, at: now, number: c.Number}
	switch r.Op {
	case Settle, Release, Extend, Lapse:
		return p
	}
	p.labels = c.Complete(r.Labels)
	hits, missing := c.index.Match(p.labels)
	switch {
	case missing != nil:
		return p.refuse(LabelMissing, missing.Budget, missing.String())
	case len(hits) == 0:
		return p.refuse(NoBudget, "", "no budget's match fits these labels")
	case len(hits) > MaxBudgetsPerRequest:
		return p.refuse(TooManyBudgets, "", "more than 8 budgets apply to these labels")
	}
	p.Lines = make([]Line, 0, len(hits))
	for _, h := range hits {
		cost, known := r.cost(h.Budget.Unit)
		if !known && h.Budget.enforces() {
			return p.refuse(CostUnknown, h.Budget.Name, costUnknown(h.Budget))
		}
		line := c.line(h, p.labels, cost, now)
		if !known && line.Problem == "" {
			line.Problem, line.Cost = CostUnknown, 0
		}
		p.Lines = append(p.Lines, line)
	}
	return p
}

func costUnknown(b *Budget) string {
	return "budget " + b.Name + " counts " + b.Unit + "; give its cost in costs." + b.Unit
}

func (p Plan) refuse(r Reason, budget, detail string) Plan {
	p.Lines, p.Refusal, p.Blames, p.Detail = nil, r, budget, detail
	return p
}

// cost is what the request costs in a unit; requests cost 1 unless they say otherwise, all else must be said. One that no
// door should have let in is as unknown as a missing one: below 0 it would give permits back.
func (r Request) cost(unit string) (int64, bool) {
	if n, ok := r.Costs[unit]; ok {
		return n, 0 <= n && n <= MaxUnits
	}
	return 1, unit == "requests"
}

func (c *Catalogue) line(h Hit, labels Labels, cost int64, now Instant) Line {
	l := Line{
		UsageKey: UsageKey{Budget: h.Budget.Name, Instance: h.Instance, Class: General},
		Budget:   h.Budget, Cost: cost,
	}
	if b, ok := c.budgets.get(h.Budget.Name); ok {
		l.Version = b.Version
	}
	term, period, ok := c.period(h.Budget.Name, now)
	if h.Missing != nil {
		l.Problem = LabelMissing
		l.Period, l.Until, l.Term = period.Start, period.End, term.Periods.Start()
		return l
	}
	policy := &h.Budget.Allocation
	if ok {
		l.Period, l.Until, l.Term = period.Start, period.End, term.Periods.Start()
		policy = &term.Policy // a term's homes are those of its opening
	}
	home, found := h.Budget.homeBy(policy, h.Instance, labels, term.Regions)
	switch {
	case found && home != "" && home != c.Region:
		l.Problem, l.Home = NotHome, home
	case !ok:
		l.Problem = NoAllocation
	case !found:
		l.Problem = NotHome // nowhere: what the caller sent as a region's name is no place to send it to
	}
	return l
}

// EndsBy says whether at a later instant the plan of the same request may name other periods.
func (p *Plan) EndsBy(later Instant) bool {
	return slices.ContainsFunc(p.Lines, func(l Line) bool { return l.Until <= later }) // 0: no term holds the plan's instant
}

// Keys are the usage rows that the plan needs locked.
func (p Plan) Keys() []UsageKey {
	keys := make([]UsageKey, 0, len(p.Lines))
	for _, l := range p.Lines {
		if l.Problem == "" {
			keys = append(keys, l.UsageKey)
		}
	}
	return keys
}
