package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster"
)

// Bounds of a node's start.
const (
	joinPatience  = time.Minute
	storePatience = 20 * time.Minute
	lookEvery     = 20 * time.Millisecond
	countEvery    = time.Second // a look at all that a node knows takes what it could use
)

// postgresSettings are those of a small server.
var postgresSettings = map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}

// place is the one region with a real node and a real Postgres. Its node runs at the beginning, until the region is known,
// and again at the end, to store all that there is by then; in between it rests, so that what is measured of the
// coordinator is not slowed by it.
type place struct {
	w       *world
	name    string
	cluster *cluster.Cluster
	url     string
}

// NodeStart is what a node costs that knows all budgets.
type NodeStart struct {
	StoreSeconds float64 `json:"store_seconds"` // to hear and store all budgets and shares, in a Postgres that had none
	Shares       int     `json:"shares"`
	StartSeconds float64 `json:"start_seconds"` // of a node over that Postgres, until it would admit
	HeapBytes    int64   `json:"heap_bytes"`    // that it takes
}

func (w *world) newPlace(ctx context.Context, name string) (*place, error) {
	w.o.Progress("Postgres starts")
	p := &place{w: w, name: name}
	var err error
	if p.cluster, err = cluster.Start(ctx, cluster.Options{Settings: postgresSettings}); err != nil {
		return p, err
	}
	p.url, err = p.cluster.CreateDatabase(ctx, "region")
	return p, err
}

func (p *place) stop() error {
	if p.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.cluster.Stop(ctx)
}

// running is a node that runs.
type running struct {
	*regional.Node
	end func()
}

func (p *place) start(ctx context.Context) (*running, error) {
	store, err := postgres.Open(ctx, postgres.Config{URL: p.url, Region: p.name, Deployment: p.w.deployment})
	if err != nil {
		return nil, err
	}
	n := &running{Node: regional.NewNode(regional.Config{
		Region: p.name, Name: p.name + "-node", Deployment: p.w.deployment, Coordinator: p.w.first.Service,
	}, store)}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = n.Run(ctx) // its end is asked for; a start that fails shows in until
	}()
	n.end = func() {
		stop()
		<-ended
		store.Shut()
	}
	return n, nil
}

// until waits for what a node is to reach.
func (n *running) until(ctx context.Context, patience, every time.Duration, reached func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for !reached() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node is not there after %s: %v: %w", patience, n.Status().Reasons, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// join runs the node until its region has an owner.
func (p *place) join(ctx context.Context) error {
	if err := p.w.register(ctx, p.name); err != nil {
		return err
	}
	n, err := p.start(ctx)
	if err != nil {
		return err
	}
	defer n.end()
	return n.until(ctx, joinPatience, lookEvery, func() bool {
		for _, r := range p.w.regions { // it is given an owner once another region has said that it knows of it
			if _, _, err := r.sync(ctx); err != nil {
				return false
			}
		}
		return n.Status().Stopped == "" && n.Status().Ready
	})
}

// measure lets the node store all that there is, and starts it again over that.
func (p *place) measure(ctx context.Context, budgets, terms int) (s NodeStart, err error) {
	p.w.o.Progress("a node stores %d shares in Postgres", terms)
	began := time.Now()
	n, err := p.start(ctx)
	if err != nil {
		return s, err
	}
	err = n.until(ctx, storePatience+p.w.perBudget(), countEvery, func() bool { return p.knows(n, budgets, terms) })
	n.end()
	if err != nil {
		return s, err
	}
	s.StoreSeconds, s.Shares = time.Since(began).Seconds(), terms
	p.w.o.Progress("a node starts")
	before := heap()
	began = time.Now()
	if n, err = p.start(ctx); err != nil {
		return s, err
	}
	defer n.end()
	if err := n.until(ctx, storePatience+p.w.perBudget(), lookEvery, func() bool { return n.Status().Ready && p.knows(n, budgets, terms) }); err != nil {
		return s, err
	}
	s.StartSeconds, s.HeapBytes = time.Since(began).Seconds(), heap()-before
	if s.HeapBytes <= 0 {
		return s, errors.New("a node's memory cannot be measured beside what was freed meanwhile")
	}
	return s, nil
}

// knows says whether a node has all budgets and all of their terms.
func (p *place) knows(n *running, budgets, terms int) bool {
	all := n.Catalogue().Budgets()
	if len(all) < budgets {
		p.w.o.Progress("the node knows %d budgets", len(all))
		return false
	}
	known := 0
	for _, b := range all {
		known += len(n.Catalogue().Terms(b.Budget.Name))
	}
	if known < terms {
		p.w.o.Progress("the node knows %d of %d terms", known, terms)
	}
	return known >= terms
}
