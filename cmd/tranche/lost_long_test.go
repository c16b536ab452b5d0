//go:build long

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// The budget of these tests: two regions with the same share, and a part that is kept for one that starts with nothing.
const (
	lostLimit = 6000
	lostShare = 2700
	lostKept  = lostLimit - 2*lostShare
	moved     = 500 // from us-east to eu-west, in what etcd then loses
)

// lostTheatre is a deployment with one budget, and an etcd of one member, whose data can be taken back.
func lostTheatre(t *testing.T, databases map[string]string) *theatre {
	t.Helper()
	s, err := stage.Start(t.Context(), stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 2, EtcdMembers: 1, Unreachable: 3 * time.Second, Databases: databases,
	})
	t.Cleanup(func() {
		if t.Failed() {
			tellLogs(t, s.Dir)
			tellDatabase(t, s.Regions["us-east"].Database)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	th := &theatre{s, t}
	th.declareLost()
	return th
}

// declareLost declares the budgets of these tests.
func (th *theatre) declareLost() {
	th.t.Helper()
	limit := int64(lostLimit)
	th.declare(allocation.Budget{
		Name: "lost/all", Unit: "requests", Limit: &limit, Window: allocation.Window{Calendar: "year"}, Match: map[string]string{"tenant": "big"},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"us-east": 1, "eu-west": 1}, KeepPercent: 10},
	})
	seconds := fixed("lost/seconds", 1_000_000, "big", allocation.Window{Every: 1})
	seconds.Allocation.KeepPercent = 10 // a region that starts with nothing gets it in all periods that are opened
	th.declare(seconds)
}

// decided waits until so many more were admitted or refused in the regions: they go on, whatever they have left.
func (l *load) decided(t *testing.T, more int, regions ...string) {
	t.Helper()
	count := func(name string) int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.admitted[name]) + len(l.refused[name])
	}
	for _, name := range regions {
		from := count(name)
		err := stage.Until(t.Context(), progressWait, fmt.Sprintf("%s has decided %d more", name, more), func() (bool, error) {
			return count(name) >= from+more, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// usedUp waits until a region refuses: it has spent what it holds.
func (l *load) usedUp(t *testing.T, regions ...string) {
	t.Helper()
	for _, name := range regions {
		err := stage.Until(t.Context(), progressWait, name+" has spent what it holds", func() (bool, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.refused[name]) > someMore, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// capped checks that no more was admitted than the limit, by what the clients saw.
func (l *load) capped(t *testing.T, limit int) {
	t.Helper()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for region, ids := range l.admitted {
		total += len(ids)
		t.Logf("%s admitted %d", region, len(ids))
	}
	if total > limit {
		t.Errorf("%d were admitted of %d", total, limit)
	}
	for _, problem := range l.strange {
		t.Errorf("no truth: %s", problem)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stranded is what the report says of one budget in the running period, by region.
func (th *theatre) stranded(budget string) (map[string]int64, error) {
	admin, err := th.Admin(0)
	if err != nil {
		return nil, err
	}
	var report coordinator.StrandedReport
	_, err = admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/stranded"}, &report)
	of := map[string]int64{}
	for _, l := range report.Lines {
		if l.Budget == budget {
			of[l.Region] += l.Stranded
		}
	}
	return of, err
}

func incarnation(t *testing.T, url string) string {
	t.Helper()
	name, err := incarnationOf(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// tellLogs shows the ends of what the nodes and coordinators logged.
func tellLogs(t *testing.T, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-3000):])
	}
}

// tellDatabase shows what the leading Postgres does.
func tellDatabase(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Log(err)
		return
	}
	defer conn.Close(ctx)
	for _, query := range []string{
		"select 'replica ' || application_name || ' ' || state || ' ' || sync_state from pg_stat_replication",
		"select 'owner ' || to_jsonb(o)::text from tranche.owner o",
		"select 'waits for ' || current_setting('synchronous_standby_names')",
		"select concat_ws(' ', pid, state, wait_event, now() - query_start, left(query, 60)) from pg_stat_activity where datname = 'tranche'",
	} {
		rows, _ := conn.Query(ctx, query)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		t.Log(strings.Join(lines, "\n"), err)
	}
}
