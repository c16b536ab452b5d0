package demo

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// What us-east spends of its share in the story: before its link is cut, and while it is.
const (
	spentAlone   = 30
	strandedThen = shareA - spentBeforeCut
	refusedThen  = 20 // requests that eu-west has to refuse meanwhile
)

// strandedStory cuts a region off that holds unspent permits, and lets it return.
func (w *world) strandedStory(ctx context.Context) (totals, error) {
	window, period := calm(time.Now())
	if _, err := w.declare(ctx, budgetRequests, limit, window, 3, 2); err != nil {
		return totals{}, err
	}
	a, err := w.gateway(edge1, w.Regions[regionA], budgetRequests)
	if err != nil {
		return totals{}, err
	}
	b, err := w.gateway(edge2, w.Regions[regionB], budgetRequests)
	if err != nil {
		return totals{}, err
	}
	if err := w.spend(ctx, a, period, spentBeforeCut, 0); err != nil {
		return totals{}, err
	}
	if err := w.untilStated(ctx, period, regionA, spentBeforeCut); err != nil {
		return totals{}, err
	}
	w.tell.step("share", fields{"period": period, regionA: shareA, regionB: shareB, "spent": spentBeforeCut},
		fmt.Sprintf("Two regions share %d requests %s: %s may spend %d, %s %d, each without asking the other. %s has spent %d.",
			limit, each(window), regionA, shareA, regionB, shareB, regionA, spentBeforeCut))
	before, err := w.whatIfLost(ctx)
	if err != nil {
		return totals{}, err
	}
	if err := w.cutAndReport(ctx, period, before); err != nil {
		return totals{}, err
	}
	if err := w.apart(ctx, period, a, b); err != nil {
		return totals{}, err
	}
	if err := w.backAgain(ctx, period, b); err != nil {
		return totals{}, err
	}
	return w.endStory(ctx, 0)
}

// spend asks so often that so many are admitted and so many refused.
func (w *world) spend(ctx context.Context, g *gateway, period string, admitted, refused int) error {
	t, err := g.many(ctx, admitted+refused)
	if err != nil {
		return err
	}
	return expect(g.region.Name, t, period, admitted, refused)
}

// whatIfLost asks before it happens.
func (w *world) whatIfLost(ctx context.Context) (coordinator.WhatIfBudget, error) {
	var answer coordinator.WhatIf
	query := url.Values{"lose": {regionA}, "budget": {budgetRequests}}
	if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/whatif", Query: query}, &answer); err != nil {
		return coordinator.WhatIfBudget{}, err
	}
	if len(answer.Budgets) != 1 || answer.Budgets[0].Lost.Stranded != strandedThen || len(answer.Budgets[0].Others) != 1 || answer.Budgets[0].Ahead == nil {
		return coordinator.WhatIfBudget{}, fmt.Errorf("asked what losing %s would strand, the coordinator says %+v", regionA, answer.Budgets)
	}
	b := answer.Budgets[0]
	w.tell.step("whatif", fields{"stranded": b.Lost.Stranded, "ahead": b.Ahead.Stranded, "ahead_periods": b.Ahead.Periods, "others": b.Others[0].Spendable},
		fmt.Sprintf("What if %s were lost now (tranche whatif --lose %s)? %d permits would be stranded in the running period, and %d in the %d periods ahead "+
			"that it holds already; %s could still spend %d.", regionA, regionA, b.Lost.Stranded, b.Ahead.Stranded, b.Ahead.Periods, regionB, b.Others[0].Spendable))
	return b, nil
}

// cutAndReport cuts the link, and compares the report with what was foretold.
func (w *world) cutAndReport(ctx context.Context, period string, foretold coordinator.WhatIfBudget) error {
	w.Regions[regionA].Cut()
	var l coordinator.StrandedLine
	err := until(ctx, "the report shows what "+regionA+" holds, and a record of it is begun", func() (bool, error) {
		report, err := w.stranded(ctx)
		if len(report.Lines) > 0 {
			l = report.Lines[0]
		}
		return len(report.Lines) == 1 && l.Record != nil, err
	})
	switch {
	case err != nil:
		return err
	case l.Region != regionA || l.Period.Start.String() != period || l.Cause != coordinator.CauseUnreachable:
		return fmt.Errorf("the report says %s, period %s: %s", l.Region, l.Period.Start, l.Cause)
	case l.Granted != shareA || l.Spent != spentBeforeCut || l.Stranded != foretold.Lost.Stranded || l.Ahead == nil || *l.Ahead != *foretold.Ahead:
		return fmt.Errorf("the report says granted %d, spent %d, stranded %d, ahead %+v; foretold were %+v", l.Granted, l.Spent, l.Stranded, l.Ahead, foretold)
	}
	lines := append([]string{
		"",
		"  why         " + l.Cause + ": it has not called for " + unreachable.String(),
		fmt.Sprintf("  now         granted %d − spent %d = stranded %d", l.Granted, l.Spent, l.Stranded),
		fmt.Sprintf("  ahead       %d in %d periods, until %s", l.Ahead.Stranded, l.Ahead.Periods, l.Ahead.Until),
	}, resolvedIf(l)...)
	w.tell.step("stranded", fields{"region": l.Region, "cause": l.Cause, "stranded": l.Stranded, "ahead": l.Ahead.Stranded, "ahead_periods": l.Ahead.Periods, "resolve": l.Resolve},
		fmt.Sprintf("The link of %s is cut. The report (tranche stranded list --detail) says so, to the permit:", regionA), append(lines, "")...)
	return nil
}

// resolvedIf is what the report says would resolve a line.
func resolvedIf(l coordinator.StrandedLine) (lines []string) {
	for i, r := range l.Resolve {
		lines = append(lines, []string{"  resolved if ", "  or if       "}[min(i, 1)]+r.Text)
	}
	return lines
}

// apart is what both regions can do while one is cut off.
func (w *world) apart(ctx context.Context, period string, a, b *gateway) error {
	if err := w.spend(ctx, b, period, shareB, 0); err != nil {
		return err
	}
	err := until(ctx, regionB+" hears that the rest is stranded", func() (bool, error) {
		d, err := b.check(ctx)
		return d.Reason == string(allocation.CapacityStranded), err
	})
	if err != nil {
		return err
	}
	refused, err := b.many(ctx, refusedThen)
	if err != nil {
		return err
	}
	if err := expect(regionB+" beyond its share", refused, period, 0, refusedThen); err != nil {
		return err
	}
	if refused.last.Reason != string(allocation.CapacityStranded) {
		return fmt.Errorf("%s refuses with %s, not with %s", regionB, refused.last.Reason, allocation.CapacityStranded)
	}
	w.tell.step("refused", fields{"region": regionB, "admitted": shareB, "refused": refusedThen, "reason": refused.last.Reason},
		fmt.Sprintf("%s spends its own %d. %d more are refused (%s). No timeout gives it the rest: %s may be spending it right now.",
			regionB, shareB, refusedThen, why(refused.last), regionA))
	if err := w.spend(ctx, a, period, spentAlone, 0); err != nil {
		return err
	}
	w.tell.step("alone", fields{"region": regionA, "admitted": spentAlone},
		fmt.Sprintf("And so it is: %s, cut off, goes on and admits %d more from what it holds.", regionA, spentAlone))
	return nil
}

// backAgain heals the link, and reads what became of it.
func (w *world) backAgain(ctx context.Context, period string, b *gateway) error {
	w.Regions[regionA].Heal()
	var past coordinator.Stranding
	err := until(ctx, "the report is empty, and its history says how that came", func() (bool, error) {
		var report coordinator.StrandedReport
		_, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/stranded", Query: url.Values{"history": {"true"}}}, &report)
		if len(report.History) > 0 {
			past = report.History[0]
		}
		return len(report.Lines) == 0 && len(report.History) == 1, err
	})
	if err != nil {
		return err
	}
	if past.Region != regionA || past.How != coordinator.ResolvedReturned || past.Ended == nil || past.Most != strandedThen || past.LateSpent != spentAlone || past.PermitSeconds <= 0 {
		return fmt.Errorf("the history says of %s: %s, at most %d stranded, %d spent meanwhile, %d permit-seconds", past.Region, past.How, past.Most, past.LateSpent, past.PermitSeconds)
	}
	if err := w.untilStated(ctx, period, regionA, spentBeforeCut+spentAlone); err != nil {
		return err
	}
	w.tell.step("returned", fields{"how": past.How, "most": past.Most, "late_spent": past.LateSpent, "permit_seconds": past.PermitSeconds, "opened": past.Opened, "ended": past.Ended},
		fmt.Sprintf("The link heals: %s states what it spent, and the report is empty. Its history (--history) keeps: opened %s, resolved %s, %s; "+
			"at most %d stranded, %d permit-seconds; %d of them turned out to be spent meanwhile.", regionA, past.Opened.UTC().Format(time.TimeOnly), past.Ended.UTC().Format(time.TimeOnly), past.How,
			past.Most, past.PermitSeconds, past.LateSpent))
	err = until(ctx, regionB+" hears that nothing is stranded", func() (bool, error) {
		d, err := b.check(ctx)
		return d.Reason == string(allocation.RegionShareSpent), err
	})
	if err != nil {
		return err
	}
	w.tell.step("heard", fields{"region": regionB, "reason": allocation.RegionShareSpent},
		fmt.Sprintf("%s now says %s: %s has %d left that can be moved, and somebody who can be asked for them.", regionB, allocation.RegionShareSpent, regionA, strandedThen-spentAlone))
	return nil
}
