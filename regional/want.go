package regional

import (
	"maps"
	"slices"
	"sync"
	"time"

	"tranche/allocation"
)

// want plans the batch by the node's idea of the database's clock, and lists what it needs locked. The second result is
// the calls that fit into one batch; the others wait for the next.
func (ln *lane) want(batch []*call) (Want, []*call) {
	n := ln.node
	catalogue := n.catalogue.Load()
	now := n.clock.instant()
	soon := allocation.At(time.UnixMicro(n.clock.now()).Add(boundaryNear))
	usage := map[allocation.UsageKey]WantedUsage{}
	ids, ofIDs := make([]allocation.IDKey, 0, len(batch)), []allocation.IDKey(nil)
	kept := batch
	for i, c := range batch {
		if len(usage) > MaxBatchKeys-2*allocation.MaxBudgetsPerRequest {
			kept = batch[:i]
			break
		}
		if c.probe {
			continue
		}
		c.plan = catalogue.Plan(c.request, now)
		n.wantLines(usage, c.plan.Lines)
		if c.plan.EndsBy(soon) {
			n.wantLines(usage, catalogue.Plan(c.request, soon).Lines)
		}
		if key := c.request.Key; key.ID != "" && c.request.Op != allocation.Check {
			ids = append(ids, key)
			if !admits(c.request.Op) {
				ofIDs = append(ofIDs, key)
			}
		}
	}
	return Want{
		Usage:   slices.SortedFunc(maps.Values(usage), func(a, b WantedUsage) int { return a.Compare(b.UsageKey) }),
		IDs:     sortedIDs(ids),
		OfIDs:   sortedIDs(ofIDs),
		Changes: catalogue.Number,
	}, kept
}

// sortedIDs sorts the ids and drops those that are there twice.
func sortedIDs(ids []allocation.IDKey) []allocation.IDKey {
	slices.SortFunc(ids, allocation.IDKey.Compare)
	return slices.Compact(ids)
}

func (n *Node) wantLines(usage map[allocation.UsageKey]WantedUsage, lines []allocation.Line) {
	for i := range lines {
		l := &lines[i]
		if l.Problem != "" {
			continue
		}
		if _, known := usage[l.UsageKey]; known {
			continue
		}
		usage[l.UsageKey] = WantedUsage{
			UsageKey: l.UsageKey, Until: l.Until, Term: l.Term, Make: !n.known.has(l.UsageKey),
			MaxInstances: l.Budget.WithDefaults().MaxInstances,
		}
	}
}

// locked is what the transaction found, in the words of the pure function.
func (ln *lane) locked(seen *Seen, want Want, catalogue *allocation.Catalogue) *allocation.Locked {
	n := ln.node
	l := &allocation.Locked{
		Catalogue: catalogue, Now: seen.Now, ClosedBefore: seen.ClosedBefore, Stopped: seen.Stopped,
		Incarnation: seen.Incarnation, Revision: seen.Revision, ObservedAt: seen.ObservedAt, Node: n.cfg.Name,
		Usage: seen.Usage, Full: seen.Full, None: map[allocation.UsageKey]bool{}, IDs: seen.IDs,
		LookedUp: func(k allocation.IDKey) bool {
			_, found := slices.BinarySearchFunc(want.IDs, k, allocation.IDKey.Compare)
			return found
		},
		Elsewhere:    n.elsewhere(),
		ChangedUsage: map[allocation.UsageKey]bool{}, Inserted: map[allocation.IDKey]bool{}, Updated: map[allocation.IDKey]bool{},
	}
	for _, w := range want.Usage {
		if w.Make && seen.Usage[w.UsageKey] == nil && !seen.Full[w.UsageKey] {
			l.None[w.UsageKey] = true
		}
	}
	n.health.settings(seen.Unsafe)
	switch {
	case seen.Unsafe != "":
		l.Stopped = allocation.UnsafeSettings
	case l.Stopped == "" && (seen.Incarnation == "" || !n.voucher.holds(seen.Lineage)):
		l.Stopped = allocation.Starting
	}
	if l.Stopped == "" {
		l.Stopped = n.stoppedBy()
	}
	return l
}

// holdsNothing says whether a row was made of a share that holds nothing. It is kept, once, although all were refused: by it
// the next call names the budget as low, and whoever is refused then hears why the region has none of it.
func holdsNothing(want []WantedUsage, seen *Seen) bool {
	return slices.ContainsFunc(want, func(w WantedUsage) bool {
		u := seen.Usage[w.UsageKey]
		return w.Make && u != nil && !u.Template && u.Generation > 0 && u.Granted == u.Returned
	})
}

// writesOf is what the decisions changed, of the ids that were looked up, which are sorted.
func writesOf(l *allocation.Locked, ids []allocation.IDKey) Writes {
	var w Writes
	for _, k := range slices.SortedFunc(maps.Keys(l.ChangedUsage), allocation.UsageKey.Compare) {
		w.Usage = append(w.Usage, l.Usage[k])
	}
	for _, k := range ids {
		switch {
		case l.Inserted[k]:
			w.Inserted = append(w.Inserted, l.IDs[k])
		case l.Updated[k]:
			w.Updated = append(w.Updated, l.IDs[k])
		}
	}
	return w
}

// knownMost bounds each half of knownRows.
const knownMost = 200_000

// knownRows remembers which usage rows exist, so that a batch need not make them. Two halves: when the newer one is full,
// the older one is dropped. Being wrong costs a round trip, never a permit.
type knownRows struct {
	mu         sync.Mutex
	newer, old map[allocation.UsageKey]struct{}
}

func (k *knownRows) has(key allocation.UsageKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.newer[key]; ok {
		return true
	}
	_, ok := k.old[key]
	return ok
}

// add remembers the rows that a committed batch had locked.
func (k *knownRows) add(want []WantedUsage, seen *Seen) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range want {
		if !w.Make || seen.Usage[w.UsageKey] == nil {
			continue
		}
		if len(k.newer) >= knownMost {
			k.old, k.newer = k.newer, nil
		}
		if k.newer == nil {
			k.newer = map[allocation.UsageKey]struct{}{}
		}
		k.newer[w.UsageKey] = struct{}{}
	}
}

func (k *knownRows) forget(keys []allocation.UsageKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		delete(k.newer, key)
		delete(k.old, key)
	}
}
