package cli

import (
	"reflect"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// A field that `budgets get` left out would be looked for in vain, one by one as they are added: each that a budget can
// have stands in what is shown of one that has them all.
func TestGetShowsAllFields(t *testing.T) {
	b := coordinator.BudgetAnswer{Budget: allocation.Budget{
		Name: "b/{caller}", Unit: "requests", Limit: new(int64), MaxEvidenceAge: 60,
		Enforcement: allocation.Shadow, EnforceFor: &allocation.EnforceFor{Percent: 5, Match: map[string]string{"tier": "free"}}, EnforcementUntil: 1e9,
		Allocation: allocation.Policy{Policy: allocation.PolicyHome, HashOf: "caller"},
	}.WithDefaults()}
	text := said(func(a *App) { a.showBudget(b) })
	for i := range reflect.TypeFor[allocation.Budget]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[allocation.Budget]().Field(i).Tag.Get("json"), ",")
		wants(t, text, "\n"+name+" ")
	}
	wants(t, text, "every request (default)", "6h (default)", "1000000 (default)", "429 (default)", "refuse (default)",
		"5 % of the admission ids, and tier=free")
	if strings.Contains(text, "1m (default)") {
		t.Errorf("a declared field is marked as a default:\n%s", text)
	}
}

// An instance has the limit in one region. Told region by region it reads as that many in each.
func TestPermitsOfHomes(t *testing.T) {
	five := int64(5)
	b := coordinator.BudgetAnswer{
		Budget:  allocation.Budget{Name: "b/{caller}", Limit: &five, Allocation: allocation.Policy{Policy: allocation.PolicyHome, HashOf: "caller"}},
		Permits: map[string]int64{"eu-west": 5, "us-east": 5},
	}
	if got := permitsOf(&b); got != "5 for each instance, in its home region" {
		t.Error(got)
	}
	b.Budget.Allocation = allocation.Policy{Policy: allocation.PolicyFixed}
	if got := permitsOf(&b); got != "eu-west 5, us-east 5, for each instance" {
		t.Error(got)
	}
}
