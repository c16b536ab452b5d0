package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// heldBy is what a region's database says of one budget.
type heldBy struct{ held, spent, reserved int64 }

func readHeld(ctx context.Context, t *testing.T, database, budget string) (h heldBy) {
	t.Helper()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	row := conn.QueryRow(ctx, "select granted - returned, spent, reserved from tranche.usage where budget = $1", budget)
	if err := row.Scan(&h.held, &h.spent, &h.reserved); err != nil {
		t.Fatal(err)
	}
	return h
}

func (th *theatre) report() coordinator.StrandedReport {
	th.t.Helper()
	admin, err := th.Admin(0)
	if err != nil {
		th.t.Fatal(err)
	}
	var r coordinator.StrandedReport
	if _, err := admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/stranded", Query: url.Values{"history": {"true"}}}, &r); err != nil {
		th.t.Fatal(err)
	}
	return r
}

// line waits for a line of us-east that holds.
func (th *theatre) line(budget string, holds func(coordinator.StrandedLine) bool) (found coordinator.StrandedLine) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, "the report shows "+budget, func() (bool, error) {
		for _, l := range th.report().Lines {
			if l.Region == "us-east" && l.Budget == budget && holds(l) {
				found = l
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		th.t.Fatal(err)
	}
	return found
}

// spend asks one region so often, and counts the answers by reason.
func (th *theatre) spend(region, tenant string, n int) map[string]int64 {
	th.t.Helper()
	counts := map[string]int64{}
	for i := range n {
		client, err := th.Gateway(stage.Edge1, th.Regions[region].Nodes[i%len(th.Regions[region].Nodes)])
		if err != nil {
			th.t.Fatal(err)
		}
		d, err := decided(th.t.Context(), client, api.Admission{
			ID: fmt.Sprintf("%s-%06d", tenant, serial.Add(1)), Op: "spend", Labels: map[string]string{"tenant": tenant}, Deadline: 5 * time.Second,
		})
		if err != nil {
			th.t.Fatal(err)
		}
		counts[d.Reason]++
	}
	return counts
}

// The report must be right to the permit. What was stated before the cut is what the owner's database holds; under load it
// overstates what is left by what was spent since, and when the region is back the difference is recorded exactly. What
// other nodes refused for it meanwhile is counted once each.
func TestStrandedReportIsRightToThePermit(t *testing.T) {
	t.Parallel()
	s, err := stage.Start(t.Context(), stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 1, Unreachable: 3 * time.Second})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	th, year := &theatre{s, t}, allocation.Window{Calendar: "year"}
	th.declare(fixed("stranded/quiet", 50, "quiet", year))
	th.declare(fixed("stranded/busy", 1_000_000, "busy", year))
	if n := th.spend("us-east", "quiet", 7); n[string(allocation.Allow)] != 7 {
		t.Fatal(n)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, s, "busy")
	l.progress(t, someMore, "us-east", "eu-west")
	th.untilSpentStated("stranded/quiet", 7)
	s.Regions["us-east"].Cut()

	quiet := th.line("stranded/quiet", func(l coordinator.StrandedLine) bool { return l.Record != nil })
	db := readHeld(t.Context(), t, s.Regions["us-east"].Database, "stranded/quiet")
	if quiet.Granted-quiet.Returned != db.held || quiet.Spent != db.spent || quiet.Reserved != db.reserved || quiet.Stranded != db.held-db.spent-db.reserved || quiet.Stranded != 23 {
		t.Errorf("the report says %+v, the owner %+v", quiet.Remainder, db)
	}
	busy := th.line("stranded/busy", func(l coordinator.StrandedLine) bool { return l.Record != nil })
	l.progress(t, someMore, "us-east", "eu-west")
	// eu-west uses up its 20, and is refused because the rest is stranded.
	refused := int64(0)
	err = stage.Until(t.Context(), progressWait, "eu-west says that the rest is stranded", func() (bool, error) {
		n := th.spend("eu-west", "quiet", 10)[string(allocation.CapacityStranded)]
		refused += n
		return n == 10, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	th.line("stranded/quiet", func(l coordinator.StrandedLine) bool { return l.Record != nil && l.Record.Refused.Requests == refused })
	stop()
	l.done.Wait()
	busyDB := readHeld(t.Context(), t, s.Regions["us-east"].Database, "stranded/busy")
	if busy.Granted-busy.Returned != busyDB.held || busy.Spent >= busyDB.spent || busy.Stranded <= busyDB.held-busyDB.spent-busyDB.reserved {
		t.Errorf("the report says %+v, the owner %+v", busy.Remainder, busyDB)
	}

	s.Regions["us-east"].Heal()
	late := map[string]int64{"stranded/quiet": 0, "stranded/busy": busyDB.spent - busy.Spent}
	err = stage.Until(t.Context(), progressWait, "both are resolved", func() (bool, error) {
		report := th.report()
		for _, e := range report.History {
			if e.How != coordinator.ResolvedReturned || e.LateSpent != late[e.Budget] {
				return false, stage.Fatal{Err: fmt.Errorf("%s ended by %s, with %d spent late, not %d", e.Budget, e.How, e.LateSpent, late[e.Budget])}
			}
		}
		return len(report.History) == 2 && len(report.Lines) == 0, nil
	})
	if err != nil {
		t.Error(err)
	}
	if n := l.count["us-east"].Load(); n != busyDB.spent || len(l.unknown)+len(l.strange) > 0 {
		t.Errorf("clients saw %d admissions in us-east, its database %d; %v %v", n, busyDB.spent, l.unknown, l.strange)
	}
	th.untilSpentStated("stranded/busy", busyDB.spent)
}

// untilSpentStated waits until us-east has stated to have spent so much.
func (th *theatre) untilSpentStated(budget string, spent int64) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, fmt.Sprintf("us-east has stated %d of %s", spent, budget), func() (bool, error) {
		stated := int64(-1)
		admin, err := th.Admin(0)
		if err != nil {
			return false, err
		}
		var shares coordinator.SharesAnswer
		if _, err := admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/shares/" + budget}, &shares); err != nil {
			return false, err
		}
		for _, r := range shares.Terms[0].Regions {
			if r.Region == "us-east" {
				stated = r.Spent
			}
		}
		return stated == spent, nil
	})
	if err != nil {
		th.t.Fatal(err)
	}
}
