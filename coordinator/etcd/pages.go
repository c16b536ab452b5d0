package etcd

import (
	"context"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/coordinator"
)

// Etcd counts, for every request, all keys of the range that it was asked for, also those beyond the limit. So one that asks
// for the rest of everything again and again takes time by the square of the keys: with 100,000 budgets minutes, before a
// replica could start. A request here asks for a window of keys only, about as wide as the last page was:
//
//	page: [a … f] and more ──▶ next: from just after f, to twice as far beyond f as f is from a
//	fewer than a page, none ──▶ next: from the window's end, and much further
//
// Where a window ends is a guess, and nothing depends on it: the windows follow one another without a gap.

// rangeOnce reads the keys with a prefix at one revision.
func (s *Store) rangeOnce(ctx context.Context, prefix string) (items []coordinator.Item, revision int64, err error) {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	first, to, wide := "", end, uint64(2) // of the last page; of the window
	for {
		page, err := s.get(ctx, from, clientv3.WithRange(to), clientv3.WithLimit(pageKeys), clientv3.WithRev(revision))
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			items = append(items, coordinator.Item{Key: string(kv.Key), Value: kv.Value, Revision: kv.ModRevision})
		}
		switch {
		case page.More && len(page.Kvs) > 0:
			first, from, wide = string(page.Kvs[0].Key), string(page.Kvs[len(page.Kvs)-1].Key)+"\x00", 2
		case to == end:
			return items, revision, nil
		case len(page.Kvs) < pageKeys/2:
			from, wide = to, min(wide*windowGrowth, 1<<30)
		default:
			from = to
		}
		to = windowEnd(first, from, end, wide)
	}
}

// windowGrowth is how much further the next window goes after one that held little.
const windowGrowth = 16

// windowBytes is how much of two keys, after what both begin with, says how far apart they are.
const windowBytes = 7

// windowEnd is `wide` times as far beyond `from` as that is beyond `first`, and not beyond `end`. It is always after `from`, which is
// after `first`.
func windowEnd(first, from, end string, wide uint64) string {
	same := 0
	for same < len(first) && same < len(from) && first[same] == from[same] {
		same++
	}
	at := place(from[same:])
	far, most := max(1, at-place(first[same:])), uint64(1)<<(8*windowBytes)
	next := at + min(far, most/wide)*wide
	if next >= most { // beyond all keys that begin alike
		return earlier(clientv3.GetPrefixRangeEnd(from[:same]), end)
	}
	var b strings.Builder
	b.WriteString(from[:same])
	for i := windowBytes - 1; i >= 0; i-- {
		b.WriteByte(byte(next >> (8 * i)))
	}
	if b.String() <= from {
		return end // the keys are longer than what was compared
	}
	return earlier(b.String(), end)
}

// place is the first bytes of a key as a number that rises with it.
func place(key string) (n uint64) {
	for i := range windowBytes {
		n <<= 8
		if i < len(key) {
			n |= uint64(key[i])
		}
	}
	return n
}

// earlier is the one that comes first; "\x00" is the end of all keys.
func earlier(a, b string) string {
	if a == "\x00" || b != "\x00" && b < a {
		return b
	}
	return a
}
