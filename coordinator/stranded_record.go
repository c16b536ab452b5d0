package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// maxPastStrandings bounds the history in one report.
const maxPastStrandings = 5000

// StrandedTrade sets what the stranding cost in the running period beside what one home for the whole budget would have.
type StrandedTrade struct {
	Period  allocation.Period         `json:"period"`
	Limit   int64                     `json:"limit"`
	Demand  []allocation.RegionDemand `json:"demand"`  // in units, as far as statements and nodes said
	Refused Refused                   `json:"refused"` // elsewhere, in this period, with capacity_stranded
	Homes   []allocation.HomeOutcome  `json:"homes"`   // one for each region that could be the home
}

// withRecord adds to a line what is recorded of it. It is called under the lock of the state.
func (s *Service) withRecord(line StrandedLine, at time.Time) StrandedLine {
	h := allocation.Holder{Region: line.Region, Incarnation: line.Incarnation}
	line.WrittenOff = s.state.writtenOff(h, line.Budget, line.Period.Start)
	if c := s.state.activeCompensation(line.Budget); c != nil && c.value.holder() == h {
		value := c.value
		line.Compensated = &value
	}
	open := s.state.openStranding(h, line.Budget)
	if open == nil {
		return line
	}
	e := *open
	s.count(&e, at)
	since := e.Since
	line.Since = &since
	line.Record = &StrandedRecord{
		Opened: e.Opened, Grew: e.Grew, AtFirst: e.AtFirst.Stranded, Most: max(e.Most, line.Stranded), Elapsed: e.Elapsed, Refused: total(e.RefusedBy),
	}
	line.Trade = s.trade(line, e, at)
	return line
}

// trade is nil for a template, whose limit is per instance, and while the record is of an earlier period.
func (s *Service) trade(line StrandedLine, e Stranding, at time.Time) *StrandedTrade {
	if line.Template || line.Period != e.Period {
		return nil
	}
	l := s.state.runningTerm(line.Budget, allocation.At(at))
	if l == nil {
		return nil
	}
	i, _ := l.Periods.Find(allocation.At(at))
	t := &StrandedTrade{Period: line.Period, Limit: l.EntryAt(i).Limit, Refused: total(e.RefusedBy).since(total(e.RefusedBefore))}
	now := s.spentOthers(line.Budget, line.Region, line.Period.Start)
	for _, r := range s.state.ordered {
		if r.doc == nil || !namedBy(*l, r.name) {
			continue
		}
		d := allocation.RegionDemand{Region: r.name}
		if r.name == line.Region {
			d = s.demandBehind(line, e, at)
		} else {
			d.Before = min(now[r.name], e.SpentAtCut[r.name])
			d.During = now[r.name] - d.Before
			d.During = allocation.SumUp(d.During, e.RefusedBy[r.name].since(e.RefusedBefore[r.name]).Units)
		}
		t.Demand = append(t.Demand, d)
	}
	for _, d := range t.Demand {
		t.Homes = append(t.Homes, allocation.SingleHome(d.Region, t.Limit, t.Demand, []string{line.Region}))
	}
	return t
}

// demandBehind is what the region that is cut off did: what it stated, and then as much as its rate in the hour before
// would bring, up to what it holds. Only its late statement tells.
func (s *Service) demandBehind(line StrandedLine, e Stranding, at time.Time) allocation.RegionDemand {
	d := allocation.RegionDemand{Region: line.Region, Before: line.Spent}
	from := max(allocation.At(e.Since), line.Period.Start)
	rate := s.state.rates.of(line.Region, line.Budget, e.Since)
	if away := allocation.At(at) - from; away > 0 && rate.Over > 0 {
		d.Estimated = true
		d.During = min(line.Exposed, rate.In(allocation.Duration(away)))
	}
	return d
}

// pastStrandings are the records that have ended, the latest first.
func (s *Service) pastStrandings(f StrandedFilter) []Stranding {
	out := []Stranding{}
	for _, d := range s.state.strandings {
		for _, e := range d.value.Entries {
			if e.Ended != nil && (f.Region == "" || f.Region == e.Region) && f.selects(s.state.budgets[e.Budget]) {
				out = append(out, e)
			}
		}
	}
	slices.SortFunc(out, func(a, b Stranding) int {
		return cmp.Or(b.Ended.Compare(*a.Ended), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Region, b.Region))
	})
	return out[:min(len(out), maxPastStrandings)]
}

// sortedUnits are the units of a report in their order.
func sortedUnits(total map[string]StrandedTotal) []string { return slices.Sorted(maps.Keys(total)) }
