package regional

import (
	"context"
	"fmt"
	"testing"

	"tranche/allocation"
)

// settling is a decision on a settlement, as an owner makes it.
func settling(capability, unit string, estimate, charged, overdraft int64) allocation.Decision {
	return allocation.Decision{
		Op: allocation.Settle, Reason: allocation.Allow, State: allocation.StateSettled, Evidence: allocation.Evidence{Capability: capability},
		Budgets: []allocation.BudgetDecision{{Unit: unit, Requested: estimate, Charged: charged, Overdraft: overdraft, Reason: allocation.Allow}},
	}
}

// What reservations really cost reaches the coordinator, once, also if a message is lost: by capability, those that nobody
// declared as other. A repeated settlement, another operation, a request that counts itself, and what is not enforced say
// nothing about estimates.
func TestEstimatesAreTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	to := &teller{end: cancel}
	n := NewNode(Config{Name: "node-1", Runtime: atOnce{}, Coordinator: to}, nil)
	limit := int64(1)
	b := allocation.Budget{Name: "b", Unit: "tokens", Limit: &limit, Match: map[string]string{allocation.LabelCapability: "model"}}
	c := allocation.NewCatalogue("us-east").With(1, []allocation.ConfiguredBudget{{Budget: b, Version: 1}}, nil, nil)
	again, released, shadow := settling("model", "tokens", 1, 9, 0), settling("model", "tokens", 1, 9, 0), settling("model", "tokens", 1, 9, 0)
	again.Replayed, released.Op, shadow.Budgets[0].Enforcement = true, allocation.Release, allocation.Shadow
	two := settling("model", "tokens", 100, 90, 30) // of two budgets that count the same
	two.Budgets = append(two.Budgets, two.Budgets[0])
	n.estimates.count(c, []allocation.Decision{
		two, again, released, shadow, settling("model", "requests", 1, 1, 0), settling("made up", "tokens", 10, 10, 0), settling("", "tokens", 10, 5, 0),
	})
	n.tellRefusals(ctx, to)
	if len(to.told) != 1 || len(to.told[0].Estimates) != 3 {
		t.Fatalf("%+v", to.told)
	}
	model, none, other := to.told[0].Estimates[0], to.told[0].Estimates[1], to.told[0].Estimates[2]
	if model.Capability != "model" || model.Settled != 1 || model.Estimated != 100 || model.True != 120 || model.Overdraft != 30 || model.Worst != 120 || !model.Valid() {
		t.Errorf("%+v", model)
	}
	if none.Capability != "none" || none.True != 5 || other.Capability != "other" || other.Settled != 1 {
		t.Errorf("%+v, %+v", none, other)
	}
	if n.estimates.rose() != nil {
		t.Error("they are told again though nothing rose")
	}
}

// Units are the operator's words, and few; if they were not, a node's counts and its message are bounded all the same.
func TestEstimatesAreBounded(t *testing.T) {
	var e estimates
	for i := range 2 * allocation.MaxEstimates {
		e.count(allocation.NewCatalogue("us-east"), []allocation.Decision{settling("", fmt.Sprint("u", i), 1, 1, 0)})
	}
	if n := len(e.rose()); n != allocation.MaxEstimates {
		t.Errorf("%d", n)
	}
}
