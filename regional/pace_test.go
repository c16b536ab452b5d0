//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster/clustertest"
)

// slowOwner is a real owner whose commits can be made slow.
type slowOwner struct {
	regional.Owner
	wait atomic.Int64
}

func (o *slowOwner) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	tx, err := o.Owner.Begin(ctx, w, want)
	if err != nil {
		return nil, err
	}
	return slowTx{tx, o}, nil
}

type slowTx struct {
	regional.Batch
	owner *slowOwner
}

func (t slowTx) Commit(ctx context.Context, w regional.Writes) error {
	err := t.Batch.Commit(ctx, w)
	<-time.After(time.Duration(t.owner.wait.Load()))
	return err
}

// Without this a node whose first commit was slow, or that was overloaded, would refuse every call of a gateway's usual
// deadline for many seconds, although nothing is wrong any more: it must try.
func TestIdleNodeTriesAfterASlowCommit(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 100), forEver())
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	owner := &slowOwner{Owner: store}
	owner.wait.Store(int64(2 * time.Second)) // also the first commit of all
	n := regional.NewNode(regional.Config{
		Region: "eu", Name: "n1", Deployment: testDeployment, Coordinator: h, SyncEvery: 50 * time.Millisecond, Lanes: 1,
	}, owner)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		store.Shut()
	})
	ready(t, n, 1)
	ask := func(id string, within time.Duration) allocation.Reason {
		return n.Decide(ctx, []allocation.Request{request(allocation.Spend, id, acme, nil)}, time.Now().Add(within))[0].Reason
	}
	eventually(t, "a slow commit", func() bool { return ask("slow", 10*time.Second) == allocation.Allow })
	owner.wait.Store(0)
	eventually(t, "a commit that was begun before is over", func() bool { return ask("over", 10*time.Second) == allocation.Allow })
	again := time.NewTicker(300 * time.Millisecond)
	defer again.Stop()
	for try := 1; ; try++ {
		<-again.C
		reason := ask(fmt.Sprint("quick-", try), 90*time.Millisecond)
		if reason == allocation.Allow || reason == allocation.OutcomeUnknown { // this machine was slow; but the node tried
			return
		}
		if try == 15 {
			t.Fatalf("%d calls of 90 ms, to an idle node: %s", try, reason)
		}
	}
}
