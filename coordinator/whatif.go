package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// WhatIf is what would be stranded if a region were lost now, and how long the others would last.
type WhatIf struct {
	At          time.Time                `json:"at"`
	Revision    int64                    `json:"revision"`
	EvidenceAge int64                    `json:"evidence_age_ms"`
	Lose        string                   `json:"lose"`
	InContact   bool                     `json:"in_contact"` // if not, it is lost already, and this is what is stranded
	Budgets     []WhatIfBudget           `json:"budgets"`    // by name
	More        int                      `json:"more,omitempty"`
	Total       map[string]StrandedTotal `json:"total"` // by unit
	Notes       []string                 `json:"notes"`
}

// WhatIfBudget is one budget in which the region holds something.
type WhatIfBudget struct {
	Budget   string               `json:"budget"`
	Unit     string               `json:"unit"`
	Template bool                 `json:"template,omitempty"`
	Period   allocation.Period    `json:"period"`
	Lost     allocation.Remainder `json:"lost"` // of the running period
	Ahead    *StrandedAhead       `json:"ahead,omitempty"`
	LostRate allocation.Rate      `json:"lost_rate"` // what the region spent in the last hour

	Unallocated int64           `json:"unallocated"` // and not kept: what the others may still be granted
	Others      []WhatIfRegion  `json:"others"`
	OthersRate  allocation.Rate `json:"others_rate"`
	// Lasts is how long what the others may spend lasts at their own rate, LastsWithLoad if they take the lost region's load
	// too. Absent: longer than the period, or no rate is known.
	Lasts         *allocation.Duration `json:"lasts,omitempty"`
	LastsWithLoad *allocation.Duration `json:"lasts_with_load,omitempty"`
}

// WhatIfRegion is what another region may still spend of the running period.
type WhatIfRegion struct {
	Region    string               `json:"region"`
	Spendable int64                `json:"spendable"`
	Rate      allocation.Rate      `json:"rate"`
	Lasts     *allocation.Duration `json:"lasts,omitempty"`
}

// whatIf looks at all budgets that the filter selects; its region is the one to lose.
func (s *Service) whatIf(f StrandedFilter) (WhatIf, error) {
	at := s.now()
	s.state.mu.Lock()
	r := s.state.regions[f.Region]
	if r == nil || r.doc == nil {
		s.state.mu.Unlock()
		return WhatIf{}, invalid("lose", fmt.Sprintf("there is no region %.70q", f.Region), "list the regions to see their names")
	}
	h, member := r.holder()
	w := WhatIf{
		At: at.UTC(), Revision: s.state.revision, EvidenceAge: s.evidenceAge().Milliseconds(), Lose: f.Region,
		InContact: r.inContact(at, s.config.ReportUnreachableAfter), Budgets: []WhatIfBudget{}, Total: map[string]StrandedTotal{},
	}
	names := slices.Sorted(maps.Keys(s.state.terms))
	w.Notes = s.whatIfNotes(w, member, at)
	s.state.mu.Unlock()
	var sums StrandedReport
	sums.Total = w.Total
	for part := range slices.Chunk(names, strandedAtOnce) {
		s.state.mu.Lock()
		for _, name := range part {
			if !member || !f.selects(s.state.budgets[name]) {
				continue
			}
			b, held := s.whatIfBudget(name, h, at)
			if !held {
				continue
			}
			sums.add(StrandedLine{Unit: b.Unit, Remainder: b.Lost, Ahead: b.Ahead})
			if len(w.Budgets) < maxStrandedLines {
				w.Budgets = append(w.Budgets, b)
			} else {
				w.More++
			}
		}
		s.state.mu.Unlock()
	}
	slices.SortFunc(w.Budgets, func(a, b WhatIfBudget) int { return cmp.Compare(a.Budget, b.Budget) })
	return w, nil
}

func (s *Service) whatIfNotes(w WhatIf, member bool, at time.Time) (notes []string) {
	switch {
	case !member:
		notes = append(notes, fmt.Sprintf("region %s has not called yet: it holds nothing", w.Lose))
	case !w.InContact:
		notes = append(notes, fmt.Sprintf("region %s does not call: this is stranded already", w.Lose))
	default:
		notes = append(notes, "it may spend on between its last statement and its loss: less would be stranded, never more")
	}
	rate := s.state.rates.of(w.Lose, "", at)
	if over := rate.Over.Std(); over < time.Hour {
		notes = append(notes, fmt.Sprintf("this coordinator has seen statements for %s only: rates are of that time, not of an hour", over))
	}
	return notes
}

// whatIfBudget is one budget; false if the incarnation holds nothing of it.
func (s *Service) whatIfBudget(name string, h allocation.Holder, at time.Time) (WhatIfBudget, bool) {
	line, held := s.lineIf(name, h, at)
	if !held {
		return WhatIfBudget{}, false
	}
	w := WhatIfBudget{
		Budget: name, Unit: line.Unit, Template: line.Template, Period: line.Period, Lost: line.Remainder, Ahead: line.Ahead,
		Others: []WhatIfRegion{}, LostRate: s.state.rates.of(h.Region, name, at),
	}
	l := s.state.runningTerm(name, allocation.At(at))
	if l == nil {
		return w, true
	}
	i, _ := l.Periods.Find(allocation.At(at))
	if !l.Template {
		w.Unallocated = l.Unallocated(i) - l.KeptAt(i)
	}
	var left int64
	seen := map[allocation.Holder]bool{}
	for _, a := range l.EntryAt(i).Allocations {
		if a.Region == h.Region || seen[a.Holder] || s.causeOf(a.Holder, *l, at) != "" {
			continue
		}
		seen[a.Holder] = true
		st, _ := s.lastStatement(a.Holder, refOf(*l))
		o := WhatIfRegion{Region: a.Region, Spendable: l.RemainderAt(a.Holder, i, st, 0).Stranded, Rate: s.state.rates.of(a.Region, name, at)}
		left, w.OthersRate = allocation.SumUp(left, o.Spendable), w.OthersRate.Add(o.Rate)
		if !l.Template {
			o.Lasts = lastsWithin(o.Rate, o.Spendable, w.Period, at)
		}
		w.Others = append(w.Others, o)
	}
	if !l.Template {
		left = allocation.SumUp(left, w.Unallocated)
		w.Lasts = lastsWithin(w.OthersRate, left, w.Period, at)
		w.LastsWithLoad = lastsWithin(w.OthersRate.Add(w.LostRate), left, w.Period, at)
	}
	return w, true
}

// lastsWithin is how long permits last; nil if that is not before the period's end.
func lastsWithin(r allocation.Rate, permits int64, p allocation.Period, at time.Time) *allocation.Duration {
	d, ends := r.Lasts(permits)
	if !ends || p.End != allocation.Never && int64(d) >= int64(p.End)-int64(allocation.At(at)) {
		return nil
	}
	return &d
}

// lineIf is the line that the report would have if an incarnation could not be asked.
func (s *Service) lineIf(budget string, h allocation.Holder, at time.Time) (StrandedLine, bool) {
	for _, line := range s.linesOf(budget, at, func(l allocation.Ledger) []allocation.Holder {
		if names(l, h) {
			return []allocation.Holder{h}
		}
		return nil
	}) {
		return line, true
	}
	return StrandedLine{}, false
}
