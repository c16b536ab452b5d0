package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// The budgets of the walk, each for a tenant of its own.
const (
	budgetRequests = "acme/requests"
	budgetBursts   = "acme/bursts"
	budgetJobs     = "acme/jobs"
)

// errRolled says that a period ended in the middle of a step: the machine was slow, the step is walked again.
var errRolled = errors.New("the period ended in the middle of the step")

// walks is how often a step is walked before the machine is too slow for the demo.
const walks = 3

// declare makes a budget whose tenant is its own name, split by weight, and waits until both regions hold their shares.
func (w *world) declare(ctx context.Context, name string, units int64, window allocation.Window, a, b int64) (coordinator.BudgetAnswer, error) {
	return w.declareAs(ctx, allocation.Budget{
		Name: name, Limit: &units, Window: window,
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{regionA: a, regionB: b}},
	}, units*a/(a+b), units*b/(a+b))
}

// declareAs makes a budget of requests, and waits until the regions hold so much of it.
func (w *world) declareAs(ctx context.Context, declared allocation.Budget, a, b int64) (coordinator.BudgetAnswer, error) {
	name := declared.Name
	declared.Unit, declared.Match = "requests", map[string]string{"tenant": name}
	var answer coordinator.BudgetAnswer
	if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: declared}, &answer); err != nil {
		return answer, fmt.Errorf("declare %s: %w", name, err)
	}
	for region, want := range map[string]int64{regionA: a, regionB: b} {
		if answer.Permits[region] != want {
			return answer, fmt.Errorf("%s gets %d permits of %s, not %d", region, answer.Permits[region], name, want)
		}
		g, err := w.gateway(edge1, w.Regions[region], name)
		if err != nil {
			return answer, err
		}
		if err := g.untilShare(ctx, want); err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// untilShare waits until the region holds so much of the gateway's budget.
func (g *gateway) untilShare(ctx context.Context, want int64) error {
	return until(ctx, fmt.Sprintf("%s holds its share of %s", g.region.Name, g.labels["tenant"]), func() (bool, error) {
		d, err := g.check(ctx)
		return err == nil && len(d.Budgets) > 0 && d.Budgets[0].Share == want, err
	})
}

func (w *world) grant(ctx context.Context) error {
	_, err := w.declare(ctx, budgetRequests, limit, allocation.Window{Every: windowSeconds}, 3, 2)
	if err != nil {
		return err
	}
	var shares coordinator.SharesAnswer
	if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/shares/" + budgetRequests}, &shares); err != nil {
		return err
	}
	t := shares.Terms[0]
	w.tell.step("grant", fields{"budget": budgetRequests, "limit": limit, regionA: shareA, regionB: shareB, "generation": t.Generation.String(), "periods_ahead": t.Periods},
		fmt.Sprintf("The ledger in etcd grants %d permits of each period to %s and %d to %s (generation %s). "+
			"One write covers %d periods of %d s: no region has to ask when a period begins.", shareA, regionA, shareB, regionB, t.Generation, t.Periods, windowSeconds))
	return nil
}

// freshPeriod waits until a period has begun that has at least `left` to go, and names it.
func freshPeriod(ctx context.Context, window int64, left time.Duration) (start time.Time, err error) {
	step := time.Duration(window) * time.Second
	start = time.Now().Truncate(step)
	if time.Until(start.Add(step)) < left {
		start = start.Add(step)
		// A little past it: the database's clock decides, and it need not be ours to the millisecond.
		err = untilTime(ctx, start.Add(20*time.Millisecond))
	}
	return start, err
}

// inPeriod walks a step within one period; when the period ends too soon it walks again in the next.
func (w *world) inPeriod(ctx context.Context, left time.Duration, step func(ctx context.Context, period string) error) error {
	for n := 1; ; n++ {
		start, err := freshPeriod(ctx, windowSeconds, left)
		if err != nil {
			return err
		}
		err = step(ctx, allocation.At(start).String())
		if !errors.Is(err, errRolled) || n == walks {
			return err
		}
		w.tell.progress("the period of %d s ended in the middle of that: again, in the next one", windowSeconds)
		left = windowSeconds * time.Second
	}
}

// expect is one promise about a tally.
func expect(what string, t tally, period string, admitted, refused int) error {
	if !t.only(period) {
		return errRolled
	}
	if t.admitted != admitted || t.refused != refused {
		return fmt.Errorf("%s: %d were admitted and %d refused, not %d and %d (the last refusal: %s)", what, t.admitted, t.refused, admitted, refused, why(t.last))
	}
	return nil
}

// spendAll spends the whole budget, races for the last permit, cuts the links, and asks once more.
func (w *world) spendAll(ctx context.Context) error {
	a1, err := w.gateway(edge1, w.Regions[regionA], budgetRequests)
	if err != nil {
		return err
	}
	a2, err := w.gateway(edge2, w.Regions[regionA], budgetRequests)
	if err != nil {
		return err
	}
	b, err := w.gateway(edge1, w.Regions[regionB], budgetRequests)
	if err != nil {
		return err
	}
	return w.inPeriod(ctx, 9*time.Second, func(ctx context.Context, period string) error {
		first, err := a1.many(ctx, shareA-1)
		if err != nil {
			return err
		}
		if err := expect("all but one of "+regionA, first, period, shareA-1, 0); err != nil {
			return err
		}
		if err := w.race(ctx, period, a1, a2); err != nil {
			return err
		}
		all, err := b.many(ctx, shareB)
		if err != nil {
			return err
		}
		if err := expect("the share of "+regionB, all, period, shareB, 0); err != nil {
			return err
		}
		// That the whole budget is spent, and not only its own share, a region hears from the coordinator a moment later.
		if err := untilSaid(ctx, allocation.CeilingReached, a1, b); err != nil {
			return err
		}
		w.tell.step("spend", fields{"period": period, regionA: shareA, regionB: shareB},
			fmt.Sprintf("%s has spent its %d, %s its %d, each in its own database, without a call to the other.", regionA, shareA, regionB, shareB))
		return w.refusedInBoth(ctx, period, a1, b)
	})
}

// race lets two gateways ask for the last permit at the same moment, each through another node.
func (w *world) race(ctx context.Context, period string, gateways ...*gateway) error {
	var wait sync.WaitGroup
	answers, errs := make([]api.Decision, len(gateways)), make([]error, len(gateways))
	go_ := make(chan struct{})
	for i, g := range gateways {
		wait.Go(func() {
			<-go_
			answers[i], errs[i] = g.admitAt(ctx, i, newID())
		})
	}
	close(go_)
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	winner, loser := answers[0], answers[1]
	name := gateways[0].name
	if answers[1].Admitted() {
		winner, loser, name = answers[1], answers[0], gateways[1].name
	}
	if periodOf(winner) != period || periodOf(loser) != period {
		return errRolled
	}
	if !winner.Admitted() || loser.Admitted() {
		return fmt.Errorf("two gateways asked for the last permit: %s and %s", why(answers[0]), why(answers[1]))
	}
	w.tell.step("race", fields{"period": period, "winner": name, "reason": loser.Reason},
		fmt.Sprintf("Two gateways ask %s for its last permit at the same moment, through two nodes: %s wins, the other hears %s.",
			regionA, name, why(loser)))
	return nil
}

// untilSaid waits a moment until regions give a reason that rests on what is elsewhere. It is no promise: without it they
// refuse all the same, because their own share is spent.
func untilSaid(ctx context.Context, reason allocation.Reason, gateways ...*gateway) error {
	moment, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	for _, g := range gateways {
		_ = until(moment, "", func() (bool, error) {
			d, err := g.check(ctx)
			return d.Reason == string(reason), err
		})
	}
	return ctx.Err()
}

// refusedInBoth cuts both links and asks for more in both regions: as much again as the whole budget.
func (w *world) refusedInBoth(ctx context.Context, period string, a, b *gateway) error {
	w.Regions[regionA].Cut()
	w.Regions[regionB].Cut()
	defer w.Regions[regionA].Heal()
	defer w.Regions[regionB].Heal()
	if err := w.untilContact(ctx, false, regionA, regionB); err != nil {
		return err
	}
	inA, err := a.many(ctx, limit-shareA)
	if err != nil {
		return err
	}
	inB, err := b.many(ctx, limit-shareB)
	if err != nil {
		return err
	}
	if periodOf(inA.last) != period || periodOf(inB.last) != period {
		return errRolled
	}
	if err := errors.Join(expect(regionA+", cut off", inA, period, 0, limit-shareA), expect(regionB+", cut off", inB, period, 0, limit-shareB)); err != nil {
		return err
	}
	w.tell.step("cut", fields{"period": period, "refused": inA.refused + inB.refused, regionA: inA.last.Reason, regionB: inB.last.Reason},
		fmt.Sprintf("Both links are cut: neither region can see the other or the ledger. The next %d requests are refused in both. "+
			"%s says %s; %s says %s.", inA.refused+inB.refused, regionA, why(inA.last), regionB, inB.last.Reason))
	return nil
}

// untilContact waits until the coordinator says of the regions that they are, or are not, in contact.
func (w *world) untilContact(ctx context.Context, contact bool, regions ...string) error {
	what := "the coordinator hears the regions"
	if !contact {
		what = "the coordinator misses the regions"
	}
	return until(ctx, what, func() (bool, error) {
		var list coordinator.RegionsList
		if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &list); err != nil {
			return false, err
		}
		for _, r := range list.Regions {
			for _, name := range regions {
				if r.Region == name && r.InContact != contact {
					return false, nil
				}
			}
		}
		return true, nil
	})
}
