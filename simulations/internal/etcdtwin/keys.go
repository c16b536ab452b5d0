package etcdtwin

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"tranche/coordinator"
)

// group is all changes of one revision.
type group struct {
	revision int64
	events   []coordinator.Event
}

// keys is what etcd holds: the newest value of each key, and the changes since the last compaction.
type keys struct {
	revision  int64
	compacted int64
	values    map[string]coordinator.Item
	sorted    []string
	log       []group
}

func newKeys() *keys { return &keys{revision: 1, compacted: 1, values: map[string]coordinator.Item{}} }

func (k *keys) clone() *keys {
	c := *k
	c.values, c.sorted, c.log = maps.Clone(k.values), slices.Clone(k.sorted), slices.Clone(k.log)
	return &c
}

// rangeOf is all keys with the prefix, in order.
func (k *keys) rangeOf(prefix string) []coordinator.Item {
	at, _ := slices.BinarySearch(k.sorted, prefix)
	var items []coordinator.Item
	for ; at < len(k.sorted) && strings.HasPrefix(k.sorted[at], prefix); at++ {
		items = append(items, k.values[k.sorted[at]])
	}
	return items
}

func (k *keys) holds(c coordinator.Item) bool {
	now := k.values[c.Key]
	return now.Revision == c.Revision && (c.Revision == 0 || bytes.Equal(now.Value, c.Value))
}

// commit runs a transaction at one moment.
func (k *keys) commit(t coordinator.Txn) coordinator.TxnResult {
	for _, c := range t.Compares {
		if k.holds(c) {
			continue
		}
		result := coordinator.TxnResult{Revision: k.revision}
		for _, c := range t.Compares {
			now := k.values[c.Key]
			now.Key = c.Key
			result.Current = append(result.Current, now)
		}
		return result
	}
	g := group{revision: k.revision + 1}
	for _, p := range t.Puts {
		item := coordinator.Item{Key: p.Key, Value: bytes.Clone(p.Value), Revision: g.revision}
		if at, found := slices.BinarySearch(k.sorted, p.Key); !found {
			k.sorted = slices.Insert(k.sorted, at, p.Key)
		}
		k.values[p.Key] = item
		g.events = append(g.events, coordinator.Event{Item: item})
	}
	for _, key := range t.Deletes {
		at, found := slices.BinarySearch(k.sorted, key)
		if !found {
			continue
		}
		k.sorted = slices.Delete(k.sorted, at, at+1)
		delete(k.values, key)
		g.events = append(g.events, coordinator.Event{Item: coordinator.Item{Key: key, Revision: g.revision}, Deleted: true})
	}
	if len(g.events) > 0 { // a transaction that changes nothing has no revision of its own
		k.revision = g.revision
		k.log = append(k.log, g)
	}
	return coordinator.TxnResult{Committed: true, Revision: k.revision}
}

func (k *keys) compact(revision int64) {
	k.compacted = max(k.compacted, min(revision, k.revision))
	at, _ := slices.BinarySearchFunc(k.log, k.compacted, func(g group, r int64) int { return int(g.revision - r) })
	k.log = slices.Clone(k.log[at:])
}

// since is the changes with the prefix in (after, upTo]; false if some of them are forgotten.
func (k *keys) since(prefix string, after, upTo int64) ([]group, bool) {
	if after+1 < k.compacted {
		return nil, false
	}
	at, _ := slices.BinarySearchFunc(k.log, after+1, func(g group, r int64) int { return int(g.revision - r) })
	var out []group
	for ; at < len(k.log) && k.log[at].revision <= upTo; at++ {
		g := group{revision: k.log[at].revision}
		for _, e := range k.log[at].events {
			if strings.HasPrefix(e.Key, prefix) {
				g.events = append(g.events, e)
			}
		}
		if len(g.events) > 0 {
			out = append(out, g)
		}
	}
	return out, true
}
