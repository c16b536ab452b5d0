package cli

import (
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
	"tranche/regional"
)

// What a node says of itself must not be "all is well" while nobody can grant it anything, or while it refuses a budget.
func TestNodeProblems(t *testing.T) {
	second := 1.0
	heard := regional.SyncStatus{LastSuccess: time.Unix(999_999, 0), AgeSeconds: 1, EvidenceAgeSeconds: &second}
	over := &regional.Runway{Budget: "acme/requests"}
	for name, c := range map[string]struct {
		status regional.NodeStatus
		sync   string
		want   []string // severity and what; none: nothing
	}{
		"in contact":         {regional.NodeStatus{Sync: heard}, "1 s ago", nil},
		"another node calls": {regional.NodeStatus{Sync: regional.SyncStatus{AgeSeconds: 1, EvidenceAgeSeconds: &second}}, "not by this node; the region heard 1 s ago", nil},
		"just started, nobody there": {
			regional.NodeStatus{Sync: regional.SyncStatus{AgeSeconds: 1, EvidenceAgeSeconds: &second, LastError: "refused"}},
			"never: refused",
			[]string{"warning", "has not reached a coordinator since it started"},
		},
		"first start, nobody there": {regional.NodeStatus{}, "never", []string{"warning", "no coordinator was heard of yet"}},
		"long alone, and over": {
			regional.NodeStatus{Sync: regional.SyncStatus{AgeSeconds: 60}, Runway: over},
			"never",
			[]string{"warning", "last heard 1 min 0 s ago", "critical", "budget acme/requests is refused here (no_allocation)"},
		},
		"in contact, and refused": {regional.NodeStatus{Sync: heard, Runway: over}, "1 s ago", []string{"warning", "budget acme/requests is refused here"}},
		"in shadow":               {regional.NodeStatus{Sync: heard, Shadow: true}, "1 s ago", []string{"note", "refuses nobody"}},
		"in shadow, without a database": {
			regional.NodeStatus{Sync: heard, Shadow: true, Stopped: "starting", StoppedDetail: "the database has not been reached yet"},
			"1 s ago",
			[]string{"warning", "everything is let through: starting the database has not been reached yet"},
		},
		"in shadow, and the database is lost": {regional.NodeStatus{Sync: heard, Shadow: true, LastCommitError: "refused"}, "1 s ago", []string{"warning", "everything is let through: admissions fail to commit"}},
		"a token that is not known": {
			regional.NodeStatus{Sync: regional.SyncStatus{LastSuccess: time.Unix(999_999, 0), AgeSeconds: 1, EvidenceAgeSeconds: &second, TokenUnknown: true}},
			"1 s ago",
			[]string{"critical", "does not know this region's token"},
		},
	} {
		c.status.Ready = true
		var got []string
		problems := nodeProblems(c.status)
		for _, p := range problems {
			got = append(got, p.Severity, p.What)
			if p.Next == "" {
				t.Errorf("%s: %q has no next step", name, p.What)
			}
		}
		same := len(got) == len(c.want)
		for i := 0; same && i < len(got); i++ {
			same = strings.Contains(got[i], c.want[i])
		}
		if !same || allWell(problems) != (len(c.want) == 0 || c.want[0] == coordinator.SeverityNote) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if text := said(func(a *App) { a.printf("%s", a.lastSync(c.status.Sync)) }); text != c.sync {
			t.Errorf("%s: last turn %q, want %q", name, text, c.sync)
		}
	}
}
