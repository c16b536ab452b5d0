//go:build long && linux

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator/etcd/embedded"
	"tranche/regional/postgres/cluster"
)

// backWithin is how soon the region admits again once the promoted server takes a commit from anybody: with synchronous
// replicas it takes none before Patroni has found it another one.
const backWithin = 5 * time.Second

// startPatroni starts Postgres servers that Patroni keeps, and makes a database in them.
func startPatroni(t *testing.T, o cluster.PatroniOptions) (p *cluster.Patroni, url string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-patroni-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // its members may run as another user
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	agreed, err := embedded.StartProcesses(t.Context(), 1, func(embedded.Options) *exec.Cmd {
		cmd, err := process.Command(nil, "etcd-member")
		if err != nil {
			return &exec.Cmd{Err: err}
		}
		return cmd
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = agreed.Stop() })
	o.Dir, o.Etcd = dir, strings.TrimPrefix(agreed.Endpoints()[0], "http://")
	p, err = cluster.StartPatroni(t.Context(), o)
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if url, err = p.CreateDatabase(t.Context(), "tranche"); err != nil {
		t.Fatal(err)
	}
	return p, url
}

// patroniTheatre is a deployment whose us-east rests on three Postgres that Patroni keeps, with synchronous replicas.
func patroniTheatre(t *testing.T) (*theatre, *cluster.Patroni) {
	t.Helper()
	p, url := startPatroni(t, cluster.PatroniOptions{Members: 3})
	s, err := stage.Start(t.Context(), stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 2, EtcdMembers: 3, Unreachable: 3 * time.Second,
		Databases: map[string]string{"us-east": url},
	})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			tellLogs(t, s.Dir)
			tellDatabase(t, url)
		}
	})
	th := &theatre{s, t}
	th.declare(fixed("faults/all", 1_000_000, "big", allocation.Window{Calendar: "year"}))
	th.declare(fixed("faults/seconds", 1_000_000, "big", allocation.Window{Every: 1}))
	return th, p
}

// back measures how long after the promotion of another member the region admits again.
func back(t *testing.T, p *cluster.Patroni, l *load, former int) {
	t.Helper()
	err := stage.Until(t.Context(), time.Minute, "another member leads", func() (bool, error) {
		leads, err := p.Leader(t.Context())
		return err == nil && leads != former, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	promoted := time.Now()
	err = stage.Until(t.Context(), time.Minute, "the promoted server takes a commit", func() (bool, error) {
		conn, err := pgx.Connect(t.Context(), p.URL("postgres"))
		if err != nil {
			return false, err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), "create table if not exists probe (at timestamptz); insert into probe values (now())")
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	writable := time.Now()
	l.progress(t, 1, "us-east")
	t.Logf("admissions are back %d ms after the promotion was seen, %d ms after the server took a commit",
		time.Since(promoted).Milliseconds(), time.Since(writable).Milliseconds())
	if took := time.Since(writable); took > backWithin {
		t.Errorf("admissions were back %v after the promoted server took commits, not within %v", took, backWithin)
	}
}

// A switchover that was planned and a leader that dies: a replica that lacks nothing is the same incarnation, so nothing
// that was admitted is lost, nothing is charged twice, and the region goes on by itself.
func TestPatroniFailsOver(t *testing.T) {
	th, p := patroniTheatre(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	url := th.Regions["us-east"].Database
	before := incarnation(t, url)
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")

	leads, err := p.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Switchover(t.Context()); err != nil {
		t.Fatal(err)
	}
	back(t, p, l, leads)
	l.progress(t, someMore, "us-east")
	if err := p.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}

	dead, err := p.KillLeader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	back(t, p, l, dead)
	l.progress(t, someMore, "us-east", "eu-west")
	if err := p.StartMember(dead); err != nil {
		t.Fatal(err)
	}
	if err := p.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.progress(t, someMore, "us-east", "eu-west")
	stop()
	l.judge(t, map[string][]string{"big": charges["big"]})
	th.account()
	if now := incarnation(t, url); now != before {
		t.Errorf("the region is incarnation %s, and was %s", now, before)
	}
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// An asynchronous replica that lacks what was committed last takes over: that is lost history, and so a new incarnation.
func TestPatroniFailsOverWithoutCommits(t *testing.T) {
	p, url := startPatroni(t, cluster.PatroniOptions{Members: 2, Asynchronous: true})
	th := lostTheatre(t, map[string]string{"us-east": url})
	startsAnew(t, th,
		func(*stage.Region) {
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			// The replica hears nothing more, and cannot come back.
			if err := p.StopReplication(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
		},
		func(*stage.Region) {
			if _, err := p.KillLeader(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
}
