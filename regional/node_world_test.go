//go:build unix

package regional_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// hub is a coordinator that keeps ledgers in memory and uses the real pure functions. Links to it can be cut.
type hub struct {
	mu      sync.Mutex
	cut     bool
	number  int64
	budgets []allocation.ConfiguredBudget
	ledgers []allocation.Ledger
	members allocation.Members
	calls   int
	stopped string // as last told
}

const testDeployment = "d-1"

func newHub(regions ...string) *hub {
	h := &hub{members: allocation.Members{Regions: regions}}
	for _, r := range regions {
		h.members.Holders = append(h.members.Holders, allocation.Holder{Region: r, Incarnation: "life-of-" + r})
	}
	return h
}

// declare adds a budget and opens one term of the periods around now.
func (h *hub) declare(t testing.TB, text string, periods allocation.Periods) {
	t.Helper()
	b, err := allocation.ParseBudget([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	h.budgets = append(h.budgets, allocation.ConfiguredBudget{Budget: b, Version: 1, Number: h.number})
	h.ledgers = append(h.ledgers, allocation.OpenLedger(b, 1, periods, h.members, h.generation(0)))
}

func (h *hub) generation(old int64) allocation.Generation {
	return allocation.Generation{Number: old + 1, Stamp: fmt.Sprintf("s%d", old+1)}
}

func (h *hub) Sync(_ context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	return h.syncAs(call, "life-of-"+call.Region)
}

func (h *hub) syncAs(call allocation.SyncCall, incarnation string) (allocation.SyncAnswer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cut {
		return allocation.SyncAnswer{}, errors.New("the link is cut")
	}
	h.calls++
	h.stopped = call.Stopped
	holder := allocation.Holder{Region: call.Region, Incarnation: incarnation}
	a := allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: testDeployment, Incarnation: holder.Incarnation, Now: time.Now().UnixMicro(),
		Config: h.number, History: allocation.History{Number: 1, Stamp: "h"}, Revision: int64(h.calls),
	}
	known := map[string]allocation.Generation{}
	for _, s := range call.Statements {
		a.Acknowledged = append(a.Acknowledged, allocation.ShardAck{Shard: s.Shard, Number: s.Number})
		for _, share := range s.Shares {
			known[share.Budget] = share.Generation
			for i, l := range h.ledgers {
				if l.Budget != share.Budget || l.Periods.Start() != share.Term {
					continue
				}
				next, changed, err := l.Count(holder, share, h.generation(l.Generation.Number))
				if err != nil {
					return a, err
				}
				if changed {
					h.ledgers[i] = next
				}
			}
		}
	}
	if call.Config < h.number {
		a.Budgets = h.budgets
	}
	for _, l := range h.ledgers {
		if known[l.Budget] != l.Generation {
			a.Shares = append(a.Shares, l.GrantTo(holder))
		}
	}
	return a, nil
}

func (h *hub) setCut(cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cut = cut
}

// periodsOf is a term of short periods, from some that are over to an hour ahead.
func periodsOf(seconds int64) allocation.Periods {
	now := allocation.At(time.Now())
	first := now - now%allocation.Instant(seconds) - allocation.Instant(10*seconds)
	return allocation.Periods{First: first, Step: seconds, Count: int(3600 / seconds)}
}

// forEver is one period without an end, for tests that must not meet a boundary.
func forEver() allocation.Periods {
	return allocation.Periods{Instants: []allocation.Instant{allocation.At(time.Now()) - 100, allocation.Never}}
}

// node starts a node over the database and waits until it admits.
func node(t testing.TB, h regional.Coordinator, region, name, url string) *regional.Node {
	t.Helper()
	return nodeOf(t, h, region, name, url)
}

func nodeOf(t testing.TB, h regional.Coordinator, region, name, url string) *regional.Node {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: region})
	if err != nil {
		t.Fatal(err)
	}
	n := regional.NewNode(regional.Config{
		Region: region, Name: name, Deployment: testDeployment, Coordinator: h, SyncEvery: 50 * time.Millisecond,
	}, store)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("node %s: %v", name, err)
		}
		store.Shut()
	})
	return n
}

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		<-tick.C
	}
}

// ready waits until the node can place a request of the labels.
func ready(t testing.TB, n *regional.Node, budgets int) {
	t.Helper()
	eventually(t, "the node knows its budgets and terms", func() bool {
		c := n.Catalogue()
		terms := 0
		for _, b := range c.Budgets() {
			terms += len(c.Terms(b.Budget.Name))
		}
		return terms >= budgets && n.Status().Stopped == ""
	})
}

func request(op allocation.Op, id string, labels allocation.Labels, costs map[string]int64) allocation.Request {
	return allocation.Request{
		Op: op, Labels: labels, Costs: costs,
		Key: allocation.IDKey{Credential: "gateway", Tenant: labels["tenant"], ID: id},
	}
}

func decide(n *regional.Node, r allocation.Request) allocation.Decision {
	return decideWithin(n, r, 5*time.Second)
}

func decideWithin(n *regional.Node, r allocation.Request, within time.Duration) (d allocation.Decision) {
	for range 10 {
		d = n.Decide(context.Background(), []allocation.Request{r}, time.Now().Add(within))[0]
		if d.Reason != allocation.DatabaseUnavailable && d.Reason != allocation.Overloaded && d.Reason != allocation.OutcomeUnknown {
			return d
		}
		<-time.After(50 * time.Millisecond) // a slow machine may just not have got as far; by the same id it is charged once
	}
	return d
}

// spent sums up what the owner has spent and reserved of a budget.
func spent(t testing.TB, n *regional.Node, budget string) (spent, reserved int64) {
	t.Helper()
	account, err := n.Export(context.Background(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range account.Usage {
		if u.Budget == budget {
			spent, reserved = spent+u.Spent, reserved+u.Reserved
		}
	}
	return spent, reserved
}
