package regional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
)

// Bounds of a node.
const (
	queueMost   = 16384 // requests that wait for a lane; beyond it the answer is overloaded, at once
	defaultLane = 2     // batches in flight
)

// Config is what a node is told.
type Config struct {
	Region     string
	Name       string // of the node, unique in its region
	URL        string // where operators reach it, told to the coordinator; may be empty
	Version    string // of the program
	Shadow     bool   // its doors refuse nobody; told to the coordinator
	Deployment string // that the region's token belongs to

	Coordinator Coordinator
	Memory      Memory              // where marks are kept between a clean stop and the next start; nil: nowhere
	SyncEvery   time.Duration       // how long the coordinator may hold a call; 0: 1 s
	CloseGrace  allocation.Duration // how long after its end a period may still be spent; 0: 30 s
	Retention   allocation.Duration // of admission ids; 0: 24 h
	Sampling    Sampling            // which refusals are kept in full, where the owner keeps Records
	Lanes       int                 // batches in flight; 0: 2

	Log     hclog.Logger
	Metrics *Metrics
	Runtime Runtime // nil: Real
}

// Node is one regional process: it decides requests over the region's one database, and keeps the region in contact with
// the coordinator. Any number of nodes serve one owner; none of them holds anything that counts.
type Node struct {
	cfg       Config
	owner     Owner
	waiting   queue
	catalogue atomic.Pointer[allocation.Catalogue]
	known     knownRows
	spent     spentRows
	clock     clock
	health    health
	metrics   *Metrics
	log       hclog.Logger
	synced    syncState

	slots       []*slot
	voucher     voucher
	remembered  *Remembered     // from a clean stop, until the database answers
	mu          sync.Mutex      // of what follows and of the catalogue's successor; never held across a store call
	writers     []Writer        // of the slots, as others may use them
	missing     map[string]bool // writers of slots that have yet to find their marks gone, which was recorded for them
	incarnation string          // that the catalogue is of
	stopped     atomic.Pointer[allocation.Reason]
	doubt       doubt
	demand      demandState
	refusals    refusals
	recorder    *recorder
	estimates   estimates
	fullestRows atomic.Pointer[[]allocation.Usage]
}

// NewNode makes a node over an owner. Run starts it.
func NewNode(cfg Config, owner Owner) *Node {
	if cfg.Runtime == nil {
		cfg.Runtime = Real{}
	}
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	if cfg.Lanes == 0 {
		cfg.Lanes = defaultLane
	}
	if cfg.SyncEvery == 0 {
		cfg.SyncEvery = time.Second
	}
	if cfg.CloseGrace == 0 {
		cfg.CloseGrace = 30
	}
	if cfg.Retention == 0 {
		cfg.Retention = allocation.Day
	}
	n := &Node{
		cfg: cfg, owner: owner, waiting: queue{some: cfg.Runtime.NewSignal(), now: cfg.Runtime.Now, within: cfg.Runtime.WithTimeout}, metrics: cfg.Metrics, log: cfg.Log,
		clock: clock{local: cfg.Runtime.Now}, demand: demandState{hungry: cfg.Runtime.NewSignal(), seen: map[string]*budgetDemand{}},
	}
	n.catalogue.Store(allocation.NewCatalogue(cfg.Region))
	n.recorder = newRecorder(owner, cfg)
	n.writers, n.missing = make([]Writer, cfg.Lanes+1), map[string]bool{}
	for i := range n.writers {
		name := fmt.Sprintf("%s/lane-%d", cfg.Name, i)
		if i == cfg.Lanes {
			name = cfg.Name + "/sync"
		}
		n.slots = append(n.slots, &slot{node: n, index: i, name: name})
	}
	n.health.start(cfg.Runtime.Now(), cfg.Log)
	starting := allocation.Starting
	n.stopped.Store(&starting)
	return n
}

// Run serves until ctx ends: it loads what the owner knows, then decides, syncs and tidies. It returns when all of that
// has ended and its writers are marked as ended.
func (n *Node) Run(ctx context.Context) error {
	if err := n.start(ctx); err != nil {
		return err
	}
	all := newParts(n.cfg.Runtime)
	for i, s := range n.slots[:n.cfg.Lanes] {
		ln := &lane{node: n, slot: s}
		all.start(fmt.Sprintf("lane-%d", i), func() { ln.run(ctx) })
	}
	all.start("keep", func() { n.keep(ctx, n.slots[n.cfg.Lanes]) })
	all.start("watch", func() { n.watch(ctx) })
	all.start("ask", func() { n.askOften(ctx) })
	if to, ok := n.cfg.Coordinator.(RefusalTeller); ok {
		all.start("refusals", func() { n.tellRefusals(ctx, to) })
	}
	if n.recorder.store != nil {
		all.start("records", func() { n.runRecorder(ctx) })
	}
	all.wait()
	n.drainQueue()
	end, cancel := n.cfg.Runtime.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	n.keepOrEnd(end)
	return nil
}

// start waits for the database, registers the writers, and loads the catalogue. A database that answers but is not this
// region's is an error.
func (n *Node) start(ctx context.Context) error {
	wait := 50 * time.Millisecond
	n.recall()
	for {
		err := n.register(ctx)
		if err == nil {
			n.stopped.Store(nil)
			return nil
		}
		if errors.Is(err, ErrNotReady) {
			return err
		}
		n.health.failed(n.now(), err)
		n.log.Warn("wait for the database", "error", err)
		n.cfg.Runtime.Sleep(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait = min(2*wait, time.Second)
	}
}

func (n *Node) register(ctx context.Context) error {
	if err := n.resume(ctx); err != nil {
		return err
	}
	for _, s := range n.slots {
		if _, err := s.ready(ctx); err != nil {
			return err
		}
	}
	loaded, err := n.owner.Load(ctx, 0)
	if err != nil {
		return fmt.Errorf("load the catalogue: %w", err)
	}
	if loaded.Region != n.cfg.Region {
		return fmt.Errorf("the database belongs to region %q, this node to %q: %w", loaded.Region, n.cfg.Region, ErrNotReady)
	}
	if loaded.Deployment != "" && loaded.Deployment != n.cfg.Deployment {
		return fmt.Errorf("the database belongs to deployment %s, the region's token to %s: %w", loaded.Deployment, n.cfg.Deployment, ErrNotReady)
	}
	n.voucher.see(loaded.Lineage)
	n.another(loaded.Incarnation)
	n.advance(&loaded, 0)
	return nil
}

// now is the time by this process's clock.
func (n *Node) now() time.Time { return n.cfg.Runtime.Now() }

// drainQueue refuses what still waits when the lanes have ended.
func (n *Node) drainQueue() {
	starting := allocation.Starting
	n.stopped.Store(&starting)
	for _, c := range n.waiting.take(nil, queueMost) {
		c.reject(n.cannot(c.request, allocation.DatabaseUnavailable))
	}
}

// advance takes what a transaction read of budgets and terms, changed after the number `after`, into the catalogue, and
// returns the newest. A catalogue that was forgotten meanwhile lacks what changed before, and must not seem to have it.
func (n *Node) advance(seen *Loaded, after int64) *allocation.Catalogue {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.catalogue.Load()
	if seen.Changes > c.Number && after <= c.Number {
		c = c.With(seen.Changes, seen.Budgets, seen.Terms, seen.Gone).WithDocuments(seen.Documents)
		n.catalogue.Store(c)
	}
	n.synced.note(seen)
	return c
}

// reload brings the catalogue on when it is further behind than one batch reads.
func (n *Node) reload(ctx context.Context) {
	after := n.catalogue.Load().Number
	loaded, err := n.owner.Load(ctx, after)
	if err == nil && n.another(loaded.Incarnation) {
		after = 0
		loaded, err = n.owner.Load(ctx, after)
	}
	if err != nil {
		n.health.failed(n.now(), err)
		return
	}
	n.sees(&loaded)
	n.advance(&loaded, after)
	n.synced.noteRest(&loaded)
}

// stoppedBy is why this node admits nothing, or empty.
func (n *Node) stoppedBy() allocation.Reason {
	if r := n.stopped.Load(); r != nil {
		return *r
	}
	return ""
}

// Catalogue is what the node knows of budgets and terms.
func (n *Node) Catalogue() *allocation.Catalogue { return n.catalogue.Load() }

// Find tells the state of an admission id, after a commit that is newer than what it read.
func (n *Node) Find(ctx context.Context, key allocation.IDKey) (allocation.Decision, bool, error) {
	seen, err := n.owner.Peek(ctx, Want{IDs: []allocation.IDKey{key}, Changes: n.catalogue.Load().Number})
	if err != nil {
		return allocation.Decision{}, false, fmt.Errorf("look up the admission id: %w", err)
	}
	a := seen.IDs[key]
	if a == nil && n.doubt.has(key) {
		return n.cannot(allocation.Request{Key: key}, allocation.OutcomeUnknown), true, nil
	}
	if a == nil {
		return allocation.Decision{}, false, nil
	}
	if err := n.commitNow(ctx); err != nil {
		return allocation.Decision{}, false, err
	}
	return allocation.Tell(n.cfg.Region, a), true, nil
}

// commitNow commits once, begun after the call: what was read before it is then durable, replicas included.
func (n *Node) commitNow(ctx context.Context) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = n.now().Add(time.Second)
	}
	g := n.newGroup(1)
	c := &call{probe: true, deadline: deadline, group: g, doubt: &n.doubt}
	if !n.waiting.push(c) {
		return errors.New("too many requests wait")
	}
	n.wait(ctx, g, deadline)
	if d := n.collect(c); d.Reason != allocation.Allow {
		return fmt.Errorf("commit to the database: %s", d.Reason)
	}
	return nil
}

// Reservations lists open reservations after a key.
func (n *Node) Reservations(ctx context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error) {
	return n.owner.Reservations(ctx, after, limit)
}

// Export reads a page of the owner's whole account.
func (n *Node) Export(ctx context.Context, after string, limit int) (Account, error) {
	return n.owner.Export(ctx, after, limit)
}
