package regional

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// A node keeps some of its refusals in full. Which ones is settled by counters that take no lock; only what is kept is
// copied, out of rows that are locked or read anyway, and handed over under a lock that nobody waits for. A part of its own
// writes it, once a second. What is too much, or cannot be written, is dropped, and counted.
//
//	lane: decide ─▶ wants? ─▶ copy          Decide's end: keep ─▶ pending          recorder: pending ─▶ Postgres
//	               (counters)                             (a lock that is free, or not at all)
const (
	recordsEvery   = time.Second
	recordsWithin  = 3 * time.Second
	pruneEvery     = 60              // turns of the recorder
	keptEvery      = 2               // turns after which it looks for tenants that are to be kept
	recordsASecond = 20              // that a node keeps
	recordsATenant = 15              // of them of one tenant, so that others find room beside its storm
	tenantSlots    = 64              // which tenants share by a hash
	keptASecond    = 500             // of tenants that are kept, besides
	maxPending     = 2 * keptASecond // records that wait to be written
	maxSeries      = 500             // counts of one minute that a node tells apart by tenant and capability
	otherSeries    = "other"         // the rest
)

// The fates of a record, as metrics name them.
const (
	recordKept    = "kept"
	recordDropped = "dropped" // more than a node keeps, or writes
	recordLost    = "lost"    // the database did not take it, or nobody knows
)

// recorder is a node's part of the sample.
type recorder struct {
	store    Records // nil: nothing is kept
	sampling Sampling
	metrics  *Metrics

	turn atomic.Int64 // refusals that were looked at, to keep one in so many
	room atomic.Int64 // what may be kept until the next second
	more atomic.Int64 // the same, of tenants that are kept
	took [tenantSlots]atomic.Int64
	kept atomic.Pointer[map[string]int64]

	counts refusedCounts

	mu      sync.Mutex
	pending []*allocation.Record
}

func newRecorder(owner Owner, c Config) *recorder {
	r := &recorder{sampling: c.Sampling, metrics: c.Metrics}
	r.store, _ = owner.(Records)
	r.refill()
	return r
}

func (r *recorder) refill() {
	r.room.Store(recordsASecond)
	r.more.Store(keptASecond)
	for i := range r.took {
		r.took[i].Store(0)
	}
}

// tookOf is what was kept of a tenant, and of those that share its place, in this second.
func (r *recorder) tookOf(tenant string) *atomic.Int64 {
	sum := uint32(2166136261) // FNV-1a: the same in every run
	for i := range len(tenant) {
		sum = (sum ^ uint32(tenant[i])) * 16777619
	}
	return &r.took[sum%tenantSlots]
}

// keeps says whether all refusals of a tenant are kept now.
func (r *recorder) keeps(tenant string, now int64) bool {
	list := r.kept.Load()
	return list != nil && (*list)[tenant] > now
}

// wants says whether a decision is to be kept in full: a refusal, what was admitted at a lower quality, or in shadow only.
func (r *recorder) wants(q *allocation.Request, d *allocation.Decision) bool {
	if r.store == nil || !worthKeeping(d) {
		return false
	}
	if r.keeps(q.Key.Tenant, d.At) {
		return r.more.Load() > 0
	}
	switch n := r.sampling.OneIn; {
	case n < 0, n > 1 && r.turn.Add(1)%n != 0:
		return false
	}
	if r.room.Load() <= 0 || r.tookOf(q.Key.Tenant).Load() >= recordsATenant {
		r.metrics.records[recordDropped].Inc()
		return false
	}
	return true
}

func worthKeeping(d *allocation.Decision) bool {
	switch {
	case d.Op == allocation.Check:
		return false
	case !d.Admitted():
		return true
	case d.Replayed || d.Op != allocation.Spend && d.Op != allocation.Reserve:
		return false
	}
	return d.Action == allocation.ActionDegraded || d.Would != ""
}

// take hands over what became of some requests in the end.
func (r *recorder) take(c *allocation.Catalogue, requests []allocation.Request, out []allocation.Decision) {
	if r.store == nil {
		return
	}
	r.count(c, requests, out)
	for i := range out {
		d := &out[i]
		if d.Record == nil && d.Evidence.Incarnation == "" && r.wants(&requests[i], d) { // no owner decided
			d.Record = allocation.RecordUndecided(requests[i], *d)
		}
		if d.Record != nil && !r.keep(d) {
			d.Record = nil
			r.metrics.records[recordDropped].Inc()
		}
	}
}

// keep queues a record. It waits for nothing.
func (r *recorder) keep(d *allocation.Decision) bool {
	left := &r.room
	if r.keeps(d.Key.Tenant, d.At) {
		left = &r.more
	} else if r.tookOf(d.Key.Tenant).Add(1) > recordsATenant {
		return false
	}
	if left.Add(-1) < 0 {
		return false
	}
	d.Record.Name = newDecisionName()
	d.Record.Decision.At = d.At
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if len(r.pending) >= maxPending {
		return false
	}
	r.pending = append(r.pending, d.Record)
	return true
}

// count adds up the refused admissions, by the minute.
func (r *recorder) count(c *allocation.Catalogue, requests []allocation.Request, out []allocation.Decision) {
	for i := range out {
		d := &out[i]
		if d.Admitted() || d.Op != allocation.Spend && d.Op != allocation.Reserve {
			continue
		}
		k := refusedOf{
			at: d.At / 1_000_000 / refusedEvery * refusedEvery, priority: requests[i].Priority, reason: d.Reason,
			seriesOf: seriesOf{capability: d.Evidence.Capability, tenant: requests[i].Key.Tenant},
		}
		if k.priority == "" {
			k.priority = allocation.Interactive
		}
		if k.capability == "" && len(d.Budgets) == 0 { // what came as far as the budgets says it, if there is one
			k.capability = c.CapabilityOf(requests[i].Labels)
		}
		units := int64(0)
		if b := blamed(d); b != nil {
			k.unit, units = b.Unit, max(0, b.Requested)
		}
		r.counts.add(k, refusedSum{1, units})
	}
}

// drain takes what waits to be written.
func (r *recorder) drain() (records []*allocation.Record, counts []RefusedCount) {
	r.mu.Lock()
	records, r.pending = r.pending, nil
	r.mu.Unlock()
	return records, r.counts.take()
}

// again takes back what could not be written.
func (r *recorder) again(records []*allocation.Record, counts []RefusedCount) {
	r.counts.again(counts)
	r.mu.Lock()
	defer r.mu.Unlock()
	fit := min(len(records), maxPending-len(r.pending))
	r.pending = append(r.pending, records[:fit]...)
	r.metrics.records[recordLost].Add(float64(len(records) - fit))
}

// runRecorder writes until ctx ends, and once more then.
func (n *Node) runRecorder(ctx context.Context) {
	for turn := 0; ; turn++ {
		n.cfg.Runtime.Sleep(ctx, recordsEvery)
		n.recorder.refill()
		within, cancel := n.cfg.Runtime.WithTimeout(context.WithoutCancel(ctx), recordsWithin)
		n.writeRecords(within)
		if ctx.Err() == nil && turn%keptEvery == 0 {
			n.recorder.look(within)
		}
		if ctx.Err() == nil && turn%pruneEvery == 0 {
			if err := n.recorder.store.PruneRecords(within, n.cfg.Sampling.bounds()); err != nil {
				n.log.Debug("delete old records of refusals", "error", err)
			}
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
	}
}

func (n *Node) writeRecords(ctx context.Context) {
	r := n.recorder
	records, counts := r.drain()
	if len(records)+len(counts) == 0 {
		return
	}
	err := r.store.KeepRecords(ctx, records, counts)
	switch {
	case err == nil:
		r.metrics.records[recordKept].Add(float64(len(records)))
		return
	case errors.Is(err, ErrUnknownOutcome): // again would count twice
		r.metrics.records[recordLost].Add(float64(len(records)))
	default:
		r.again(records, counts)
	}
	n.log.Debug("write records of refusals", "error", err)
}

// look finds out which tenants are to be kept. While the database is away the list stays, and its times end it.
func (r *recorder) look(ctx context.Context) {
	list, err := r.store.KeptTenants(ctx)
	if err != nil {
		return
	}
	kept := map[string]int64{}
	for _, k := range list {
		kept[k.Tenant] = k.Until.UnixMicro()
	}
	r.kept.Store(&kept)
}

// NoteRefusal counts a refusal that never came to the owner, as at a door that is full, and may keep it. What nobody
// vouches for, such as a made-up key, is counted only: it is not to push out what is worth keeping.
func (n *Node) NoteRefusal(r allocation.Request, d *allocation.Decision) {
	if n.recorder.store == nil {
		return
	}
	one := []allocation.Decision{*d}
	if d.Reason == allocation.KeyUnknown {
		n.recorder.count(n.Catalogue(), []allocation.Request{r}, one)
		return
	}
	n.recorder.take(n.Catalogue(), []allocation.Request{r}, one)
	d.Record = one[0].Record
}

// Records are those of the node's region; nil: none are kept.
func (n *Node) Records() Records { return n.recorder.store }
