package allocation

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// SplitFixed cuts limit by weight with the largest remainder, ties by region
// name, so that the parts add up to exactly limit. Every region of weights has
// an entry. Where no weight is above 0, or limit is not, all parts are 0.
//
// Weights are those of a valid Policy; others are moved into 0 to MaxWeightSum.
func SplitFixed(limit int64, weights map[string]int64) map[string]int64 {
	type part struct {
		region           string
		share, remainder uint64
	}
	parts := make([]part, 0, len(weights))
	var total uint64
	for region, weight := range weights {
		weight = min(max(weight, 0), MaxWeightSum)
		parts = append(parts, part{region: region, share: uint64(weight)})
		total += uint64(weight)
	}
	split := make(map[string]int64, len(parts))
	for region := range weights {
		split[region] = 0
	}
	if total == 0 || limit <= 0 {
		return split
	}
	left := uint64(limit)
	for i := range parts {
		// The product needs 128 bits; the quotient is at most limit, since no weight exceeds the total.
		hi, lo := bits.Mul64(uint64(limit), parts[i].share)
		parts[i].share, parts[i].remainder = bits.Div64(hi, lo, total)
		left -= parts[i].share
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(b.remainder, a.remainder), cmp.Compare(a.region, b.region))
	})
	for i, p := range parts {
		// Fewer are left than regions with a remainder, so a weight of 0 gets nothing.
		if uint64(i) < left {
			p.share++
		}
		split[p.region] = int64(p.share)
	}
	return split
}

// Split returns what each region may spend per period, for a template per
// instance. Every one of regions has an entry.
//
//   - fixed: by weight, of all but what is Kept; a weighted region that is not
//     among regions keeps its part, which stays unallocated until it is registered.
//   - demand: what a new term hands out at once; the rest stays unallocated.
//   - home with region: the whole limit there, nothing elsewhere.
//   - home with hash_of or region_from: the whole limit in every region. That is
//     no sum over regions: each instance has one home, which alone may spend that
//     instance's limit; Home says which.
func (b Budget) Split(limit int64, regions []string) map[string]int64 {
	limit = max(0, limit)
	split := make(map[string]int64, len(regions))
	for _, region := range regions {
		split[region] = 0
	}
	switch {
	case b.Allocation.Policy == PolicyFixed:
		maps.Copy(split, SplitFixed(limit-b.Kept(limit), b.Allocation.Weights))
	case b.Allocation.Policy == PolicyDemand:
		return b.demandBase(limit, regions, nil)
	case b.Allocation.Policy != PolicyHome: // not valid: nobody gets anything
	case b.Allocation.Region != "":
		split[b.Allocation.Region] = limit
	case b.Allocation.HashOf != "" || b.Allocation.RegionFrom != "":
		for _, region := range regions {
			split[region] = limit
		}
	}
	return split
}

// Kept is how much of a limit stays unallocated for a region that starts with nothing: KeepPercent of it, rounded up.
func (b Budget) Kept(limit int64) int64 {
	if b.Allocation.Policy != PolicyFixed || limit <= 0 {
		return 0
	}
	percent := min(max(b.Allocation.KeepPercent, 0), MaxKeepPercent)
	return limit/100*percent + (limit%100*percent+99)/100
}

// grantable is what h may be granted now: all that is unallocated but what is kept for a region that begins anew. A move or
// other weights raise the one's target before the other has returned a permit; the taker waits for that, and is not served
// from what is kept meanwhile: the giver may never return any.
func (l Ledger) grantable(e Entry, h Holder) int64 {
	free := l.unallocated(e, h)
	if e.beganAnew(h) {
		return free
	}
	return max(0, free-l.kept(e))
}

// KeptAt is how much of what is unallocated in the period of index i no region that is there will get: what is kept, unless one
// began anew and has yet to be granted it.
func (l Ledger) KeptAt(i int) int64 {
	e := l.EntryAt(i)
	if slices.ContainsFunc(e.Allocations, func(a Allocation) bool { return a.Target > a.Held() && e.beganAnew(a.Holder) }) {
		return 0
	}
	return min(l.kept(e), l.Unallocated(i))
}

// kept is how much of an entry's limit is for a region that begins anew.
func (l Ledger) kept(e Entry) int64 { return Budget{Allocation: l.Policy}.Kept(e.Givable()) }

// beganAnew says whether another incarnation of h's region may still spend, or has spent, permits that were its own.
func (e Entry) beganAnew(h Holder) bool {
	return slices.ContainsFunc(e.Allocations, func(a Allocation) bool {
		return a.Region == h.Region && a.Incarnation != h.Incarnation && a.Held() > 0
	})
}

// SplitWarnings returns, in words and by region, where a split leaves little
// (under 1 % of the limit) or nothing, and what to do. It is for people at
// apply; nothing that it says is an error.
func (b Budget) SplitWarnings(split map[string]int64) []string {
	limit := b.LimitOrZero()
	if limit == 0 {
		return []string{"the limit is 0: every request that this budget applies to is refused"}
	}
	if b.Allocation.Policy != PolicyFixed {
		return nil // elsewhere than at home the answer is not_home, as declared
	}
	var warnings []string
	if kept := b.Kept(limit); kept > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%d of %d %s stay unallocated, for a region whose database lost its history and that starts with nothing", kept, limit, b.Unit))
	}
	for _, region := range slices.Sorted(maps.Keys(split)) {
		share, weight := split[region], b.Allocation.Weights[region]
		switch {
		case weight == 0:
			warnings = append(warnings, fmt.Sprintf(
				"region %s has no weight and gets nothing: it refuses every request of this budget; give it a weight to serve it there", region))
		case share == 0:
			warnings = append(warnings, fmt.Sprintf(
				"region %s has weight %d but gets 0 of %d %s: raise its weight or the limit, or use policy home", region, weight, limit, b.Unit))
		case share < limit/100 || (share == limit/100 && limit%100 != 0):
			warnings = append(warnings, fmt.Sprintf(
				"region %s gets only %d of %d %s per period, under 1 %%: raise its weight, or use policy home", region, share, limit, b.Unit))
		}
	}
	return warnings
}

// Home returns the region that alone may spend an instance's limit under policy
// home. instance is the template's ("" for a single budget); l are the labels of
// the request, or nil to read the value from the instance; regions are those
// that the term names. For the policies fixed and demand it returns "" and true: no region is the
// only one. It is false when the home cannot be told: region_from with a value
// that names none of regions, no regions, no such label.
func (b Budget) Home(instance string, l Labels, regions []string) (region string, ok bool) {
	return b.homeBy(&b.Allocation, instance, l, regions)
}

// homeBy is Home by another policy, that of a term.
func (b *Budget) homeBy(p *Policy, instance string, l Labels, regions []string) (region string, ok bool) {
	switch {
	case p.Policy == PolicyFixed || p.Policy == PolicyDemand:
		return "", true
	case p.Policy != PolicyHome:
		return "", false
	case p.Region != "":
		return p.Region, true
	case p.HashOf != "":
		if value := b.labelOf(p.HashOf, instance, l); value != "" {
			return rendezvous(value, regions)
		}
	case p.RegionFrom != "":
		value := b.labelOf(p.RegionFrom, instance, l)
		return value, value != "" && slices.Contains(regions, value)
	}
	return "", false
}

// labelOf returns a label's value, from the labels or else from the instance; "" if neither has it.
func (b *Budget) labelOf(label, instance string, l Labels) string {
	if value := l[label]; value != "" {
		return value
	}
	values, err := ParseInstance(instance)
	i := slices.Index(b.TemplateLabels(), label)
	if err != nil || i < 0 || i >= len(values) {
		return ""
	}
	return values[i]
}

// rendezvous picks the region whose hash with the value is the highest, so that
// a region that comes or goes moves only the values that it wins or had.
//
// The hash is the first 8 bytes, big-endian, of SHA-256 over the region, one 0
// byte, and the value; the lesser name wins a tie. It must never change: every
// stored term rests on it. The budget's name is left out on purpose, so that one
// caller has the same home in all budgets, and a request that hits two of them
// has a region that can serve it.
func rendezvous(value string, regions []string) (string, bool) {
	var best string
	var highest uint64
	for _, region := range regions {
		sum := sha256.Sum256([]byte(region + "\x00" + value))
		score := binary.BigEndian.Uint64(sum[:8])
		if best == "" || score > highest || (score == highest && region < best) {
			best, highest = region, score
		}
	}
	return best, best != ""
}
