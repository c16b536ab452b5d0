package allocation

import (
	"errors"
	"testing"
)

// The end of an override must be one and the same in the ledger and in a decision: what begins at it has the declared limit.
func TestOverrideCountsUntilItsEnd(t *testing.T) {
	limit := int64(120)
	b := Budget{Name: "a", Unit: "requests", Limit: &limit, Override: &Override{ID: "o-1", Units: 20, Until: 1000, By: "Ada"}, Protected: 110}
	for start, want := range map[Instant]int64{0: 120, 999: 120, 1000: 100, 5000: 100} {
		if got := b.LimitIn(start); got != want || (b.OverrideIn(start) == "o-1") != (want == 120) {
			t.Errorf("in the period of %d the limit is %d, under override %q", start, got, b.OverrideIn(start))
		}
	}
	declared := b.WithoutOverride()
	if declared.LimitOrZero() != 100 || declared.Override != nil || declared.Protected != 100 || *b.Limit != 120 {
		t.Errorf("%+v", declared)
	}
	none := declared.WithoutOverride()
	if none.LimitOrZero() != 100 {
		t.Errorf("%+v", none)
	}
}

// A budget is checked at every door: an override without an end, or above the limit that includes it, would be for ever, or
// leave a negative limit.
func TestOverrideIsChecked(t *testing.T) {
	limit := int64(20)
	for field, o := range map[string]Override{
		"override":       {Units: 1, Until: 1000},
		"override.units": {ID: "o", Units: 21, Until: 1000},
		"override.until": {ID: "o", Units: 20, Until: Never},
	} {
		b := Budget{Name: "a", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"eu": 1}}, Override: &o}
		found, is := errors.AsType[*FieldError](b.Validate())
		if !is || found.Field != field || found.Fix == "" {
			t.Errorf("%s: %v", field, b.Validate())
		}
		o = Override{ID: "o", Units: 20, Until: 1000, By: "Ada"}
		if err := b.Validate(); err != nil {
			t.Error(err)
		}
	}
	b, err := ParseBudget([]byte(`{"budget":"a","unit":"requests","limit":20,"window":{"every":"1m"},"allocation":{"policy":"fixed","weights":{"eu":1}},
		"override":{"id":"o","units":5,"until":"2026-05-04T10:00:00Z","by":"Ada"}}`))
	if err != nil || b.Override == nil || b.Override.Units != 5 || b.Override.By != "Ada" {
		t.Errorf("%+v %v", b.Override, err)
	}
}

// Where two lines of descent are joined, a raise goes with the limit that it is part of: else it would be taken off twice, or
// never.
func TestStricterKeepsTheOverrideOfItsLimit(t *testing.T) {
	made := func(version, limit int64, o *Override) ConfiguredBudget {
		return ConfiguredBudget{Budget: Budget{Name: "a", Unit: "requests", Limit: &limit, Override: o}, Version: version}
	}
	o := &Override{ID: "o", Units: 20, Until: 1000}
	for name, c := range map[string]struct {
		a, b     ConfiguredBudget
		declared int64
	}{
		"made in what was lost":  {made(1, 100, nil), made(2, 120, o), 100},
		"ended in what was lost": {made(2, 120, o), made(3, 100, nil), 100},
		"on a lowered limit":     {made(1, 200, nil), made(2, 120, o), 100},
		"the same in both":       {made(2, 120, o), made(3, 120, o), 100},
	} {
		if both := Stricter(c.a, c.b); both.Budget.WithoutOverride().LimitOrZero() != c.declared {
			t.Errorf("%s: %+v", name, both.Budget)
		}
	}
}
