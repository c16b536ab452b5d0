package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
)

// beforeBoundary is when the first hundred are sent.
const beforeBoundary = 1500 * time.Millisecond

// boundary spends a whole budget on each side of a period's boundary.
func (w *world) boundary(ctx context.Context) error {
	if _, err := w.declare(ctx, budgetBursts, limit, allocation.Window{Every: burstSeconds}, 3, 2); err != nil {
		return err
	}
	var both []*gateway
	for _, name := range []string{regionA, regionB} {
		g, err := w.gateway(edge1, w.Regions[name], budgetBursts)
		if err != nil {
			return err
		}
		both = append(both, g)
	}
	for n := 1; ; n++ {
		err := w.overBoundary(ctx, both)
		if !errors.Is(err, errRolled) || n == walks {
			return err
		}
		w.tell.progress("the boundary came too soon: again, at the next one but one")
		if err := untilTime(ctx, time.Now().Add(burstSeconds*time.Second)); err != nil {
			return err
		}
	}
}

func (w *world) overBoundary(ctx context.Context, both []*gateway) error {
	const step = burstSeconds * time.Second
	at := time.Now().Add(beforeBoundary).Truncate(step).Add(step)
	if err := untilTime(ctx, at.Add(-beforeBoundary)); err != nil {
		return err
	}
	before, after := allocation.At(at.Add(-step)).String(), allocation.At(at).String()
	if err := w.hundred(ctx, both, before); err != nil {
		return err
	}
	if !time.Now().Before(at) {
		return errRolled
	}
	if err := untilTime(ctx, at.Add(20*time.Millisecond)); err != nil {
		return err
	}
	if err := w.hundred(ctx, both, after); err != nil {
		return err
	}
	w.tell.step("boundary", fields{"before": before, "after": after, "admitted_before": limit, "admitted_after": limit},
		fmt.Sprintf("At the boundary of a period: %d requests just before and %d just after all pass. They belong to two periods, "+
			"%s and %s. The period is part of the key: there is no counter that is reset, and both regions held their shares of the next period long before it began.", limit, limit, before, after))
	return nil
}

// hundred spends a period's whole budget, in both regions at once.
func (w *world) hundred(ctx context.Context, both []*gateway, period string) error {
	var parts []func(context.Context) error
	for i, g := range both {
		n := []int{shareA, shareB}[i]
		parts = append(parts, func(ctx context.Context) error {
			t, err := g.many(ctx, n)
			if err != nil {
				return err
			}
			return expect(g.region.Name+" at the boundary", t, period, n, 0)
		})
	}
	return stage.Together(ctx, parts...)
}
