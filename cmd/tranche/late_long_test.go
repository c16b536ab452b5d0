//go:build long

package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/coordinator/archive"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// closes is how long a term may take to be closed after its end: nodes wait for 30 s, and look every 10.
const closes = 90 * time.Second

// left is a region that was cut off and replaced. Its old node and database run on, and reach nobody.
type left struct {
	*theatre
	life string // the incarnation that was replaced
}

// command runs `tranche` against the coordinator, and reads what it prints as JSON.
func (th *theatre) command(out any, args ...string) {
	th.t.Helper()
	status, printed := inProcess(append(args, "--json", "--coordinator", th.Coordinators[0].Address, "--token", th.AdminToken)...)
	if status != 0 {
		th.t.Fatalf("%v ended with %d: %s", args, status, printed)
	}
	if err := json.Unmarshal([]byte(printed), out); err != nil {
		th.t.Fatalf("%v: %v in %s", args, err, printed)
	}
}

// record is that of the one term of a budget, and what it says of the incarnation; false: it is not closed.
func (l *left) record(budget string) (c coordinator.Closing, at coordinator.ClosedRegion, closed bool) {
	l.t.Helper()
	var list []coordinator.Closing
	l.command(&list, "budgets", "closings", "--budget", budget)
	for _, c := range list {
		for _, r := range c.Regions {
			if r.Incarnation == l.life {
				return c, r, true
			}
		}
	}
	return c, at, false
}

// late waits until the record has its late statement.
func (l *left) late(budget string) (c coordinator.Closing, said coordinator.LateStatement) {
	l.t.Helper()
	err := stage.Until(l.t.Context(), progressWait, "the record of "+budget+" has what was stated late", func() (bool, error) {
		found, at, closed := l.record(budget)
		if !closed || at.Late == nil {
			return false, nil
		}
		c, said = found, *at.Late
		return true, nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return c, said
}

// leave cuts us-east off, lets it spend 7 more, and starts it anew on another database, by links of its own.
func (th *theatre) leave(database string) *left {
	th.t.Helper()
	r := th.Regions["us-east"]
	life, err := incarnationOf(th.t.Context(), r.Database)
	if err != nil {
		th.t.Fatal(err)
	}
	r.Cut()
	if n := th.spend("us-east", "late", 7); n[string(allocation.Allow)] != 7 {
		th.t.Fatal(n)
	}
	links := r.Links
	if r.Links, err = th.MoreLinks(); err != nil {
		th.t.Fatal(err)
	}
	node, err := th.NodeOn(r, database)
	r.Links = links
	if err != nil {
		th.t.Fatal(err)
	}
	th.start(node)
	return &left{th, life}
}

// moveToArchive does to one record what the sweep does after --closing-retention, which is an hour at least.
func (th *theatre) moveToArchive(c coordinator.Closing) {
	th.t.Helper()
	server := th.Coordinators[0]
	server.Kill()
	f, err := archive.Open(filepath.Join(th.Dir, server.Name+".state", "closings.jsonl"), func(*os.File) error { return nil })
	if err != nil {
		th.t.Fatal(err)
	}
	if err := f.Append([]coordinator.Closing{c}); err != nil {
		th.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		th.t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: th.Etcd.Endpoints()})
	if err != nil {
		th.t.Fatal(err)
	}
	defer etcd.Close()
	if gone, err := etcd.Delete(th.t.Context(), c.Key()); err != nil || gone.Deleted != 1 {
		th.t.Fatal(gone, err)
	}
	th.start(server)
}

// A region is cut off, its database is replaced, and two terms close without it: the record of one is in etcd, that of the
// other in the archive by then. The old database comes back, and is refused. What it spent alone must stand in both records,
// and in what is stranded of a term that is open; it is entered once, and nothing is opened again.
func TestLateStatementsOnRealParts(t *testing.T) {
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, EtcdMembers: 1, Unreachable: 3 * time.Second})
	now := allocation.At(time.Now())
	once := allocation.Window{Once: &allocation.Once{From: now - 1, Until: now + 25}}
	for _, name := range []string{"late/etcd", "late/moved"} {
		b := fixed(name, 100, "late", once)
		b.RunsAloneFor = allocation.Hour
		th.declare(b)
	}
	th.declare(fixed("late/year", 100, "late", allocation.Window{Calendar: "year"}))
	if n := th.spend("us-east", "late", 5); n[string(allocation.Allow)] != 5 {
		t.Fatal(n)
	}
	for _, b := range []string{"late/etcd", "late/moved", "late/year"} {
		th.untilSpentStated(b, 5)
	}
	server, err := cluster.Start(t.Context(), cluster.Options{Dir: filepath.Join(clustertest.Dir(t), "new")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	database, err := server.CreateDatabase(t.Context(), "tranche")
	if err != nil {
		t.Fatal(err)
	}
	l := th.leave(database)
	for _, b := range []string{"late/etcd", "late/moved"} {
		err := stage.Until(t.Context(), closes, b+" is closed", func() (bool, error) {
			_, at, closed := l.record(b)
			if closed && (at.Spent != 5 || at.Late != nil || at.Unrecovered != 55) {
				t.Fatalf("%+v", at)
			}
			return closed, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	moved, _, _ := l.record("late/moved")
	th.moveToArchive(moved)
	if l := l.yearLine(); l.Spent != 5 || l.Stranded != 55 || l.Cause != coordinator.CauseLostHistory {
		t.Errorf("%+v", l)
	}

	old := th.Regions["us-east"].Nodes[0]
	th.Regions["us-east"].Heal()
	kept, first := l.late("late/etcd")
	if first.Spent != 12 || kept.Unrecovered != 55 {
		t.Errorf("%+v said late in %+v", first, kept)
	}
	if c, said := l.late("late/moved"); said.Spent != 12 || c.Closed != moved.Closed {
		t.Errorf("%+v said late in %+v", said, c)
	}
	l.settled()
	// The old node starts once more, and says it again.
	old.Kill()
	if err := old.Launch(); err != nil {
		t.Fatal(err)
	}
	l.answers(old, "late", allocation.HistoryLost)
	if _, again := l.late("late/etcd"); again != first {
		t.Errorf("it was said at %s, and then at %s", first.At, again.At)
	}
	l.settled()
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// yearLine is what is stranded of the year with the old incarnation.
func (l *left) yearLine() (found coordinator.StrandedLine) {
	l.t.Helper()
	for _, line := range l.report().Lines {
		if line.Budget == "late/year" && line.Incarnation == l.life {
			found = line
		}
	}
	return found
}

// settled checks that the reports say what was stated late, and that it opened nothing and gave nobody anything.
func (l *left) settled() {
	l.t.Helper()
	if line := l.yearLine(); line.Spent != 12 || line.Stranded != 48 || line.Granted != 60 || line.Returned != 0 {
		l.t.Errorf("of the open term the report says %+v", line.Remainder)
	}
	late := map[string]int64{}
	err := stage.Until(l.t.Context(), progressWait, "the history says what was spent late", func() (bool, error) {
		var report coordinator.StrandedReport
		l.command(&report, "stranded", "list", "--history")
		clear(late)
		for _, e := range report.History {
			if e.Incarnation == l.life {
				late[e.Budget] += e.LateSpent
			}
		}
		return late["late/etcd"] == 7 && late["late/moved"] == 7, nil // the archive is written first
	})
	if err != nil {
		l.t.Errorf("%v: it says %v", err, late)
	}
	for _, b := range []string{"late/etcd", "late/moved"} {
		var answer coordinator.SharesAnswer
		admin, err := l.Admin(0)
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := admin.Do(l.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/shares/" + b}, &answer); err != nil || len(answer.Terms) != 0 {
			l.t.Errorf("of %s are open: %+v, %v", b, answer.Terms, err)
		}
	}
	for budget, kept := range map[string]string{"late/etcd": "etcd", "late/moved": "archive"} {
		status, printed := inProcess("ledgers", "show", budget, "--coordinator", l.Coordinators[0].Address, "--token", l.AdminToken)
		if lines := strings.Split(strings.TrimSpace(printed), "\n"); status != 0 || len(lines) != 2 || !strings.Contains(lines[1], "closed") || !strings.HasSuffix(lines[1], kept) {
			l.t.Errorf("%d: %s", status, printed)
		}
	}
	status, printed := inProcess("budgets", "closings", "--budget", "late/*", "--coordinator", l.Coordinators[0].Address, "--token", l.AdminToken)
	if status != 0 || strings.Count(printed, "late/") != 2 {
		l.t.Errorf("%d: %s", status, printed)
	}
}
