package scenario

import (
	"fmt"

	"tranche/allocation"
)

// view shows one budget of a report.
type view struct {
	r      *Report
	budget int
	unit   string
}

func (v view) summary(design string) Summary {
	s, _ := v.r.Summary(design, v.r.Declared[v.budget].Name)
	return s
}

// verdict tells the trade in sentences: what a cut strands here, what it refuses there, and what the other days cost.
func (v view) verdict() []string {
	var out []string
	for _, x := range v.r.Incidents {
		if x.Budget != v.r.Declared[v.budget].Name || len(out) == 4 {
			continue
		}
		var ours, home IncidentPart
		for _, p := range x.Designs {
			switch p.Design {
			case NameTranche:
				ours = p
			case NameHome:
				home = p
			}
		}
		out = append(out, v.during(x, ours, home))
	}
	ours, home, later := v.summary(NameTranche), v.summary(NameHome), v.summary(NameLater)
	if home.P99Micros > 0 {
		var far int64
		for _, region := range home.Regions {
			if region.P50Micros > 0 {
				far += region.Requests
			}
		}
		out = append(out, fmt.Sprintf("With the %s, %s of all requests wait for another region, on any day: up to %s. With Tranche none does.",
			v.r.HomeName(), percentOf(far, home.Requests), millis(home.P99Micros)))
	}
	last := fmt.Sprintf("Tranche admitted %s of what a perfect counter would have, and %s above the limit.",
		percent(ours.OfPossible), orNothing(ours.Over, v.unit))
	if later.Over > 0 {
		last += fmt.Sprintf(" Counters that synchronize later admitted %s %s above it: that is what a soft cap costs.", grouped(later.Over), v.unit)
	}
	return append(out, last)
}

func orNothing(n int64, unit string) string {
	if n == 0 {
		return "nothing"
	}
	return grouped(n) + " " + unit
}

// during tells one incident.
func (v view) during(x Incident, ours, home IncidentPart) string {
	text := fmt.Sprintf("While %s (%s)", x.Says, x.when())
	if x.Region == "" {
		return text + fmt.Sprintf(", Tranche admitted %s of demand%s; the %s %s.", percentOf(ours.There.Admitted, ours.There.Demanded),
			because(ours.There), v.r.HomeName(), percentOf(home.There.Admitted, home.There.Demanded))
	}
	text += fmt.Sprintf(", with Tranche %s had %s of its demand admitted", x.Region, percentOf(ours.There.Admitted, ours.There.Demanded))
	if ours.Stranded > 0 {
		text += fmt.Sprintf("; up to %s permits were stranded there", grouped(ours.Stranded))
	}
	if n := ours.Elsewhere.RefusedBy[string(allocation.CapacityStranded)]; n > 0 {
		text += fmt.Sprintf(", and the other regions refused %s for it", grouped(n))
	}
	text += fmt.Sprintf(". With the %s, %s had %s admitted", v.r.HomeName(), x.Region, percentOf(home.There.Admitted, home.There.Demanded))
	lost := home.Elsewhere.RefusedBy[Unreachable] + home.Elsewhere.RefusedBy[string(allocation.DatabaseUnavailable)]
	if lost > 0 {
		text += fmt.Sprintf(", and the other regions were refused %s because of it", grouped(lost))
	}
	return text + "."
}

// because names what was refused most.
func because(s Served) string {
	if s.Refused == 0 {
		return ""
	}
	return " and refused " + reasons(s.RefusedBy)
}
