package scenario

import "tranche/allocation"

// Incident is what one lasting event cost, in each design.
type Incident struct {
	Event   string              `json:"event"`
	Says    string              `json:"says"`
	Region  string              `json:"region,omitempty"` // that it hits; none: all
	At      allocation.Duration `json:"at"`
	Until   allocation.Duration `json:"until"`
	Felt    allocation.Duration `json:"felt_until"` // later than Until where a database came back empty: see felt
	Budget  string              `json:"budget"`
	Designs []IncidentPart      `json:"designs"`
}

// IncidentPart is one design's part of it, from the step in which the event begins to that in which it is felt no more.
type IncidentPart struct {
	Design    string `json:"design"`
	There     Served `json:"there"` // in the region that is hit
	Elsewhere Served `json:"elsewhere"`
	Stranded  int64  `json:"stranded_most"`
	Over      int64  `json:"over_admitted"`
}

// Served is what became of demand.
type Served struct {
	Demanded  int64            `json:"demanded"`
	Admitted  int64            `json:"admitted"`
	Refused   int64            `json:"refused"`
	RefusedBy map[string]int64 `json:"refused_by_reason"`
}

func (s *Served) add(t Totals) {
	s.Demanded += t.Demanded
	s.Admitted += t.Admitted
	s.Refused += t.Refused
	for reason, n := range t.RefusedBy {
		if s.RefusedBy == nil {
			s.RefusedBy = map[string]int64{}
		}
		s.RefusedBy[reason] += n
	}
}

func (r *Report) incidents(s Scenario) []Incident {
	var all []Incident
	for _, e := range s.Events {
		if !e.lasts() {
			continue
		}
		for b := range s.Budgets {
			from, to := int(e.At/s.Step), r.felt(s, e, b)
			x := Incident{
				Event: e.Kind, Says: e.says(), Region: e.Region, At: e.At, Until: e.Until, Budget: s.Budgets[b].Name,
				Felt: e.Until,
			}
			if end := allocation.Duration(to) * s.Step; end >= e.Until+s.Step {
				x.Felt = end
			}
			for d := range r.Series {
				bs := &r.Series[d].Budgets[b]
				p := IncidentPart{Design: r.Series[d].Name, Over: sum(bs.Over[from:to])}
				for i := range bs.Regions {
					t := bs.Regions[i].totals(from, to)
					if e.Region == "" || bs.Regions[i].Region == e.Region {
						p.There.add(t)
						p.Stranded += t.StrandedMost
					} else {
						p.Elsewhere.add(t)
					}
				}
				x.Designs = append(x.Designs, p)
			}
			all = append(all, x)
		}
	}
	return all
}

// felt is the step in which an event is felt no more: it has ended, and what a database held that came back empty is no
// longer stranded.
func (r *Report) felt(s Scenario, e Event, budget int) int {
	to := int((e.Until + s.Step - 1) / s.Step)
	if e.Kind != DatabaseLoss || e.Data != DataLost {
		return to
	}
	stranded := r.series(NameTranche, budget).Regions[s.region(e.Region)].Stranded
	for to < len(stranded) && stranded[to] > 0 {
		to++
	}
	return to
}
