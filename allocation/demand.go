package allocation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Policy demand hands permits out as they are asked for. Take a limit of 300 over three regions:
//
//	a new term      50 to each; 150 stay unallocated
//	a runs low      it is given what it uses within its runway, at most a fair part of what is left: 75, 37, 19, … 1
//	nothing left    b and c, which use little, are asked to return what they will not use soon; a is given it as they do
//
// Chunks shrink with what is left, and never below a least one, so that the end costs few steps. Nothing here moves a
// permit by itself: it sets targets, and Count and grant do the rest (invariant 4).

// Parts of a limit, and times.
const (
	demandBasePart  = 2          // a new term hands out one part in so many, and keeps the rest
	demandShortKept = 10         // windows that are too short to ask within one keep one part in so many
	DemandShortest  = 5 * Second // a window below it is not topped up; its bases follow what was seen
	leastChunkPart  = 1000       // the least chunk is one part of the limit in so many
	DefaultRunway   = 2 * Second
)

// followsDemand says whether the ledger's split is moved by demand.
func (l Ledger) followsDemand() bool { return l.Policy.Policy == PolicyDemand && !l.Template }

// Runway is how long, in seconds, a region of a demand budget is to go on from what it holds.
func (p Policy) Runway() Duration { return max(DefaultRunway, p.LeastRunway) }

// NeedsFor is what a region that admits `rate` units a minute needs to go on for the policy's runway, rounded up.
func (p Policy) NeedsFor(rate int64) int64 {
	return min(MaxUnits, (multiply(max(0, rate), int64(p.Runway()))+59)/60)
}

// LeastChunk is the least that is granted or recalled at once of a limit.
func LeastChunk(limit int64) int64 { return max(1, limit/leastChunkPart) }

// bound moves n into the region's min and max.
func (p Policy) bound(region string, n int64) int64 {
	if most, bounded := p.Max[region]; bounded {
		n = min(n, most)
	}
	return max(n, p.Min[region])
}

// demandBase is what a new term hands out at once: a part of the limit, evenly or by what was seen, within min and max.
// Where something was seen, each region still has an eighth of an even part, so that none begins with nothing.
func (b Budget) demandBase(limit int64, regions []string, seen map[string]int64) map[string]int64 {
	base := make(map[string]int64, len(regions))
	if len(regions) == 0 || limit <= 0 {
		return base
	}
	var sum int64
	for _, r := range regions {
		sum = addUp(sum, max(0, seen[r]))
	}
	weights := make(map[string]int64, len(regions))
	for _, r := range regions {
		weights[r] = addUp(max(0, seen[r]), sum/int64(8*len(regions))+1)
	}
	part := limit / demandBasePart
	if b.Window.Every > 0 && b.Window.Every < DemandShortest {
		part = limit - limit/demandShortKept
	}
	floors := map[string]int64{}
	for r, n := range splitScaled(part, weights) {
		base[r], floors[r] = b.Allocation.bound(r, n), b.Allocation.Min[r]
	}
	return fit(base, floors, limit)
}

// splitScaled is SplitFixed for weights of any size.
func splitScaled(n int64, weights map[string]int64) map[string]int64 {
	var most int64
	for _, w := range weights {
		most = max(most, w)
	}
	small := maps.Clone(weights)
	for shift := most / (MaxWeightSum / MaxRegionsPerBudget); shift > 0; shift = 0 {
		for r, w := range small {
			small[r] = w / (shift + 1)
		}
	}
	return SplitFixed(n, small)
}

// fit lowers what is above the floors, in proportion, until the sum is at most the limit; then the floors, too.
func fit(wanted, floors map[string]int64, limit int64) map[string]int64 {
	var sum, low int64
	for r, n := range wanted {
		sum, low = addUp(sum, n), addUp(low, min(n, floors[r]))
	}
	if sum <= limit {
		return wanted
	}
	if low > limit {
		return splitScaled(limit, floors)
	}
	above := make(map[string]int64, len(wanted))
	for r, n := range wanted {
		above[r] = max(0, n-floors[r])
	}
	out := splitScaled(limit-low, above)
	for r, n := range wanted {
		out[r] += min(n, floors[r])
	}
	return out
}

// demandTargets are the targets of an entry when its budget or the members changed: what each holder has, at least the
// base, within the policy and the limit. What demand moved is not undone by a change of something else.
func (e *Entry) demandTargets(b Budget, m Members, base map[string]int64) map[string]int64 {
	wanted, floors := map[string]int64{}, map[string]int64{}
	for _, h := range m.Holders {
		n := base[h.Region]
		if a := e.find(h, General); a != nil {
			n = max(n, a.Target)
		}
		wanted[h.Region], floors[h.Region] = b.Allocation.bound(h.Region, n), b.Allocation.Min[h.Region]
	}
	return fit(wanted, floors, *b.Limit)
}

// holdersBase is demandBase, and the min of those holders whom the term does not name: their region came, or went on, after
// it was opened.
func (b Budget) holdersBase(limit int64, regions []string, m Members) map[string]int64 {
	base, floors, more := b.demandBase(limit, regions, m.Seen), map[string]int64{}, false
	if limit <= 0 {
		return base
	}
	for _, h := range m.Holders {
		if least := b.Allocation.Min[h.Region]; least > base[h.Region] && !slices.Contains(regions, h.Region) {
			base[h.Region], more = least, true
		}
	}
	if !more {
		return base
	}
	for r := range base {
		floors[r] = b.Allocation.Min[r]
	}
	return fit(base, floors, limit)
}

// Rebase sets the targets of all periods from index `from` on, which have not begun, to what a new term would hand out
// after what was seen. It changes nothing where that lies within a tenth of the limit from what is set.
func (l Ledger) Rebase(b Budget, from int, m Members, gen Generation) (Ledger, bool, error) {
	if !l.followsDemand() || from >= l.Periods.Len() {
		return l, false, nil
	}
	e := l.EntryAt(from)
	base := b.holdersBase(e.Givable(), l.Regions, m)
	far := slices.ContainsFunc(m.Holders, func(h Holder) bool {
		var target int64
		if a := e.find(h, General); a != nil {
			target = a.Target
		}
		d := target - base[h.Region]
		return max(d, -d) > max(1, e.Limit/10)
	})
	if !far {
		return l, false, nil
	}
	l = l.cut(from)
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.From < from {
			continue
		}
		for _, h := range m.Holders {
			e.allocation(h, General).Target = base[h.Region]
		}
	}
	l = l.grant(gen)
	if len(l.Entries) > MaxEntries {
		return l, false, ErrTooManyEntries
	}
	return l, true, nil
}

// checkDemand finds what is wrong with the fields of policy demand.
func (b *Budget) checkDemand(found *Problems) {
	p := b.Allocation
	if b.IsTemplate() {
		found.add("allocation.policy", "demand is for single budgets: the split of a template's instances is fixed within a term",
			"use fixed, or home with hash_of or region_from")
	}
	if len(p.Weights) != 0 {
		found.add("allocation.weights", "are for policy fixed", "leave them out, or give min and max")
	}
	if p.Region != "" || p.HashOf != "" || p.RegionFrom != "" {
		found.add("allocation", "policy demand has a region, hash_of or region_from", "leave them out, or use policy home")
	}
	if p.KeepPercent != 0 {
		found.add("allocation.keep_percent", "is for policy fixed", "leave it out: policy demand always keeps a part unallocated")
	}
	if p.LeastRunway < 0 || p.LeastRunway > MaxLeastRunway {
		found.add("allocation.least_runway", fmt.Sprintf("is %s", p.LeastRunway), fmt.Sprintf("use at most %s", MaxLeastRunway))
	}
	var sum int64
	for _, field := range []struct {
		name  string
		units map[string]int64
	}{{"min", p.Min}, {"max", p.Max}} {
		path := "allocation." + field.name
		if len(field.units) > MaxRegionsPerBudget {
			found.add(path, fmt.Sprintf("names %d regions", len(field.units)), fmt.Sprintf("name at most %d", MaxRegionsPerBudget))
		}
		for _, region := range slices.Sorted(maps.Keys(field.units)) {
			n := field.units[region]
			if !ValidRegion(region) {
				found.add(path, fmt.Sprintf("%.70q is not a region's name", region), "use 1 to 63 of a-z 0-9 -")
			}
			if n < 0 || n > MaxUnits {
				found.add(path, fmt.Sprintf("%.70s has %d", region, n), fmt.Sprintf("use 0 to %d", MaxUnits))
				continue
			}
			if field.name == "min" {
				sum = addUp(sum, n)
			} else if low := p.Min[region]; n < low {
				found.add(path, fmt.Sprintf("%.70s has at most %d, and a min of %d", region, n, low), "raise max or lower min")
			}
		}
	}
	if limit := b.LimitOrZero(); sum > limit && limit > 0 {
		found.add("allocation.min", fmt.Sprintf("add up to %d, and the limit is %d", sum, limit), "use a sum of at most the limit")
	}
}

// checkOwnFields refuses what belongs to another policy, so that nobody believes that it counts.
func (p Policy) checkOwnFields(found *Problems) {
	if p.Policy != PolicyDemand && (len(p.Min) != 0 || len(p.Max) != 0 || p.LeastRunway != 0) {
		field := cmp.Or(given("min", len(p.Min) != 0), given("max", len(p.Max) != 0), "least_runway")
		found.add("allocation."+field, "is for policy demand", "leave it out, or use policy demand")
	}
	if p.Policy != PolicyHome && p.Forward {
		found.add("allocation.forward", "is for policy home", "leave it out: in other policies every region serves its own requests")
	}
}

func given(name string, is bool) string {
	if is {
		return name
	}
	return ""
}
