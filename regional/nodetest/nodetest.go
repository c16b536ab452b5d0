//go:build unix

// Package nodetest runs a real node over a real Postgres for tests of what calls it: its HTTP API, its decisions and its
// commits are the ones that run in production. Only the coordinator is played, by one that gives the region all of each
// budget, for one period without an end.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
)

// startTime bounds how long a node may take until it admits.
const startTime = 30 * time.Second

// Options are what a test decides.
type Options struct {
	Region  string
	Tokens  []regional.Token
	Budgets []string // each in JSON; policy home or fixed, for this region
	// Wrap is the handler that is served, around the node's; nil: the node's own.
	Wrap func(http.Handler) http.Handler
	// Config changes what the node is told; nil: nothing.
	Config func(*regional.Config)
}

// Node is a node that serves.
type Node struct {
	*regional.Node
	URL string

	coordinator *coordinator
	server      *httptest.Server
	store       *postgres.Store
	cancel      context.CancelFunc
	ended       chan error
}

// Start starts a node over an empty database, and returns when it admits.
func Start(ctx context.Context, database string, o Options) (*Node, error) {
	c := &coordinator{region: o.Region}
	for _, text := range o.Budgets {
		if err := c.declare(text); err != nil {
			return nil, err
		}
	}
	store, err := postgres.Open(ctx, postgres.Config{URL: database, Region: o.Region})
	if err != nil {
		return nil, err
	}
	metrics := regional.NewMetrics(prometheus.NewRegistry())
	config := regional.Config{
		Region: o.Region, Name: "node-1", Deployment: deployment, Coordinator: c, SyncEvery: 50 * time.Millisecond, Metrics: metrics,
	}
	if o.Config != nil {
		o.Config(&config)
	}
	n := &Node{Node: regional.NewNode(config, store), coordinator: c, store: store, ended: make(chan error, 1)}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	go func() { n.ended <- n.Run(running) }()
	handler := regional.NewHandler(regional.HTTPConfig{Tokens: o.Tokens, Metrics: metrics}, n.Node)
	if o.Wrap != nil {
		handler = o.Wrap(handler)
	}
	n.server = httptest.NewServer(handler)
	n.URL = n.server.URL
	if err := n.await(ctx, len(o.Budgets)); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// await returns when the node knows a term of each budget and admits.
func (n *Node) await(ctx context.Context, budgets int) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		terms := 0
		for _, b := range n.Catalogue().Budgets() {
			terms += len(n.Catalogue().Terms(b.Budget.Name))
		}
		if terms >= budgets && n.Status().Stopped == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node does not admit: %v", n.Status())
		case <-tick.C:
		}
	}
}

// Declare adds a budget, or changes one, and returns when the node knows it.
func (n *Node) Declare(ctx context.Context, text string) error {
	if err := n.coordinator.declare(text); err != nil {
		return err
	}
	n.coordinator.mu.Lock()
	number, budgets := n.coordinator.number, len(n.coordinator.ledgers)
	n.coordinator.mu.Unlock()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		newest := int64(0)
		for _, b := range n.Catalogue().Budgets() {
			newest = max(newest, b.Number)
		}
		if newest >= number {
			return n.await(ctx, budgets)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Close ends the node and its server.
func (n *Node) Close() error {
	if n.server != nil {
		n.server.Close()
	}
	n.cancel()
	err := <-n.ended
	n.store.Shut()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

const deployment = "nodetest"

// coordinator keeps ledgers in memory, with the pure functions that the real one uses.
type coordinator struct {
	region string

	mu      sync.Mutex
	number  int64
	calls   int64
	budgets []allocation.ConfiguredBudget
	ledgers []allocation.Ledger
}

func (c *coordinator) declare(text string) error {
	b, err := allocation.ParseBudget([]byte(text))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	next := allocation.ConfiguredBudget{Budget: b, Version: 1, Number: c.number}
	for i, old := range c.budgets {
		if old.Budget.Name == b.Name {
			next.Version = old.Version + 1
			c.budgets[i] = next
			return nil
		}
	}
	c.budgets = append(c.budgets, next)
	// A little in the past, and without an end: no test meets a boundary.
	periods := allocation.Periods{Instants: []allocation.Instant{allocation.At(time.Now()) - 100, allocation.Never}}
	members := allocation.Members{Regions: []string{c.region}, Holders: []allocation.Holder{c.holder()}}
	c.ledgers = append(c.ledgers, allocation.OpenLedger(b, 1, periods, members, allocation.Generation{Number: 1, Stamp: "s1"}))
	return nil
}

func (c *coordinator) holder() allocation.Holder {
	return allocation.Holder{Region: c.region, Incarnation: "life-of-" + c.region}
}

// Sync answers one call of the node.
func (c *coordinator) Sync(_ context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	a := allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: deployment, Incarnation: c.holder().Incarnation, Now: time.Now().UnixMicro(),
		Config: c.number, History: allocation.History{Number: 1, Stamp: "h"}, Revision: c.calls,
	}
	known := map[string]bool{}
	for _, s := range call.Statements {
		a.Acknowledged = append(a.Acknowledged, allocation.ShardAck{Shard: s.Shard, Number: s.Number})
		for _, share := range s.Shares {
			known[share.Budget] = true
		}
	}
	if call.Config < c.number {
		a.Budgets = c.budgets
	}
	for _, l := range c.ledgers {
		if !known[l.Budget] {
			a.Shares = append(a.Shares, l.GrantTo(c.holder()))
		}
	}
	return a, nil
}
