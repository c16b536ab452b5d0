package allocation

import (
	"errors"
	"fmt"
	"maps"
)

// ErrNotCompensated says why a raise would not reach the other regions.
var ErrNotCompensated = errors.New("cannot be compensated")

// Compensate is the policy that, with the limit raised by units, gives all of the raise to other regions than the lost one:
// its part stays what it is, since more of it would be stranded too. parts is what each region has of a period now. Of a
// limit of 100, split 3 to 2, of which 50 are stranded in us-east:
//
//	before    us-east 60   eu-west 40     limit 100   weights 3, 2
//	after     us-east 60   eu-west 90     limit 150   weights 60, 90
//
// The others share the raise in proportion to what they have. A demand policy needs no change: what is unallocated goes to
// those who ask. Of the raise, units are what keep_percent leaves to be given. Sums that are too large for weights are scaled
// down; what that rounds off is taken from the lost region first.
func (p Policy) Compensate(lost string, units int64, parts map[string]int64) (Policy, error) {
	switch p.Policy {
	case PolicyDemand:
		return p, nil
	case PolicyFixed:
	default:
		return p, fmt.Errorf("the policy is %s, so no other region can spend the raise: %w", p.Policy, ErrNotCompensated)
	}
	if units <= 0 {
		return p, fmt.Errorf("keep_percent keeps all of the raise: %w", ErrNotCompensated)
	}
	others := map[string]int64{}
	sum := units
	for region, n := range parts {
		sum = addUp(sum, n)
		if _, weighted := p.Weights[region]; weighted && region != lost && n > 0 {
			others[region] = n
		}
	}
	if len(others) == 0 {
		return p, fmt.Errorf("no other region has a part of it: %w", ErrNotCompensated)
	}
	add := SplitFixed(units, weightsWithin(others, ""))
	next := maps.Clone(p.Weights)
	for region := range next {
		next[region] = addUp(parts[region], add[region])
	}
	p.Weights = weightsWithin(next, lost)
	return p, nil
}

// weightsWithin scales numbers down until they may be weights: down is rounded off, the others up, so that none that is
// above 0 becomes 0 but down.
func weightsWithin(parts map[string]int64, down string) map[string]int64 {
	var sum int64
	for _, n := range parts {
		sum = addUp(sum, n)
	}
	shift := 0
	for sum>>shift >= MaxWeightSum/2 {
		shift++
	}
	out := make(map[string]int64, len(parts))
	for region, n := range parts {
		whole := n >> shift
		if region != down && whole<<shift < n {
			whole++
		}
		out[region] = whole
	}
	return out
}
