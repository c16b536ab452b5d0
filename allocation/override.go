package allocation

import "fmt"

// Bounds of an override.
const MaxOverrideFor = 31 * Day

// Override is a temporary raise of a budget's limit, made by a person who answers for it. The limit that the budget has
// while it stands includes it; it counts in every period that begins before its end, and in none that begins later, whoever is
// cut off from whom. A budget of 100 a minute, raised by 20 until 10:05:
//
//	10:03  limit 120      10:04  limit 120      10:05  limit 100
//
// In the period that runs when it ends, the limit is what it was: what is out by then is overcommitted until it is returned.
type Override struct {
	ID    string  `json:"id" yaml:"id"`
	Units int64   `json:"units" yaml:"units"` // of each period; they are part of the budget's limit
	Until Instant `json:"until" yaml:"until"` // never Never
	By    string  `json:"by" yaml:"by"`       // who approved it
}

// In is the budget as it counts in a period that begins at an instant: without an override that has ended by then.
func (b Budget) In(start Instant) Budget {
	if b.Override == nil || start < b.Override.Until {
		return b
	}
	return b.WithoutOverride()
}

// WithoutOverride is the budget as it was declared.
func (b Budget) WithoutOverride() Budget {
	if b.Override == nil {
		return b
	}
	limit := max(0, b.LimitOrZero()-b.Override.Units)
	b.Limit, b.Override = &limit, nil
	b.Protected = min(b.Protected, limit)
	return b
}

// LimitIn is the limit in a period that begins at an instant.
func (b Budget) LimitIn(start Instant) int64 { return b.In(start).LimitOrZero() }

// OverrideIn is the id of the override that counts in a period; empty: none does.
func (b Budget) OverrideIn(start Instant) string {
	if b.Override == nil || start >= b.Override.Until {
		return ""
	}
	return b.Override.ID
}

func (b *Budget) checkOverride(found *Problems) {
	o := b.Override
	switch {
	case o == nil:
	case b.IsTemplate():
		found.add("override", "is for single budgets: a template's limit is per instance", "declare a budget for the instance that needs more")
	case o.ID == "" || len(o.ID) > MaxName || len(o.By) > MaxLabelValue:
		found.add("override", "has no id, or too long a name", "leave it out: overrides are made by `tranche override`")
	case o.Units < 1 || o.Units > b.LimitOrZero():
		found.add("override.units", fmt.Sprintf("is %d, and the limit that includes them %d", o.Units, b.LimitOrZero()), "use 1 to the limit")
	case o.Until <= 0 || o.Until == Never:
		found.add("override.until", "is missing: an override must have an end", "give the instant at which it ends")
	}
}

// cutAtEnd cuts the ledger where an override ends: later periods have the limit without it.
func (l Ledger) cutAtEnd(o *Override, from int) Ledger {
	if o == nil {
		return l
	}
	for i := from + 1; i < l.Periods.Len(); i++ {
		if l.Periods.At(i).Start >= o.Until {
			return l.cut(i)
		}
	}
	return l
}
