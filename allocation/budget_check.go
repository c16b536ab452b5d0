package allocation

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// Validate returns all that is wrong as Problems, or nil. It holds for a budget
// as written and for one with its defaults filled in.
func (b Budget) Validate() error {
	var found Problems
	labels, fault := parseName(b.Name)
	if fault != nil {
		found = append(found, *fault)
	}
	const unitForm = "use 1 to 64 of a-z 0-9 _ beginning with a letter, like requests or usd_micros"
	if b.Unit == "" {
		found.add("unit", "is missing", unitForm)
	} else if !validUnit(b.Unit) {
		found.add("unit", fmt.Sprintf("%.70q is not a unit", b.Unit), unitForm)
	}
	switch {
	case b.Limit == nil:
		found.add("limit", "is missing; 0 refuses all", "say how many units a period has")
	case *b.Limit < 0 || *b.Limit > MaxUnits:
		found.add("limit", fmt.Sprintf("is %d", *b.Limit), fmt.Sprintf("use 0 to %d", MaxUnits))
	}
	windowFault := b.Window.Validate()
	if list, ok := windowFault.(Problems); ok {
		found = append(found, list...)
	}
	found = append(found, Labels(b.Match).problems("match")...)
	b.checkOpening(&found)
	b.checkOverride(&found)
	b.checkCounted(&found)
	b.checkProtected(&found)
	b.checkLadder(&found)
	b.checkTemplate(&found)
	b.checkTimes(&found, windowFault == nil)
	b.checkAdmission(&found)
	b.checkEnforcement(&found)
	b.checkThresholds(&found)
	b.checkPolicy(&found, labels)
	return found.err()
}

// parseName returns the labels of the {label} parts, those before the fault if there is one.
func parseName(name string) (labels []string, fault *FieldError) {
	wrong := func(problem, fix string) ([]string, *FieldError) {
		return labels, &FieldError{Field: "budget", Problem: problem, Fix: fix}
	}
	if name == "" || len(name) > MaxName {
		return wrong(fmt.Sprintf("has %d characters", len(name)), "give a name of 1 to 200")
	}
	for rest := name; rest != ""; {
		c := rest[0]
		if c != '{' {
			if !unreserved(c) && c != '/' || c == '~' {
				return wrong(fmt.Sprintf("holds %q", c), "use letters, digits, . _ - / and {label} parts")
			}
			rest = rest[1:]
			continue
		}
		label, after, closed := strings.Cut(rest[1:], "}")
		if !closed || !validLabelName(label) {
			return wrong("a { is not followed by a label's name and }", "write a template's parts like {caller}")
		}
		if slices.Contains(labels, label) {
			return wrong("{"+label+"} stands twice", "name each label once")
		}
		labels, rest = append(labels, label), after
	}
	// Such parts are cleaned out of a URL's path, which would then name another budget.
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return wrong("a part between slashes is empty, . or ..", "give each part a name, like acme/requests")
		}
	}
	return labels, nil
}

func validUnit(unit string) bool {
	return validLabelName(unit) && !strings.ContainsAny(unit, ".-")
}

// ValidRegion says whether name can name a region: 1 to 63 of a-z 0-9 -.
func ValidRegion(name string) bool {
	if name == "" || len(name) > 63 {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

func (b *Budget) checkTemplate(found *Problems) {
	checkChoice(found, "missing_label", b.MissingLabel, MissingLabelRefuse, MissingLabelUnchecked)
	if !b.IsTemplate() {
		if b.MaxInstances != 0 {
			found.add("max_instances", "is only for templates", "leave it out, or put a {label} into the name")
		}
		if b.MissingLabel != "" {
			found.add("missing_label", "is only for templates", "leave it out, or put a {label} into the name")
		}
		return
	}
	n := b.MaxInstances
	if n < 0 || n > MaxMaxInstances {
		found.add("max_instances", fmt.Sprintf("is %d", n), fmt.Sprintf("use 1 to %d", MaxMaxInstances))
		return
	}
	orDefault(&n, DefaultMaxInstances)
	// Reports add up the limits of all instances in an int64.
	hi, lo := bits.Mul64(uint64(max(0, b.LimitOrZero())), uint64(n))
	if hi != 0 || lo > uint64(Never) {
		found.add("max_instances", fmt.Sprintf("limit times max_instances (%d) overflows 64 bits", n), "lower one of them")
	}
}

func (b *Budget) checkTimes(found *Problems, windowValid bool) {
	inRange := func(field string, d, most Duration) bool {
		if d >= 0 && d <= most {
			return true
		}
		found.add(field, fmt.Sprintf("is %s", d), fmt.Sprintf("use at most %s", most))
		return false
	}
	inRange("longest_reservation", b.LongestReservation, MaxReservation)
	inRange("max_evidence_age", b.MaxEvidenceAge, MaxMaxEvidenceAge)
	inRange("wait_for_share", b.WaitForShare, MaxWaitForShare)
	alone := b.RunsAloneFor
	if !inRange("runs_alone_for", alone, MaxRunsAloneFor) || !windowValid {
		return
	}
	orDefault(&alone, DefaultRunsAloneFor)
	// Each open term is a document in etcd and rows in every owner. A single period is one term.
	if term := b.Window.TermLength(alone); b.Window.Once == nil && alone/MaxOpenTerms > term {
		found.add("runs_alone_for", fmt.Sprintf("%s would hold more than %d terms of %s open", alone, MaxOpenTerms, term),
			fmt.Sprintf("use at most %s, or a longer window", term*MaxOpenTerms))
	}
}

func (b *Budget) checkAdmission(found *Problems) {
	checkChoice(found, "admission_id", b.AdmissionID, AdmissionIDRequired, AdmissionIDGenerated)
	checkChoice(found, "on_lapse", b.OnLapse, OnLapseSpend, OnLapseRelease)
	checkChoice(found, "on_stale_evidence", b.OnStaleEvidence, OnStaleRefuse, OnStaleAdmit)
	if b.OnStaleEvidence != "" && b.MaxEvidenceAge == 0 {
		found.add("on_stale_evidence", "counts only with max_evidence_age", "give max_evidence_age, or leave this out")
	}
	switch b.OnExhausted {
	case 0, 402, 429:
	default:
		found.add("on_exhausted", fmt.Sprintf("is %d", b.OnExhausted), "use 429 or 402")
	}
}

func checkChoice(found *Problems, field, value string, choices ...string) {
	if value != "" && !slices.Contains(choices, value) {
		found.add(field, fmt.Sprintf("is %.40q", value), "use "+strings.Join(choices, " or "))
	}
}

func (b *Budget) checkPolicy(found *Problems, labels []string) {
	p := b.Allocation
	switch p.Policy {
	case PolicyFixed:
		if p.Region != "" || p.HashOf != "" || p.RegionFrom != "" {
			found.add("allocation", "policy fixed has a region, hash_of or region_from", "give weights only, or use policy home")
		}
		if k := p.KeepPercent; k < 0 || k > MaxKeepPercent {
			found.add("allocation.keep_percent", fmt.Sprintf("is %d", k), fmt.Sprintf("use 0 to %d", MaxKeepPercent))
		}
		if b.checkWeights(found) && b.IsTemplate() {
			b.checkInstanceSplit(found)
		}
	case PolicyHome:
		b.checkHome(found, labels)
	case PolicyDemand:
		b.checkDemand(found)
	default:
		found.add("allocation.policy", fmt.Sprintf("is %.40q", p.Policy), "use fixed, demand or home")
	}
	p.checkOwnFields(found)
}

func (b *Budget) checkWeights(found *Problems) bool {
	const field = "allocation.weights"
	weights, before := b.Allocation.Weights, len(*found)
	if len(weights) == 0 || len(weights) > MaxRegionsPerBudget {
		found.add(field, fmt.Sprintf("names %d regions", len(weights)),
			fmt.Sprintf("give 1 to %d regions a weight, like {us-east: 3, eu-west: 2}", MaxRegionsPerBudget))
		return false
	}
	var sum int64
	for _, region := range slices.Sorted(maps.Keys(weights)) {
		if !ValidRegion(region) {
			found.add(field, fmt.Sprintf("%.70q is not a region's name", region), "use 1 to 63 of a-z 0-9 -")
		}
		weight := weights[region]
		if weight < 0 || weight > MaxWeightSum {
			found.add(field, fmt.Sprintf("%.70s has weight %d", region, weight), fmt.Sprintf("use 0 to %d", MaxWeightSum))
			continue
		}
		sum += weight // at most MaxRegionsPerBudget times MaxWeightSum
	}
	if len(*found) > before {
		return false
	}
	if sum == 0 || sum > MaxWeightSum {
		found.add(field, fmt.Sprintf("add up to %d", sum), fmt.Sprintf("use a sum of 1 to %d", MaxWeightSum))
		return false
	}
	return true
}

// checkInstanceSplit refuses a template whose split leaves a weighted region
// nothing: no instance could ever be served there, and no rebalance moves single instances.
func (b *Budget) checkInstanceSplit(found *Problems) {
	limit := b.LimitOrZero()
	if limit <= 0 {
		return // refuses all, everywhere, as declared
	}
	split := SplitFixed(limit-b.Kept(limit), b.Allocation.Weights)
	for _, region := range slices.Sorted(maps.Keys(split)) {
		if split[region] == 0 && b.Allocation.Weights[region] > 0 {
			found.add("allocation.weights", fmt.Sprintf("leave region %s 0 of each instance's %d", region, limit),
				"raise the limit or its weight, give it weight 0, or use policy home with hash_of or region_from")
		}
	}
}

func (b *Budget) checkHome(found *Problems, labels []string) {
	p := b.Allocation
	if len(p.Weights) != 0 {
		found.add("allocation.weights", "are for policy fixed", "leave them out, or use policy fixed")
	}
	if p.KeepPercent != 0 {
		found.add("allocation.keep_percent", "is for policy fixed", "leave it out, or use policy fixed")
	}
	given := 0
	for _, value := range []string{p.Region, p.HashOf, p.RegionFrom} {
		if value != "" {
			given++
		}
	}
	if given != 1 {
		found.add("allocation", fmt.Sprintf("policy home has %d of region, hash_of and region_from", given), "give exactly one")
	}
	if p.Region != "" && !ValidRegion(p.Region) {
		found.add("allocation.region", fmt.Sprintf("%.70q is not a region's name", p.Region), "use 1 to 63 of a-z 0-9 -")
	}
	for field, label := range map[string]string{"hash_of": p.HashOf, "region_from": p.RegionFrom} {
		if label != "" && !slices.Contains(labels, label) {
			found.add("allocation."+field, fmt.Sprintf("%.70q is not a {label} of the budget's name", label),
				"name one of them; a budget that is no template takes region")
		}
	}
}
