package coordinator

import (
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
)

// maxPreviews bounds the budgets that a preview of a change of regions lists; the sums count all.
const maxPreviews = 1000

// memberAct is a change of the regions that take part.
type memberAct string

const (
	actRegister memberAct = "register"
	actDrain    memberAct = "drain"
	actResume   memberAct = "resume"
)

// MembersPreview says what a change of the regions does to the budgets, before it is made.
type MembersPreview struct {
	*Evidence
	Region  string                `json:"region"`
	Act     string                `json:"act"` // register, drain, resume
	DryRun  bool                  `json:"dry_run"`
	Budgets []BudgetPreview       `json:"budgets"` // that change in opened terms
	More    int                   `json:"more,omitempty"`
	Total   map[string]PreviewSum `json:"total"` // by unit, of running periods
	Notes   []string              `json:"notes"`

	away map[string]map[string]int64 // by region that cannot be asked, and unit: what it would be given of running periods
}

// BudgetPreview is one of them.
type BudgetPreview struct {
	Budget  string             `json:"budget"`
	Unit    string             `json:"unit"`
	From    allocation.Instant `json:"from"`              // the first period that it counts for
	Preview *Preview           `json:"preview,omitempty"` // of the running period
}

// PreviewSum adds the running periods of one unit up.
type PreviewSum struct {
	Budgets  int   `json:"budgets"`
	MaySpend int64 `json:"may_still_spend"` // by the region, of what it holds
	Largest  int64 `json:"largest_spend"`   // of all regions, in the whole periods, whatever happens
}

// previewMembers lets the ledgers follow members that are not yet.
func (s *Service) previewMembers(name string, act memberAct) (MembersPreview, error) {
	p := MembersPreview{Region: name, Act: string(act), DryRun: true, Budgets: []BudgetPreview{}, Total: map[string]PreviewSum{}, Notes: []string{}, away: map[string]map[string]int64{}}
	s.state.mu.Lock()
	members, err := s.membersAfter(name, act)
	names := slices.Clone(s.state.names)
	p.Evidence = s.evidence()
	s.state.mu.Unlock()
	if err != nil {
		return p, err
	}
	for part := range slices.Chunk(names, strandedAtOnce) {
		s.state.mu.Lock()
		for _, budget := range part {
			s.previewMember(&p, budget, members)
		}
		s.state.mu.Unlock()
	}
	p.Notes = append(p.Notes, map[memberAct]string{
		actRegister: "it gets no permits before it calls; a fixed budget gives it none until its weights name it, and terms that are opened after its first call name it",
		actDrain:    "it is asked to return all that it has not spent or reserved, of all opened periods; what it may still spend until then is its own",
		actResume:   "it gets its part of all opened periods back as the others return it",
	}[act])
	for _, region := range slices.Sorted(maps.Keys(p.away)) {
		for _, unit := range slices.Sorted(maps.Keys(p.away[region])) {
			p.Notes = append(p.Notes, fmt.Sprintf("%d %s of running periods go to region %s, which cannot be asked: they are stranded there until it calls; change the weights first, or wait for it", p.away[region][unit], unit, region))
		}
	}
	return p, nil
}

// addAway counts what a change would give to regions that cannot be asked.
func (p *MembersPreview) addAway(budget *Preview, unit string) {
	for _, r := range budget.Regions {
		if r.InContact || r.Region == p.Region || r.Target <= r.Held {
			continue
		}
		if p.away[r.Region] == nil {
			p.away[r.Region] = map[string]int64{}
		}
		p.away[r.Region][unit] = allocation.SumUp(p.away[r.Region][unit], r.Target-r.Held)
	}
}

// membersAfter are the members once the act is done.
func (s *Service) membersAfter(name string, act memberAct) (allocation.Members, error) {
	m, r := s.state.members(), s.state.regions[name]
	registered := r != nil && r.doc != nil
	m.Number++
	switch {
	case act == actRegister && !allocation.ValidRegion(name):
		return m, invalid("region", fmt.Sprintf("%.70q is not a region's name", name), "use 1 to 63 of a-z 0-9 -")
	case act == actRegister && registered:
		return m, problem(409, CodeExists, "there is a region of this name", "`tranche regions list` shows it")
	case act == actRegister:
		m.Draining = slices.DeleteFunc(m.Draining, func(n string) bool { return n == name }) // it was removed once
		m.Regions = append(m.Regions, name)
		slices.Sort(m.Regions)
		return m, nil
	case !registered:
		return m, notFound("region", name)
	case act == actDrain && !slices.Contains(m.Draining, name):
		m.Draining = append(m.Draining, name)
		m.Holders = slices.DeleteFunc(m.Holders, func(h allocation.Holder) bool { return h.Region == name })
	case act == actResume:
		m.Draining = slices.DeleteFunc(m.Draining, func(n string) bool { return n == name })
		if h, member := r.holder(); member && !slices.Contains(m.Holders, h) {
			m.Holders = append(m.Holders, h)
		}
	}
	return m, nil
}

// previewMember adds one budget, if any target of an opened term changes.
func (s *Service) previewMember(p *MembersPreview, name string, m allocation.Members) {
	b, now := s.state.budgets[name], s.instant()
	if b == nil || b.value.Deleted || b.value.Lost {
		return
	}
	var plan budgetPlan
	var from allocation.Instant
	for _, l := range s.state.opened(name, now) {
		before, err := s.settled(l.value)
		if err != nil {
			continue // frozen: it follows when that is over
		}
		i := runningIndex(before, now)
		next, err := before.Follow(b.value.Budget, b.value.Version, i, m, s.generation(before))
		if err != nil || !targetsDiffer(before, next, i) {
			continue
		}
		if len(plan.ledgers) == 0 {
			from = next.Periods.At(i).Start
		}
		plan.ledgers = append(plan.ledgers, ledgerWrite{before: l, after: next})
	}
	if len(plan.ledgers) == 0 {
		return
	}
	line, unit := BudgetPreview{Budget: name, Unit: b.value.Budget.Unit, From: from, Preview: s.preview(plan)}, b.value.Budget.Unit
	sum := p.Total[unit]
	sum.Budgets++
	if line.Preview != nil && !line.Preview.PerInstance {
		p.addAway(line.Preview, unit)
		sum.Largest = allocation.SumUp(sum.Largest, line.Preview.Largest)
		for _, r := range line.Preview.Regions {
			if r.Region == p.Region {
				sum.MaySpend = allocation.SumUp(sum.MaySpend, r.MaySpend)
			}
		}
	}
	p.Total[unit] = sum
	if len(p.Budgets) == maxPreviews {
		p.More++
		return
	}
	p.Budgets = append(p.Budgets, line)
}

// targetsDiffer compares the periods from index i on.
func targetsDiffer(a, b allocation.Ledger, i int) bool {
	differ := func(x, y allocation.Entry) bool {
		target := map[allocation.Holder]int64{}
		for _, al := range x.Allocations {
			target[al.Holder] += al.Target
		}
		for _, al := range y.Allocations {
			target[al.Holder] -= al.Target
		}
		for _, n := range target {
			if n != 0 {
				return true
			}
		}
		return false
	}
	for _, l := range []allocation.Ledger{a, b} {
		for _, e := range l.Entries {
			if at := max(i, e.From); differ(a.EntryAt(at), b.EntryAt(at)) {
				return true
			}
		}
	}
	return false
}
