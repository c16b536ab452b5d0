package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

const spentBeforeCut = 10

// strand cuts one region off in the middle of a period, and shows what becomes of its permits.
func (w *world) strand(ctx context.Context) error {
	if err := w.untilContact(ctx, true, regionA, regionB); err != nil {
		return err
	}
	a, err := w.gateway(edge1, w.Regions[regionA], budgetRequests)
	if err != nil {
		return err
	}
	b, err := w.gateway(edge2, w.Regions[regionB], budgetRequests)
	if err != nil {
		return err
	}
	w.tell.progress("the links are healed; waiting for the next period of %d s", windowSeconds)
	return w.inPeriod(ctx, windowSeconds*time.Second, func(ctx context.Context, period string) error {
		defer w.Regions[regionA].Heal()
		if err := w.strandTen(ctx, period, a); err != nil {
			return err
		}
		left := shareA - spentBeforeCut
		own, err := b.many(ctx, shareB)
		if err != nil {
			return err
		}
		if err := untilSaid(ctx, allocation.CapacityStranded, b); err != nil {
			return err
		}
		inB, err := b.many(ctx, left)
		if err != nil {
			return err
		}
		if periodOf(inB.last) != period {
			return errRolled
		}
		if err := errors.Join(expect(regionB+"'s own", own, period, shareB, 0), expect(regionB+" while "+regionA+" is cut off", inB, period, 0, left)); err != nil {
			return err
		}
		w.tell.step("kept", fields{"period": period, "admitted": own.admitted, "refused": inB.refused, "reason": inB.last.Reason},
			fmt.Sprintf("%s cannot get them: it spends its own %d and is refused %d times (%s).", regionB, shareB, left, why(inB.last)))
		alone, err := a.many(ctx, left+1)
		if err != nil {
			return err
		}
		if err := expect(regionA+", alone", alone, period, left, 1); err != nil {
			return err
		}
		w.tell.step("alone", fields{"period": period, "admitted": alone.admitted, "refused": alone.refused},
			fmt.Sprintf("%s, still cut off, goes on spending what it holds: %d more, and not one beyond.", regionA, left))
		return w.heal(ctx, period)
	})
}

// strandTen spends a little, waits until that is stated, cuts the link, and reads the report.
func (w *world) strandTen(ctx context.Context, period string, a *gateway) error {
	ten, err := a.many(ctx, spentBeforeCut)
	if err != nil {
		return err
	}
	if err := expect(regionA+" in a new period", ten, period, spentBeforeCut, 0); err != nil {
		return err
	}
	if err := w.untilStated(ctx, period, regionA, spentBeforeCut); err != nil {
		return err
	}
	w.Regions[regionA].Cut()
	var line coordinator.StrandedLine
	err = until(ctx, "the report shows what "+regionA+" holds", func() (bool, error) {
		report, err := w.stranded(ctx)
		if err != nil {
			return false, err
		}
		for _, l := range report.Lines {
			if l.Region == regionA && l.Budget == budgetRequests {
				line = l
				return true, nil
			}
		}
		return false, nil
	})
	switch {
	case err != nil:
		return err
	case line.Period.Start.String() != period:
		return errRolled
	case line.Stranded != shareA-spentBeforeCut:
		return fmt.Errorf("%d permits of %s are reported as stranded, not %d", line.Stranded, regionA, shareA-spentBeforeCut)
	case line.Ahead == nil:
		return fmt.Errorf("nothing is reported as stranded in the periods ahead, which %s holds too", regionA)
	}
	w.tell.step("stranded", fields{"period": period, "region": regionA, "stranded": line.Stranded, "generation": line.Generation.String(), "ahead_periods": line.Ahead.Periods, "ahead": line.Ahead.Stranded},
		fmt.Sprintf("A new period (%s): %s spends %d, then its link is cut. After %s without a call the report shows "+
			"%d stranded in %s, generation %s, in this period; and %d in each of the %d periods ahead that it holds.",
			period, regionA, spentBeforeCut, unreachable, line.Stranded, regionA, line.Generation, line.Ahead.Stranded/int64(line.Ahead.Periods), line.Ahead.Periods))
	return nil
}

func (w *world) heal(ctx context.Context, period string) error {
	w.Regions[regionA].Heal()
	var report coordinator.StrandedReport
	err := until(ctx, "the report is empty again", func() (ok bool, err error) {
		report, err = w.stranded(ctx)
		return err == nil && len(report.Lines) == 0, err
	})
	if err != nil {
		return err
	}
	if err := w.untilStated(ctx, period, regionA, shareA); err != nil {
		return err
	}
	w.tell.step("healed", fields{"stranded": report.Total["requests"].Stranded},
		fmt.Sprintf("The link heals: %s states what it spent meanwhile (%d of %d), and the report is empty again.", regionA, shareA, shareA))
	return nil
}

func (w *world) stranded(ctx context.Context) (report coordinator.StrandedReport, err error) {
	_, err = w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/stranded"}, &report)
	return report, err
}

// untilStated waits until a region has stated to have spent so much of a period.
func (w *world) untilStated(ctx context.Context, period, region string, spent int64) error {
	return until(ctx, fmt.Sprintf("%s has stated that it spent %d", region, spent), func() (bool, error) {
		var shares coordinator.SharesAnswer
		if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/shares/" + budgetRequests}, &shares); err != nil {
			return false, err
		}
		if len(shares.Terms) == 0 {
			return false, nil
		}
		t := shares.Terms[0]
		if now := t.Period.Start.String(); now != period && t.Period.Start > mustInstant(period) {
			return false, stage.Fatal{Err: errRolledFor(now)}
		}
		for _, r := range t.Regions {
			if r.Region == region && r.Class == allocation.General {
				return r.Spent == spent, nil
			}
		}
		return false, nil
	})
}

func errRolledFor(now string) error { return fmt.Errorf("it is %s: %w", now, errRolled) }

func mustInstant(text string) allocation.Instant {
	var i allocation.Instant
	if err := i.UnmarshalText([]byte(text)); err != nil {
		panic(err) // it was written by Instant.String
	}
	return i
}
