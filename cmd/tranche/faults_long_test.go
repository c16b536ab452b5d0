//go:build long

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

const (
	longRounds = 12
	hung       = 3 * time.Second // longer than any deadline, and than --report-unreachable-after
)

// Many faults, in an order that chance decides, some at the same time: processes that are killed, and such that hang, which
// is worse. The seed is logged.
func TestKillsUnderLoadForLong(t *testing.T) {
	th := openTheatre(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	l := startLoad(ctx, t, th.Stage, "big", "small")
	faults := []struct {
		name string
		do   func(n int)
	}{
		{"kill a node", func(int) { th.killNode(l) }},
		{"kill Postgres", func(int) { th.killPostgres(l) }},
		{"kill the coordinators", func(int) { th.killCoordinators(l) }},
		{"kill the etcd leader", func(n int) { th.killLeader(l, fmt.Sprintf("faults-after-%d", n)) }},
		{"Postgres hangs", func(int) { th.hangPostgres(l) }},
		{"an etcd member hangs", func(int) { th.hangMember(l) }},
		{"a node hangs", func(int) { th.hangNode(l) }},
		{"links are cut while a node dies", func(int) {
			r := th.Regions["us-east"]
			r.Cut()
			th.killNode(l)
			r.Heal()
		}},
		{"Postgres dies with a node", func(int) {
			node := th.Regions["us-east"].Nodes[1]
			node.Kill()
			th.killPostgres(l)
			th.start(node)
		}},
	}
	for n := range longRounds {
		f := faults[chance.IntN(len(faults))]
		t.Logf("round %d: %s", n+1, f.name)
		f.do(n)
		l.progress(t, someMore, "us-east", "eu-west")
	}
	stop()
	l.judge(t, charges)
	th.small()
	th.account()
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// hangPostgres stops a database without ending it: its clients hear nothing, until it goes on.
func (th *theatre) hangPostgres(l *load) {
	r := th.Regions["us-east"]
	if err := r.Postgres.Pause(); err != nil {
		th.t.Fatal(err)
	}
	timer := time.NewTimer(hung)
	defer timer.Stop()
	<-timer.C
	l.progress(th.t, someMore, "eu-west")
	if err := r.Postgres.Resume(); err != nil {
		th.t.Fatal(err)
	}
	l.progress(th.t, someMore, "us-east")
}

// hangNode stops a node without ending it, between the two round trips of a batch, as it is busy with nothing else. Its
// clients wait for it; when it goes on, what it had begun is not committed unless it may be.
func (th *theatre) hangNode(l *load) {
	node := th.Regions["us-east"].Nodes[0]
	if err := node.Signal(syscall.SIGSTOP); err != nil {
		th.t.Fatal(err)
	}
	l.progress(th.t, someMore, "eu-west")
	timer := time.NewTimer(hung)
	defer timer.Stop()
	<-timer.C
	if err := node.Signal(syscall.SIGCONT); err != nil {
		th.t.Fatal(err)
	}
	l.progress(th.t, someMore, "us-east")
}

// hangMember stops the leading etcd member without ending it.
func (th *theatre) hangMember(l *load) {
	leader := th.leader()
	if err := th.Etcd.Pause(leader); err != nil {
		th.t.Fatal(err)
	}
	timer := time.NewTimer(hung)
	defer timer.Stop()
	<-timer.C
	l.progress(th.t, someMore, "us-east", "eu-west")
	if err := th.Etcd.Resume(leader); err != nil {
		th.t.Fatal(err)
	}
}
