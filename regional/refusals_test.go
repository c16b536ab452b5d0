package regional

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"tranche/allocation"
)

// teller is a coordinator that loses the first report.
type teller struct {
	Coordinator
	told  []allocation.RefusalReport
	calls int
	end   context.CancelFunc
}

func (t *teller) TellRefusals(_ context.Context, report allocation.RefusalReport) error {
	if t.calls++; t.calls == 1 {
		return errors.New("lost")
	}
	t.told = append(t.told, report)
	t.end()
	return nil
}

// atOnce is a runtime that does not wait.
type atOnce struct{ Real }

func (atOnce) Sleep(context.Context, time.Duration) {}

// What a node refused must reach the report whole, also if a message is lost, and only what permits would have helped.
func TestRefusalsAreTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	to := &teller{end: cancel}
	n := NewNode(Config{Name: "node-1", Runtime: atOnce{}, Coordinator: to}, nil)
	refused := func(op allocation.Op, reason allocation.Reason, budget string, units int64) allocation.Decision {
		return allocation.Decision{Op: op, Reason: reason, Blames: budget, Budgets: []allocation.BudgetDecision{{UsageKey: allocation.UsageKey{Budget: budget}, Requested: units}}}
	}
	n.refusals.count([]allocation.Decision{
		refused(allocation.Spend, allocation.CapacityStranded, "b", 3),
		refused(allocation.Reserve, allocation.CapacityStranded, "b", 4),
		refused(allocation.Check, allocation.CapacityStranded, "b", 5),
		refused(allocation.Spend, allocation.CeilingReached, "a", 6),
		refused(allocation.Spend, allocation.CostExceedsLimit, "a", 7),
		refused(allocation.Spend, allocation.Allow, "a", 8),
	})
	n.tellRefusals(ctx, to)
	want := []allocation.RefusalCount{
		{Budget: "a", Reason: allocation.CeilingReached, Requests: 1, Units: 6},
		{Budget: "b", Reason: allocation.CapacityStranded, Requests: 2, Units: 7},
	}
	if len(to.told) != 1 || !slices.Equal(to.told[0].Counts, want) || to.told[0].Node != "node-1" || to.told[0].Run == "" {
		t.Errorf("%+v", to.told)
	}
	if n.refusals.rose() != nil {
		t.Error("they are told again though nothing rose")
	}
}

// Counts are bounded by their number of names, whatever is asked for.
func TestRefusalsAreBounded(t *testing.T) {
	var r refusals
	for i := range 2 * maxRefusals {
		name := string(rune('a'+i%26)) + time.Duration(i).String()
		r.count([]allocation.Decision{{Op: allocation.Spend, Reason: allocation.CeilingReached, Blames: name, Budgets: []allocation.BudgetDecision{{UsageKey: allocation.UsageKey{Budget: name}}}}})
	}
	if n := len(r.rose()); n != maxRefusals {
		t.Errorf("%d", n)
	}
}
