package etcd

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// read plays rangeOnce over sorted keys. Looked counts what etcd would look at: all keys of each window.
func read(keys []string, prefix string, limit int) (got []string, requests, looked int) {
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	first, to, wide := "", end, uint64(2)
	for {
		i, _ := slices.BinarySearch(keys, from)
		j, _ := slices.BinarySearch(keys, to)
		if to == "\x00" {
			j = len(keys)
		}
		window := keys[i:max(i, j)]
		requests, looked = requests+1, looked+len(window)
		page := window[:min(limit, len(window))]
		got = append(got, page...)
		switch {
		case len(page) < len(window):
			first, from, wide = page[0], page[len(page)-1]+"\x00", 2
		case to == end:
			return got, requests, looked
		case len(page) < limit/2:
			from, wide = to, min(wide*windowGrowth, 1<<30)
		default:
			from = to
		}
		if to = windowEnd(first, from, end, wide); to != "\x00" && to <= from {
			panic(fmt.Sprintf("a window from %q to %q", from, to))
		}
	}
}

// A key that is left out is a ledger that a replica does not know of: it would grant what is granted already.
func TestWindowsLeaveNothingOut(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	for run := range 300 {
		alphabet := []string{"ab", "\x00\x01\xfe\xff", "0123456789", "/0a~"}[run%4]
		set := map[string]bool{}
		for range random.IntN(200) {
			key := []byte("/t/")
			for range random.IntN(12) {
				key = append(key, alphabet[random.IntN(len(alphabet))])
			}
			set[string(key)] = true
		}
		var keys []string
		for key := range set {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		got, requests, _ := read(keys, "/t/", 8+random.IntN(20))
		if !slices.Equal(got, keys) {
			t.Fatalf("run %d: %d keys of %d", run, len(got), len(keys))
		}
		if requests > 10*len(keys)+10 {
			t.Errorf("run %d: %d requests for %d keys", run, requests, len(keys))
		}
	}
}

// With ten times as many keys etcd must look at about ten times as many, not at a hundred times: asked for the rest again and
// again it would look at 1,400 million for the most here.
func TestWindowsCostWhatThereIs(t *testing.T) {
	of := func(budgets int) (keys []string) {
		for i := range budgets {
			keys = append(keys, fmt.Sprintf("/t/budgets/tenant-%06d%%2Frequests", i))
			for term := range 5 {
				keys = append(keys, fmt.Sprintf("/t/ledgers/tenant-%06d%%2Frequests/%020d", i, 1780000000+5400*term))
			}
		}
		for region := range 5 {
			for shard := range 256 {
				keys = append(keys, fmt.Sprintf("/t/statements/region-%02d/%03d", region, shard))
			}
		}
		slices.Sort(keys)
		return keys
	}
	for _, budgets := range []int{100, 1000, 10_000, 100_000} {
		keys := of(budgets)
		got, requests, looked := read(keys, "/t/", pageKeys)
		if !slices.Equal(got, keys) {
			t.Fatalf("%d keys of %d", len(got), len(keys))
		}
		if looked > 20*len(keys) || requests > 100+2*len(keys)/pageKeys {
			t.Errorf("%d budgets: %d keys, %d requests, %d keys looked at", budgets, len(keys), requests, looked)
		}
	}
}
