package demo

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// The budget of the story: a tenth is kept for a region that has to start with nothing.
const (
	keptUnits     = limit / 10
	shareEach     = (limit - keptUnits) / 2
	spentAtBackup = 10
	spentSince    = 20
	lostRemainder = shareEach - spentAtBackup - spentSince
	tooMany       = 15 // requests beyond what a region holds
)

// restoreStory restores a region's database under its running node, from a dump that does not know what was spent since.
func (w *world) restoreStory(ctx context.Context) (totals, error) {
	window, period := calm(time.Now())
	units := int64(limit)
	_, err := w.declareAs(ctx, allocation.Budget{
		Name: budgetRequests, Limit: &units, Window: window,
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{regionA: 1, regionB: 1}, KeepPercent: 100 * keptUnits / limit},
	}, shareEach, shareEach)
	if err != nil {
		return totals{}, err
	}
	both, err := w.pair(budgetRequests)
	if err != nil {
		return totals{}, err
	}
	before, err := w.incarnation(ctx, regionA)
	if err != nil {
		return totals{}, err
	}
	w.tell.step("share", fields{"period": period, regionA: shareEach, regionB: shareEach, "kept": keptUnits},
		fmt.Sprintf("%d requests %s, `keep_percent: %d`: %s may spend %d, %s %d, and %d are kept for a region that has to start with nothing.",
			limit, each(window), 100*keptUnits/limit, regionA, shareEach, regionB, shareEach, keptUnits))
	if err := w.backUpAndRestore(ctx, period, both[0]); err != nil {
		return totals{}, err
	}
	if err := w.startsAnew(ctx, period, before, both[0]); err != nil {
		return totals{}, err
	}
	if err := w.strandedForGood(ctx, period, before); err != nil {
		return totals{}, err
	}
	if err := w.allThatIsLeft(ctx, period, both); err != nil {
		return totals{}, err
	}
	return w.endStory(ctx, 1, fmt.Sprintf("%s is its new incarnation; of the %d stranded, the former one had spent %d.", regionA, shareEach, spentAtBackup+spentSince))
}

// backUpAndRestore spends on both sides of a backup, and restores it.
func (w *world) backUpAndRestore(ctx context.Context, period string, a *gateway) error {
	dump, r := filepath.Join(w.Dir, "dump"), w.Regions[regionA]
	if err := w.spend(ctx, a, period, spentAtBackup, 0); err != nil {
		return err
	}
	if err := r.Dump(ctx, dump); err != nil {
		return err
	}
	if err := w.spend(ctx, a, period, spentSince, 0); err != nil {
		return err
	}
	if err := w.untilStated(ctx, period, regionA, spentAtBackup+spentSince); err != nil {
		return err
	}
	if err := r.Restore(ctx, dump); err != nil {
		return err
	}
	w.record.lose(regionA)
	w.tell.step("restored", fields{"region": regionA, "spent_at_backup": spentAtBackup, "spent_since": spentSince},
		fmt.Sprintf("%s spends %d, its database is backed up (pg_dump), it spends %d more. Then the backup is restored under the running node (pg_restore --clean): "+
			"the database is again as it was when %d were spent. A counter that believes it would sell %d permits twice.", regionA, spentAtBackup, spentSince, spentAtBackup, spentSince))
	return nil
}

// incarnation is the life of a region's database that the ledger knows.
func (w *world) incarnation(ctx context.Context, region string) (string, error) {
	var list coordinator.RegionsList
	if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &list); err != nil {
		return "", err
	}
	for _, r := range list.Regions {
		if r.Region == region && r.Incarnation != "" {
			return r.Incarnation, nil
		}
	}
	return "", fmt.Errorf("region %s has no incarnation yet", region)
}

// startsAnew waits until the region has noticed, and spends what it gets.
func (w *world) startsAnew(ctx context.Context, period, before string, a *gateway) error {
	var now string
	err := until(ctx, regionA+" starts as a new incarnation", func() (_ bool, err error) {
		now, err = w.incarnation(ctx, regionA)
		return now != before, err
	})
	if err != nil {
		return err
	}
	if err := a.untilShare(ctx, keptUnits); err != nil {
		return err
	}
	t, err := a.many(ctx, keptUnits+tooMany)
	if err != nil {
		return err
	}
	if err := expect(regionA+", anew", t, period, keptUnits, tooMany); err != nil {
		return err
	}
	w.tell.step("anew", fields{"former": before, "incarnation": now, "admitted": keptUnits, "refused": tooMany, "reason": t.last.Reason},
		fmt.Sprintf("%s notices: the last mark that its node left in the database is not there any more. It starts as a new incarnation (%.8s, before %.8s) with nothing, "+
			"and gets the %d that were kept. It admits %d and refuses the next %d (%s).", regionA, now, before, keptUnits, keptUnits, tooMany, t.last.Reason))
	return nil
}

// strandedForGood reads what the report says of the former incarnation.
func (w *world) strandedForGood(ctx context.Context, period, before string) error {
	report, err := w.stranded(ctx)
	if err != nil {
		return err
	}
	if len(report.Lines) != 1 {
		return fmt.Errorf("the report has %d lines, not one", len(report.Lines))
	}
	l := report.Lines[0]
	if l.Incarnation != before || l.Cause != coordinator.CauseLostHistory || l.Stranded != lostRemainder || l.Period.Start.String() != period {
		return fmt.Errorf("the report says of incarnation %s: %s, %d stranded in %s; not %s, %d", l.Incarnation, l.Cause, l.Stranded, l.Period.Start, before, lostRemainder)
	}
	lines := append([]string{""}, resolvedIf(l)...)
	w.tell.step("stranded", fields{"incarnation": before, "cause": l.Cause, "stranded": l.Stranded, "resolve": l.Resolve},
		fmt.Sprintf("The former incarnation had stated %d of its %d as spent. The other %d stay stranded (%s): nobody can prove that they were not spent too.",
			l.Spent, l.Granted, l.Stranded, l.Cause), append(lines, "")...)
	return nil
}

// allThatIsLeft spends all that can be spent, and counts.
func (w *world) allThatIsLeft(ctx context.Context, period string, both []*gateway) error {
	if err := w.spend(ctx, both[1], period, shareEach, tooMany); err != nil {
		return err
	}
	if err := w.spend(ctx, both[0], period, 0, tooMany); err != nil {
		return err
	}
	admitted, over := w.record.sums()
	if want := int64(spentAtBackup + spentSince + keptUnits + shareEach); admitted != want || over != 0 {
		return fmt.Errorf("the gateways recorded %d admissions, %d over the limit; not %d", admitted, over, want)
	}
	w.tell.step("counted", fields{"admitted": admitted, "stranded": lostRemainder, "limit": limit},
		fmt.Sprintf("%s spends its %d; then both refuse. By the callers' own count: %d before the restore, %d after it, %d in %s: %d admitted. With the %d stranded that is the limit, %d.",
			regionB, shareEach, spentAtBackup+spentSince, keptUnits, shareEach, regionB, admitted, lostRemainder, limit))
	return nil
}
