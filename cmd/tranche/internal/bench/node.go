package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/baseline"
)

// readyWithin bounds how long a node may take until it admits.
const readyWithin = time.Minute

// world is the database of one case, and the nodes over it.
type world struct {
	url         string
	coordinator *coordinator
	look        *baseline.Owner
	budgets     []string // whose books are looked at
	nodes       []*node
	closers     []func()
	told        tally   // of all that clients asked
	each        int64   // units that an admission is charged, over all budgets; 0: 1
	batch       float64 // requests a transaction, of the last arm with several callers
}

// node is one regional process, but for its HTTP server.
type node struct {
	*regional.Node
	metrics  *regional.Metrics
	registry *prometheus.Registry
}

// newWorld makes a database and a node over it that knows the budgets and admits.
func (b *bench) newWorld(ctx context.Context, periods allocation.Periods, budgets ...string) (*world, error) {
	b.worlds++
	url, err := b.cluster.CreateDatabase(ctx, fmt.Sprintf("case_%d", b.worlds))
	if err != nil {
		return nil, err
	}
	w := &world{url: url, coordinator: newCoordinator()}
	if err := w.coordinator.declare(periods, budgets...); err != nil {
		return nil, err
	}
	for _, c := range w.coordinator.budgets {
		w.budgets = append(w.budgets, c.Budget.Name)
	}
	if _, err := w.addNode(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if w.look, err = baseline.Look(ctx, url); err != nil {
		return nil, errors.Join(err, w.close())
	}
	w.closers = append(w.closers, func() { w.look.Close(context.WithoutCancel(ctx)) })
	return w, nil
}

// addNode starts one more node, and returns when it admits.
func (w *world) addNode(ctx context.Context) (*node, error) {
	store, err := postgres.Open(ctx, postgres.Config{URL: w.url, Region: region})
	if err != nil {
		return nil, err
	}
	n := &node{registry: prometheus.NewRegistry()}
	n.metrics = regional.NewMetrics(n.registry)
	n.Node = regional.NewNode(regional.Config{
		Region: region, Name: fmt.Sprintf("node-%d", len(w.nodes)+1), Deployment: deployment, Coordinator: w.coordinator, Metrics: n.metrics,
	}, store)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.Run(running) // its end is asked for; a start that fails shows in await
	}()
	w.nodes = append(w.nodes, n)
	w.closers = append(w.closers, func() {
		stop()
		<-ended
		store.Shut()
	})
	return n, w.await(ctx, n)
}

// await returns when the node knows a term of each budget and admits.
func (w *world) await(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last *allocation.Catalogue
	terms, newest := 0, int64(0)
	for {
		w.coordinator.mu.Lock()
		number, budgets := w.coordinator.number, len(w.coordinator.budgets)
		w.coordinator.mu.Unlock()
		if c := n.Catalogue(); c != last { // a look at thousands of budgets costs what the node could use
			last, terms, newest = c, 0, 0
			for _, b := range c.Budgets() {
				newest = max(newest, b.Number)
				if len(c.Terms(b.Budget.Name)) > 0 {
					terms++
				}
			}
		}
		if terms >= budgets && newest >= number && n.Status().Stopped == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node does not admit: %v", n.Status().Reasons)
		case <-tick.C:
		}
	}
}

func (w *world) close() error {
	for i := len(w.closers) - 1; i >= 0; i-- {
		w.closers[i]()
	}
	w.closers = nil
	return nil
}

// batches is how many requests the node has decided in transactions, and in how many.
func (n *node) batches() (requests, transactions float64) {
	families, err := n.registry.Gather()
	if err != nil {
		return 0, 0
	}
	for _, f := range families {
		if f.GetName() == "tranche_batch_size" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum(), float64(h.GetSampleCount())
		}
	}
	return 0, 0
}
