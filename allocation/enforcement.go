package allocation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// The values of Budget.Enforcement. Enforce is the default.
//
//	          lets through     charges
//	enforce   what fits        what fits
//	shadow    everything       what enforcement would have admitted, and nothing else
//	meter     everything       everything: as far as it fits as spent, the rest as overdraft
//
// So neither ever spends above a limit (invariant 2), and turning enforcement on finds the counters as they would be.
const (
	Enforce = "enforce"
	Shadow  = "shadow"
	Meter   = "meter"
)

// MaxShadowAgain bounds how long a budget that was enforced may be in shadow or metered.
const MaxShadowAgain = 7 * Day

// EnforceFor names requests for which a budget is enforced although its Enforcement is shadow or meter.
type EnforceFor struct {
	// Percent of the admission ids, by a hash of the id that never changes: 1 to 100. 0: none.
	Percent int64 `json:"percent,omitempty" yaml:"percent,omitempty"`
	// Match are labels that a request must carry, all of them. None: no request by its labels.
	Match map[string]string `json:"match,omitempty" yaml:"match,omitempty"`
}

// enforces says whether requests may be refused for this budget at some time: what is enforced always.
func (b *Budget) enforces() bool { return b.Enforcement == "" || b.Enforcement == Enforce }

// EnforcementOf is what the budget does to a request at an instant, which is to be the owner's database clock: after
// EnforcementUntil it enforces.
func (b *Budget) EnforcementOf(r Request, now Instant) string {
	switch {
	case b.enforces(), b.EnforcementUntil != 0 && now >= b.EnforcementUntil:
		return Enforce
	case b.EnforceFor == nil:
		return b.Enforcement
	case len(b.EnforceFor.Match) > 0 && hitBy(Budget{Match: b.EnforceFor.Match}, r.Labels):
		return Enforce
	case percentOf(r.Key) < b.EnforceFor.Percent:
		return Enforce
	}
	return b.Enforcement
}

// Unenforced says whether the region knows budgets that apply to a request, and none of them is enforced for it.
func (c *Catalogue) Unenforced(r Request, now Instant) bool {
	r.Labels = c.Complete(r.Labels)
	hits, missing := c.index.Match(r.Labels)
	return len(hits) > 0 && missing == nil && !slices.ContainsFunc(hits, func(h Hit) bool { return h.Budget.EnforcementOf(r, now) == Enforce })
}

// percentOf places an id in 0 to 99. The budget has no part in it, so that all budgets at 5 % enforce for the same ids.
func percentOf(k IDKey) int64 {
	sum := sha256.Sum256([]byte(k.Tenant + "\x00" + k.ID))
	return int64(binary.BigEndian.Uint64(sum[:8]) % 100)
}

func (b *Budget) checkEnforcement(found *Problems) {
	checkChoice(found, "enforcement", b.Enforcement, Enforce, Shadow, Meter)
	if b.enforces() {
		if b.EnforceFor != nil {
			found.add("enforce_for", "counts only with enforcement shadow or meter", "leave it out: the budget is enforced for every request")
		}
		if b.EnforcementUntil != 0 {
			found.add("enforcement_until", "counts only with enforcement shadow or meter", "leave it out: the budget is enforced already")
		}
		return
	}
	f := b.EnforceFor
	if f == nil {
		return
	}
	if f.Percent == 0 && len(f.Match) == 0 {
		found.add("enforce_for", "names no requests", "give percent or match, or leave it out")
	}
	if f.Percent < 0 || f.Percent > 100 {
		found.add("enforce_for.percent", fmt.Sprintf("is %d", f.Percent), "use 1 to 100")
	}
	*found = append(*found, Labels(f.Match).problems("enforce_for.match")...)
}

// Loosens says whether a change of a budget stops to enforce it for requests for which it is enforced before, and names
// the field. Such a change is an act of its own: it lets traffic above the limit.
func (b Budget) Loosens(before Budget) (field string, loosens bool) {
	if b.enforces() {
		return "", false
	}
	if before.enforces() {
		return "enforcement", true
	}
	if before.EnforcementUntil != 0 && (b.EnforcementUntil == 0 || b.EnforcementUntil > before.EnforcementUntil) {
		return "enforcement_until", true
	}
	was, is := before.EnforceFor, b.EnforceFor
	if was == nil {
		return "", false
	}
	if is == nil || is.Percent < was.Percent || len(was.Match) > 0 && !widens(is.Match, was.Match) {
		return "enforce_for", true
	}
	return "", false
}

// widens says whether every request with the labels of `was` has those of `is`.
func widens(is, was map[string]string) bool {
	if len(is) == 0 {
		return false
	}
	for name, value := range is {
		if was[name] != value {
			return false
		}
	}
	return true
}

// stricter keeps, of two declarations of one budget, the enforcement that lets less through; the second one where neither
// is stricter.
func (b *Budget) stricter(other Budget) {
	if _, loosens := b.Loosens(other); loosens {
		b.Enforcement, b.EnforcementUntil, b.EnforceFor = other.Enforcement, other.EnforcementUntil, other.EnforceFor
	}
}

func sameEnforcement(a, b Budget) bool {
	a, b = a.WithDefaults(), b.WithDefaults()
	if a.Enforcement != b.Enforcement || a.EnforcementUntil != b.EnforcementUntil || (a.EnforceFor == nil) != (b.EnforceFor == nil) {
		return false
	}
	return a.EnforceFor == nil || a.EnforceFor.Percent == b.EnforceFor.Percent && maps.Equal(a.EnforceFor.Match, b.EnforceFor.Match)
}

// notes lays over what one budget said of a request what its enforcement makes of it, and enters that into the decision:
// the first refusal of an enforced budget refuses; the first of one in shadow is only noted.
func (l *Locked) note(p Plan, line Line, b *BudgetDecision, d *Decision) {
	mode := line.Budget.EnforcementOf(p.matched(), l.now())
	if mode == Enforce {
		if b.Reason != Allow && (d.Reason == Allow || d.Reason == OnlyProtectedLeft && b.Reason != OnlyProtectedLeft) {
			d.Reason, d.Action, d.Blames, d.Home = b.Reason, ActionRefused, line.Key(), line.Home
			d.Retry = retryAfter(b.Reason, resets(b.Until, l.now()))
			d.Detail = detail(*b, line)
			l.noteTooLarge(line, b, d)
		}
		return
	}
	b.Enforcement = mode
	if reason := l.unfitFor(p, line); reason != "" && b.Reason == Allow {
		b.Reason = reason
	}
	if mode == Shadow && b.Reason != Allow && d.Would == "" {
		d.Would, d.WouldBlame = b.Reason, line.Key()
	}
}

// uncharged says why a line of an admitted request is charged nothing, or empty. In shadow it is all that enforcement
// would have refused: also the lines that fit, of a request that another one would have refused (invariant 7).
func uncharged(b BudgetDecision, would Reason) Reason {
	switch {
	case b.Enforcement == Shadow && would != "":
		return b.Reason // Allow, if it is for another budget's sake
	case b.Enforcement == Meter && !isCounter(b.Reason):
		return b.Reason
	}
	return ""
}

// isCounter says whether a reason is that a cost does not fit, or nothing.
func isCounter(r Reason) bool {
	return slices.Contains([]Reason{Allow, RegionShareSpent, CeilingReached, CapacityStranded, CostExceedsLimit, OnlyProtectedLeft}, r)
}

// Uncharged says that the admission was let through without a charge to this line's budget: neither now nor when it is
// settled.
func (l AdmissionLine) Uncharged() bool { return l.Would != "" }

// charged are the lines that a charge was made to.
func (a *Admission) charged() []*AdmissionLine {
	var lines []*AdmissionLine
	for i := range a.Lines {
		if !a.Lines[i].Uncharged() {
			lines = append(lines, &a.Lines[i])
		}
	}
	return lines
}
