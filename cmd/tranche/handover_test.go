package main

import (
	"context"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// mover hands us-east over to another server, and says what the command printed.
type mover struct {
	*theatre
	old, new string // URLs
}

func (m *mover) run(want int, args ...string) string {
	m.t.Helper()
	status, printed := inProcess(append([]string{
		"regions", "handover", "us-east", "--from-url", m.old, "--coordinator", m.Coordinators[0].Address, "--token", m.AdminToken,
	}, args...)...)
	if status != want {
		m.t.Fatalf("%v ended with %d, not %d: %s", args, status, want, printed)
	}
	return printed
}

var forReal = []string{"--yes", "--reason", "a new server", "--by", "Ada"}

func (m *mover) says(printed string, want ...string) {
	m.t.Helper()
	for _, w := range want {
		if !strings.Contains(printed, w) {
			m.t.Errorf("it does not say %q: %s", w, printed)
		}
	}
}

// stopped checks that nothing is admitted in us-east, while eu-west goes on.
func (m *mover) stopped(l *load) {
	m.t.Helper()
	before := readCharged(m.t.Context(), m.t, m.old)
	l.progress(m.t, someMore, "eu-west")
	if after := readCharged(m.t.Context(), m.t, m.old); after.spent["faults/all"] != before.spent["faults/all"] {
		m.t.Errorf("a stopped owner spent %v, then %v", before.spent, after.spent)
	}
	for _, n := range m.Regions["us-east"].Nodes {
		client, err := m.Gateway(stage.Edge1, n)
		if err != nil {
			m.t.Fatal(err)
		}
		d, err := api.Admit(m.t.Context(), client, api.Admission{ID: "probe", Op: "spend", Labels: map[string]string{"tenant": "big"}, Deadline: time.Second})
		if err != nil || d.Status != http.StatusServiceUnavailable || d.Reason != "starting" || d.Unknown() {
			m.t.Errorf("%s answers %d %s %s, %v", n.Name, d.Status, d.Reason, d.Detail, err)
		}
	}
}

// A region's owner moves to another server under load: by a copy that was made too early, which is refused, called off in
// between, and by a copy that lacks nothing. The same incarnation goes on there, nothing that a client saw is lost or
// doubled, and the old database admits nothing ever again.
func TestHandoverUnderLoad(t *testing.T) {
	s, err := stage.Start(t.Context(), stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 1, Unreachable: 3 * time.Second})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
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
	r := s.Regions["us-east"]
	m := &mover{&theatre{s, t}, r.Database, database}
	m.declareAll()
	life, err := incarnationOf(t.Context(), r.Database)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, s, "big", "small")
	l.progress(t, someMore, "us-east", "eu-west")

	m.says(m.run(0, "--to-url", m.new), "admits", "would stop", "nothing was changed")
	m.copyOver()
	l.progress(t, someMore, "us-east")
	m.says(m.run(1, append(forReal, "--to-url", m.new)...), "copied before the owner stopped", "is stopped", "--cancel")
	m.stopped(l)
	m.says(m.run(0, "--cancel"), "stopped", "would go on")
	m.run(0, append(forReal, "--cancel")...)
	l.progress(t, someMore, "us-east")

	m.says(m.run(0, forReal...), "stopped", "Copy its database now")
	m.stopped(l)
	m.says(m.run(0, "--to-url", m.new), "differs", "not complete")
	m.copyOver()
	m.says(m.run(0, "--to-url", m.new), "lacks nothing")
	m.says(m.run(0, append(forReal, "--to-url", m.new)...), "moved", "is the home")
	m.run(0, append(forReal, "--to-url", m.new)...) // nothing is left to do
	m.stopped(l)

	r.Move(m.new)
	r.Nodes[0].Kill()
	m.start(r.Nodes[0])
	l.progress(t, someMore, "us-east", "eu-west")
	m.oldIsOver(r)
	r.Nodes[1].Kill()
	m.start(r.Nodes[1])
	l.progress(t, someMore, "us-east")
	stop()
	l.judge(t, charges)
	if now, err := incarnationOf(t.Context(), m.new); err != nil || now != life {
		t.Errorf("us-east is %s, and was %s: %v", now, life, err)
	}
	m.small()
	m.account()
	m.audited()
	if err := s.Failure(); err != nil {
		t.Error(err)
	}
}

// copyOver puts a copy of the old database into the new server.
func (m *mover) copyOver() {
	m.t.Helper()
	dump := filepath.Join(m.t.TempDir(), "dump")
	old, copied := stage.Region{Database: m.old}, stage.Region{Database: m.new}
	if err := old.Dump(m.t.Context(), dump); err != nil {
		m.t.Fatal(err)
	}
	if err := copied.Restore(m.t.Context(), dump); err != nil {
		m.t.Fatal(err)
	}
}

// oldIsOver restarts the old server: its node, which runs on, admits nothing then either, and nobody calls it off.
func (m *mover) oldIsOver(r *stage.Region) {
	m.t.Helper()
	before := readCharged(m.t.Context(), m.t, m.old)
	if err := r.Postgres.Kill(); err != nil {
		m.t.Fatal(err)
	}
	if err := r.Postgres.StartAgain(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.says(m.run(1, append(forReal, "--cancel")...), "recorded home")
	client, err := m.Gateway(stage.Edge1, r.Nodes[1])
	if err != nil {
		m.t.Fatal(err)
	}
	err = stage.Until(m.t.Context(), progressWait, "the node on the old server answers", func() (bool, error) {
		d, err := api.Admit(m.t.Context(), client, api.Admission{ID: "probe", Op: "spend", Labels: map[string]string{"tenant": "big"}, Deadline: time.Second})
		return d.Status == http.StatusServiceUnavailable && d.Reason == "starting", err
	})
	if err != nil {
		m.t.Error(err)
	}
	if after := readCharged(m.t.Context(), m.t, m.old); after.spent["faults/all"] != before.spent["faults/all"] {
		m.t.Errorf("the old owner spent %v, then %v", before.spent, after.spent)
	}
}

// audited checks that each step names who did it, and why.
func (m *mover) audited() {
	m.t.Helper()
	admin, err := m.Admin(0)
	if err != nil {
		m.t.Fatal(err)
	}
	var page coordinator.AuditPage
	if _, err := admin.Do(m.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/audit", Query: url.Values{"limit": {"1000"}}}, &page); err != nil {
		m.t.Fatal(err)
	}
	steps := map[string]int{}
	for _, line := range page.Lines {
		if strings.HasPrefix(line.Act, "region.handover-") && strings.Contains(string(line.New), "a new server") && strings.Contains(string(line.New), "Ada") {
			steps[line.Act]++
		}
	}
	if steps["region.handover-begin"] != 2 || steps["region.handover-end"] != 1 || steps["region.handover-move"] != 1 {
		m.t.Errorf("the audit holds %v", steps)
	}
}
