package allocation

import "slices"

// The trade: what stranded permits cost, beside what one home for the whole budget would have cost in the same period,
// for the same demand. Take a limit of 100 of which us-east held 60 and eu-west 40; us-east was cut off after 10, and went
// on to spend 20; eu-west asked for 70.
//
//	with shares             us-east admits 30, eu-west 40: 30 refused, with 30 permits stranded; nobody waits
//	all of it in eu-west    us-east waits for a round trip for 10, and gets no answer for 20; eu-west admits 70
//	all of it in us-east    us-east admits 30; eu-west gets no answer from the cut on
//
// The arithmetic of the home is that of the simulator's `home` alternative, over a whole period instead of ticks.

// RegionDemand is what one region's callers asked of a budget in one period: what it spent, and what it had to refuse.
type RegionDemand struct {
	Region string `json:"region"`
	Before int64  `json:"before"` // until the cut
	During int64  `json:"during"` // while it lasted
	// Estimated: the region was cut off, and what it did meanwhile is taken from its rate before.
	Estimated bool `json:"estimated,omitempty"`
}

// HomeOutcome is what a single home would have made of the demand. Each unit is in one of Admitted, Unreachable and
// OverLimit; Delayed are those of the admitted that would have waited for a round trip to another region.
type HomeOutcome struct {
	Home        string `json:"home"`
	Admitted    int64  `json:"admitted"`
	Delayed     int64  `json:"delayed"`
	Unreachable int64  `json:"unreachable"` // refused: the home could not be asked
	OverLimit   int64  `json:"over_limit"`  // refused: the limit was reached
}

// Refused is all that the home would not have admitted.
func (o HomeOutcome) Refused() int64 { return addUp(o.Unreachable, o.OverLimit) }

// SingleHome is the outcome with the whole budget in one region, while the regions in cut could reach no other and be
// reached by none. The home bears any load, and nobody takes over. Within each of the two spans regions are taken to ask
// evenly, so that what the limit refuses is divided between the home's callers and others in proportion.
func SingleHome(home string, limit int64, demand []RegionDemand, cut []string) HomeOutcome {
	out := HomeOutcome{Home: home}
	isCut := func(r string) bool { return slices.Contains(cut, r) }
	var before, during, beforeAway, duringAway int64
	for _, d := range demand {
		reached := d.Region == home || !isCut(home) && !isCut(d.Region)
		before = addUp(before, d.Before)
		if d.Region != home {
			beforeAway = addUp(beforeAway, d.Before)
		}
		switch {
		case !reached:
			out.Unreachable = addUp(out.Unreachable, d.During)
		case d.Region != home:
			during, duringAway = addUp(during, d.During), addUp(duringAway, d.During)
		default:
			during = addUp(during, d.During)
		}
	}
	first := min(before, max(0, limit))
	second := min(during, max(0, limit)-first)
	out.Admitted = first + second
	out.OverLimit = addUp(before-first, during-second)
	out.Delayed = part(first, beforeAway, before) + part(second, duringAway, during)
	return out
}

// part is n·share/whole, rounded down, of a share that is not above the whole.
func part(n, share, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return mulDiv(n, min(share, whole), whole)
}
