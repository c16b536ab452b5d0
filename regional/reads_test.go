//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster/clustertest"
)

// counting is an owner that counts the batches.
type counting struct {
	regional.Owner
	begun atomic.Int64
}

func (c *counting) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	c.begun.Add(1)
	return c.Owner.Begin(ctx, w, want)
}

// A budget that is used up is asked for most. If each of its refusals took locks, or wrote, callers that get nothing would
// take what others need; if one were given from memory, permits that came meanwhile would be refused.
func TestSpentBudgetIsRefusedByReads(t *testing.T) {
	h := newHub("eu")
	h.declare(t, `{"budget":"acme/requests","unit":"requests","limit":1,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"eu":1}}}`, forEver())
	h.declare(t, `{"budget":"other/requests","unit":"requests","limit":1,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"other"},"allocation":{"policy":"fixed","weights":{"eu":1}}}`, forEver())
	url := clustertest.Database(t)
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	owner := &counting{Owner: store}
	n := regional.NewNode(regional.Config{Region: "eu", Name: "n", Deployment: testDeployment, Coordinator: h}, owner)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		store.Shut()
	})
	ready(t, n, 2)
	acme := allocation.Labels{"tenant": "acme"}
	if d := decide(n, request(allocation.Spend, "first", acme, nil)); !d.Admitted() {
		t.Fatalf("%+v", d)
	}
	if d := decide(n, request(allocation.Spend, "second", acme, nil)); d.Reason != allocation.CeilingReached {
		t.Fatalf("%+v", d)
	}
	begun := owner.begun.Load()
	for i := range 20 {
		if d := decide(n, request(allocation.Spend, fmt.Sprint("more-", i), acme, nil)); d.Reason != allocation.CeilingReached || d.At == 0 {
			t.Fatalf("%+v", d)
		}
	}
	if now := owner.begun.Load(); now != begun {
		t.Errorf("20 refusals took %d transactions", now-begun)
	}
	if d := decide(n, request(allocation.Spend, "first", acme, nil)); !d.Admitted() || !d.Replayed {
		t.Errorf("a known id of a spent budget: %+v", d)
	}
	if d := decide(n, request(allocation.Spend, "elsewhere", allocation.Labels{"tenant": "other"}, nil)); !d.Admitted() {
		t.Errorf("another budget: %+v", d)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	// As if a permit had come.
	if _, err := conn.Exec(t.Context(), "update tranche.usage set spent = 0 where budget = 'acme/requests'"); err != nil {
		t.Fatal(err)
	}
	if d := decide(n, request(allocation.Spend, "third", acme, nil)); !d.Admitted() {
		t.Errorf("a permit is there again: %+v", d)
	}
}
