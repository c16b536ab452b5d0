package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// manyPlanned is near the most that one plan moves.
const manyPlanned = 980

// A plan over nearly as many budgets as one may move is previewed and applied whole: each gives, and each gets, and what an
// operator is shown adds up.
func TestAPlanOfNearlyAThousandBudgets(t *testing.T) {
	// A region that a slow machine keeps silent must not count as one that cannot be asked: a move that meets such a one ends.
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, Unreachable: 10 * time.Minute})
	admin, err := th.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	var parts []func(context.Context) error
	const atOnce = 8
	for k := range atOnce {
		parts = append(parts, func(ctx context.Context) error {
			for i := k; i < manyPlanned; i += atOnce {
				b := fixed(fmt.Sprintf("plan/%04d", i), 100, "many", allocation.Window{Calendar: "year"})
				b.Match["model"] = fmt.Sprint(i)
				if _, err := admin.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: b}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := stage.Together(t.Context(), parts...); err != nil {
		t.Fatal(err)
	}
	move := []string{"--from", "us-east", "--to", "eu-west", "--match", "tenant=many", "--units", "10"}
	total := fmt.Sprintf("move %d requests of one period of %d budgets from us-east to eu-west", 10*manyPlanned, manyPlanned)
	err = stage.Until(t.Context(), progressWait, "the plan can be applied", func() (bool, error) {
		printed := th.operate(append([]string{"rebalance", "plan"}, move...)...)
		return strings.Contains(printed, "would "+total) && !strings.Contains(printed, "cannot be applied"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	th.operate(append([]string{"rebalance", "apply"}, move...)...)
	var plans struct {
		Plans []coordinator.RebalancePlanAnswer `json:"plans"`
	}
	for moved, before := int64(0), int64(-1); ; before = moved {
		err = stage.Until(t.Context(), progressWait, "all is moved", func() (bool, error) {
			if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/plans"}, &plans); err != nil || len(plans.Plans) != 1 {
				return false, err
			}
			sum := plans.Plans[0].Total["requests"]
			moved = sum.Returned + sum.Granted
			return plans.Plans[0].State == "done" && sum.Asked == 10*manyPlanned && sum.Returned == sum.Asked && sum.Granted == sum.Asked, nil
		})
		if err == nil {
			break
		}
		if moved <= before { // it does not go on; how fast it goes is not judged here
			t.Fatalf("%v: %+v", err, plans.Plans)
		}
	}
	if shown := th.operate("rebalance", "show", plans.Plans[0].ID); !strings.Contains(shown, fmt.Sprintf("%d returned, %d granted", 10*manyPlanned, 10*manyPlanned)) {
		t.Error(shown[max(0, len(shown)-300):])
	}
	th.untilHeld("plan/0000", map[string]int64{"us-east": 50, "eu-west": 50})
	th.untilHeld(fmt.Sprintf("plan/%04d", manyPlanned-1), map[string]int64{"us-east": 50, "eu-west": 50})
}
