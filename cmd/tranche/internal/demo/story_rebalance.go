package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// The budget that follows demand by itself, and the skew of the callers.
const (
	budgetSearches = "acme/searches"
	half           = limit / 2
	callersA       = 90
	callersB       = limit - callersA
	patient        = 3 // seconds that a request may wait for a top-up
	leastFollowed  = limit * 95 / 100
)

// rebalanceStory sends the same skewed load to a fixed budget and to one that follows demand.
func (w *world) rebalanceStory(ctx context.Context) (totals, error) {
	window, period := calm(time.Now())
	if _, err := w.declare(ctx, budgetRequests, limit, window, 1, 1); err != nil {
		return totals{}, err
	}
	fixed, err := w.pair(budgetRequests)
	if err != nil {
		return totals{}, err
	}
	split, err := w.skewed(ctx, fixed, period)
	if err != nil {
		return totals{}, err
	}
	if split[0].admitted != half || split[1].admitted != callersB {
		return totals{}, fmt.Errorf("of a fixed split %d and %d were admitted, not %d and %d", split[0].admitted, split[1].admitted, half, callersB)
	}
	w.tell.step("fixed", fields{"period": period, "admitted": half + callersB, "refused": split[0].refused, "left": half - callersB, "reason": split[0].last.Reason},
		fmt.Sprintf("%s: %d %s, split by halves. %d callers come to %s and %d to %s. %s admits %d and refuses %d (%s), while %d permits lie idle in %s.",
			budgetRequests, limit, each(window), callersA, regionA, callersB, regionB, regionA, half, split[0].refused, split[0].last.Reason, half-callersB, regionB))
	if err := w.moveByHand(ctx, period, fixed[0]); err != nil {
		return totals{}, err
	}
	followed, err := w.follow(ctx, window, period)
	if err != nil {
		return totals{}, err
	}
	w.sideBySide(split, followed)
	return w.endStory(ctx, 0)
}

// pair is a gateway in each region.
func (w *world) pair(tenant string) (both []*gateway, err error) {
	for _, name := range []string{regionA, regionB} {
		g, err := w.gateway(edge1, w.Regions[name], tenant)
		if err != nil {
			return nil, err
		}
		both = append(both, g)
	}
	return both, nil
}

// skewed sends the skewed load, to both regions at once.
func (w *world) skewed(ctx context.Context, both []*gateway, period string) ([]tally, error) {
	found := make([]tally, len(both))
	var parts []func(context.Context) error
	for i, g := range both {
		parts = append(parts, func(ctx context.Context) (err error) {
			found[i], err = g.many(ctx, []int{callersA, callersB}[i])
			if err == nil && !found[i].only(period) {
				err = errRolled
			}
			return err
		})
	}
	return found, stage.Together(ctx, parts...)
}

// moveByHand moves what lies idle, and lets the callers that were refused ask again.
func (w *world) moveByHand(ctx context.Context, period string, a *gateway) error {
	q := coordinator.RebalanceRequest{Budget: budgetRequests, From: regionB, To: regionA, Units: half - callersB}
	call := api.Call{Method: http.MethodPost, Path: "/v1/rebalances", Body: q, Query: url.Values{"dry_run": {"true"}}}
	var plan, move coordinator.RebalanceAnswer
	if _, err := w.admin.Do(ctx, call, &plan); err != nil {
		return err
	}
	call.Query = nil
	if _, err := w.admin.Do(ctx, call, &move); err != nil {
		return err
	}
	var list coordinator.RebalancesList
	err := errors.Join(a.untilShare(ctx, callersA), until(ctx, "the move is done", func() (bool, error) {
		_, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/rebalances"}, &list)
		return len(list.Rebalances) == 1 && list.Rebalances[0].State == coordinator.RebalanceDone, err
	}))
	if err != nil {
		return err
	}
	if plan.Targets[regionA] != callersA || plan.Targets[regionB] != callersB || list.Rebalances[0].ID != move.ID {
		return fmt.Errorf("the plan said %v; done is %s, asked for was %s", plan.Targets, list.Rebalances[0].ID, move.ID)
	}
	if err := w.spend(ctx, a, period, callersA-half, 0); err != nil {
		return err
	}
	w.tell.step("moved", fields{"units": q.Units, "from": q.From, "to": q.To, "targets": plan.Targets, "admitted_then": callersA - half},
		fmt.Sprintf("Somebody looks, plans (tranche rebalance plan: once it is done %s %d, %s %d) and moves %d (rebalance apply): %s returns them first, then %s gets them. "+
			"The %d that were refused ask again and all pass. It worked, for those who came back.", regionA, callersA, regionB, callersB, q.Units, regionB, regionA, callersA-half))
	return nil
}

// follow sends the same load to a budget that follows demand.
func (w *world) follow(ctx context.Context, window allocation.Window, period string) ([]tally, error) {
	units := int64(limit)
	_, err := w.declareAs(ctx, allocation.Budget{
		Name: budgetSearches, Limit: &units, Window: window, WaitForShare: patient,
		Allocation: allocation.Policy{Policy: allocation.PolicyDemand},
	}, half/2, half/2)
	if err != nil {
		return nil, err
	}
	both, err := w.pair(budgetSearches)
	if err != nil {
		return nil, err
	}
	followed, err := w.skewed(ctx, both, period)
	if err != nil {
		return nil, err
	}
	if n := followed[0].admitted + followed[1].admitted; n < leastFollowed || n > limit {
		return nil, fmt.Errorf("with a budget that follows demand %d were admitted (%d in %s) of %d; the last refusal: %s", n, followed[0].admitted, regionA, limit, why(followed[0].last))
	}
	w.tell.step("followed", fields{"period": period, "admitted": followed[0].admitted + followed[1].admitted, "refused": followed[0].refused + followed[1].refused},
		fmt.Sprintf("%s: also %d %s, but `policy: demand` with `wait_for_share: %ds`. Each region begins with %d, %d are handed out as they are asked for, and what lies idle is called back. "+
			"The same callers: %s admits %d, %s %d. Nobody moved anything.", budgetSearches, limit, each(window), patient, half/2, half, regionA, followed[0].admitted, regionB, followed[1].admitted))
	return followed, nil
}

// sideBySide is the callers' own count.
func (w *world) sideBySide(split, followed []tally) {
	lines := []string{"", fmt.Sprintf("%-28s %13s %13s %9s %12s", "", regionA, regionB, "refused", "of the limit")}
	share := func(t []tally) int { return (t[0].admitted + t[1].admitted) * 100 / limit }
	for i, t := range [][]tally{split, followed} {
		lines = append(lines, fmt.Sprintf("%-28s %6d of %3d %6d of %3d %9d %10d %%", []string{"fixed, one half each", "demand"}[i],
			t[0].admitted, callersA, t[1].admitted, callersB, t[0].refused+t[1].refused, share(t)))
	}
	w.tell.step("compared", fields{"fixed_percent": share(split), "demand_percent": share(followed)},
		"Side by side, as the callers counted, before anybody moved anything by hand:", append(lines, "")...)
}
