package cli

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// Of a template a region may hold much more than what was seen. A bare 0 would say that nothing is lost for now.
func TestStrandedTellsUnseenInstances(t *testing.T) {
	text := said(func(a *App) {
		a.showStranded(coordinator.StrandedReport{
			Total: map[string]coordinator.StrandedTotal{"requests": {Stranded: 3, Unseen: 5000}},
			Lines: []coordinator.StrandedLine{
				{Region: "a", Budget: "b", Unit: "requests", Remainder: allocation.Remainder{Stranded: 3}, Ahead: &coordinator.StrandedAhead{Periods: 1, Stranded: 7}},
				{Region: "a", Budget: "b/{c}", Unit: "requests", Remainder: allocation.Remainder{Unseen: 5000}, Ahead: &coordinator.StrandedAhead{Periods: 2, Unseen: 100}},
			},
		})
	})
	wants(t, text, "  3  ", "7 in 1 period ", "0 + up to 5000 unseen", "0 + up to 100 unseen in 2 periods", "3 + up to 5000 unseen requests are stranded")
}

// The same of a write-off: 0 would be written off, and a region that may hold thousands would be taken for empty.
func TestWriteOffTellsUnseenInstances(t *testing.T) {
	text := said(func(a *App) {
		a.showWriteOff(coordinator.WriteOffAnswer{DryRun: true, WriteOff: coordinator.WriteOff{
			Budget: "b/{c}", Unit: "requests", Region: "a",
			Now: allocation.Remainder{Unseen: 5000}, Ahead: &coordinator.StrandedAhead{Periods: 2, Unseen: 100},
		}})
	})
	wants(t, text, "0 + up to 5000 unseen requests of b/{c}", "and 0 + up to 100 unseen in the 2 periods after it")
}

// A region that began anew stands there twice: by its incarnations one sees which is which, and a former one of which nothing
// is out is left out.
func TestPreviewTellsIncarnationsApart(t *testing.T) {
	region := func(incarnation string, contact bool, held int64) coordinator.PreviewRegion {
		return coordinator.PreviewRegion{Holder: allocation.Holder{Region: "us-east", Incarnation: incarnation}, InContact: contact, Held: held}
	}
	text := said(func(a *App) {
		a.showPreview(applied{Budget: "b", Action: actionChanged, Answer: &coordinator.BudgetAnswer{Preview: &coordinator.Preview{
			Regions: []coordinator.PreviewRegion{region("new", true, 0), region("former", false, 7), region("empty", false, 0)},
		}}})
	})
	wants(t, text, "new", "former")
	if strings.Contains(text, "empty") {
		t.Error(text)
	}
}

// report is one of everything that a report can show; names are as bad as names get.
func report() coordinator.StrandedReport {
	since := time.Date(2026, 5, 4, 10, 0, 7, 0, time.UTC)
	ended := since.Add(90 * time.Minute)
	end := allocation.Instant(1798761600)
	period := allocation.Period{Start: 1767225600, End: end}
	trade := &coordinator.StrandedTrade{
		Period: period, Limit: 100_000, Refused: coordinator.Refused{Requests: 8, Units: 16_000},
		Demand: []allocation.RegionDemand{{Region: "eu-west", Before: 5_000, During: 46_000}, {Region: "us-east", Before: 12_500, During: 9_000, Estimated: true}},
	}
	for _, d := range trade.Demand {
		trade.Homes = append(trade.Homes, allocation.SingleHome(d.Region, trade.Limit, trade.Demand, []string{"us-east"}))
	}
	return coordinator.StrandedReport{
		At: since.Add(time.Hour), UnreachableAfter: "10s", Revision: 4711, EvidenceAge: 12,
		Total: map[string]coordinator.StrandedTotal{
			"requests":   {Stranded: 45_000, Exposed: 47_500, AheadStranded: 120_000, AheadExposed: 120_000},
			"usd_micros": {WrittenOff: 9_876_543, Exposed: 0},
		},
		Lines: []coordinator.StrandedLine{
			{
				Region: "us-east", Incarnation: "1954e26843f411c2", Budget: "acme/requests", Unit: "requests", Cause: coordinator.CauseUnreachable, Since: &since,
				Period: period, Generation: allocation.Generation{Number: 7, Stamp: "5f0c9a41d2e83b60"}, StatedAt: &since,
				Remainder: allocation.Remainder{Granted: 60_000, Spent: 12_500, Reserved: 2_500, Stranded: 45_000, Exposed: 47_500},
				Ahead:     &coordinator.StrandedAhead{Periods: 2, Until: end + 86400, Stranded: 120_000, Exposed: 120_000},
				Resolve: []coordinator.StrandedRemedy{
					{How: coordinator.ResolvedReturned, Text: "region us-east calls again: its statement says what it spent, and the line goes"},
					{How: coordinator.ResolvedSealed, Text: "a seal, read from the recorded home of this incarnation: its remainder is granted again"},
					{How: coordinator.ResolvedPeriodEnd, At: &end, Text: "the period ends at " + end.String() + "; what was not spent by then is lost to everybody"},
				},
				Record: &coordinator.StrandedRecord{
					Opened: since, AtFirst: 45_000, Most: 45_000, Elapsed: allocation.Elapsed{PermitSeconds: 162_000_000}, Refused: coordinator.Refused{Requests: 8, Units: 16_000},
				},
				Compensated: &coordinator.Compensation{Units: 20_000, Until: end, Before: coordinator.CompensatedBudget{Limit: 100_000}, After: coordinator.CompensatedBudget{Limit: 120_000}, By: "Ada", Reason: "us-east is cut off"},
				Trade:       trade,
			},
			{
				Region: "ap-south", Incarnation: "77aa01c3d2e83b60", Budget: `money/<script>alert("x")</script>`, Unit: "usd_micros", Cause: coordinator.CauseLostHistory, Since: &since,
				Period: period, Generation: allocation.Generation{Number: 3, Stamp: "61d2a7cc45f0e1b9"},
				Remainder:  allocation.Remainder{Granted: 20_000_000, Spent: 10_123_457, Stranded: 9_876_543, Exposed: 9_876_543},
				WrittenOff: &coordinator.WriteOff{By: "Grace", Reason: "=HYPERLINK(1)", Through: end},
			},
		},
		History: []coordinator.Stranding{{
			Budget: "acme/tokens", Unit: "tokens", Region: "eu-west", Incarnation: "0011223344556677", Cause: coordinator.CauseUnreachable, Since: since, Opened: since, Period: period,
			Latest: allocation.Remainder{Granted: 40, Stranded: 30}, Most: 40, Elapsed: allocation.Elapsed{PermitSeconds: 4711, Periods: 3, Expired: 120},
			Ended: &ended, How: coordinator.ResolvedReturned, LateSpent: 12, RefusedBy: map[string]coordinator.Refused{"us-east": {Requests: 5}},
		}},
	}
}

// The page is sent to customers: it must need nothing from elsewhere, run nothing, and take no name for markup.
func TestStrandedPageStandsAlone(t *testing.T) {
	var page strings.Builder
	if err := writeStrandedPage(&page, report()); err != nil {
		t.Fatal(err)
	}
	if name := os.Getenv("STRANDED_PAGE"); name != "" { // to look at it
		if err := os.WriteFile(name, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, outside := range []string{"<script", "src=", "href=", "url(", "@import", "http:", "https:", "javascript:"} {
		if strings.Contains(page.String(), outside) {
			t.Errorf("the page holds %s", outside)
		}
	}
	wants(t, page.String(), "45\u202f000", "162\u202f000\u202f000", "unreachable", "lost history", "written off", "compensated +20\u202f000", "1 h 30 min",
		"region us-east calls again", "estimated from its rate", "9\u202f876\u202f543", "&lt;script&gt;", "region returned")
}

// Spreadsheets add these columns up: each row has them all, in one order, and none is a formula.
func TestStrandedCSV(t *testing.T) {
	var out strings.Builder
	if err := writeStrandedCSV(&out, report()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil || len(rows) != 7 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	cell := func(row int, name string) string { return rows[row][slices.Index(rows[0], name)] }
	for _, c := range []struct {
		row        int
		name, want string
	}{
		{1, "row", "now"},
		{1, "stranded", "45000"},
		{1, "permit_seconds", "162000000"},
		{1, "compensated_units", "20000"},
		{1, "since", "2026-05-04T10:00:07Z"},
		{2, "row", "ahead"},
		{2, "stranded", "120000"},
		{2, "periods", "2"},
		{3, "row", "one home"},
		{3, "home", "eu-west"},
		{3, "home_admitted", "63500"},
		{3, "home_after_round_trip", "12500"},
		{3, "home_unreachable", "9000"},
		{3, "home_estimated", "yes"},
		{3, "stranded", ""},
		{4, "home", "us-east"},
		{5, "written_off_reason", "'=HYPERLINK(1)"},
		{5, "stated_at", ""},
		{1, "resolved_by", "region returned or sealed or period ended"},
		{1, "resolved_at_the_latest", "2027-01-01T00:00:00Z"},
		{6, "row", "resolved"},
		{6, "late_spent", "12"},
		{6, "refused_requests", "5"},
		{6, "ended", "2026-05-04T11:30:07Z"},
		{6, "how", "region returned"},
	} {
		if got := cell(c.row, c.name); got != c.want {
			t.Errorf("row %d, %s: %q, not %q", c.row, c.name, got, c.want)
		}
	}
}

// What is printed for a person holds each figure that the issue of a stranding turns on.
func TestStrandedDetail(t *testing.T) {
	text := said(func(a *App) {
		r := report()
		a.showStranded(r)
		a.showStrandedLine(r.Lines[0])
		a.showHistory(r.History)
	})
	wants(t, text, "unreachable, compensated", "lost history,", "9876543 usd_micros are written off", "162000000 permit-seconds", "at least 8 requests for 16000 requests",
		"resolved if region us-east calls again", "with one home in eu-west: 63500 requests admitted, 12500 of them after a round trip, 9000 unreachable", "region returned")
}
