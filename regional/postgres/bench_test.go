//go:build unix

package postgres

import (
	"fmt"
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// What one lane can do: batches of so many requests, all of one budget, one batch after the other.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("requests=", size), func(b *testing.B) { benchmarkBatch(b, size, false) })
	}
	// A dump or a forgotten transaction keeps dead versions of the hot row from being pruned.
	b.Run("requests=1/old-snapshot", func(b *testing.B) { benchmarkBatch(b, 1, true) })
}

func benchmarkBatch(b *testing.B, size int, oldSnapshot bool) {
	o := newOwner(b)
	o.give("a", 1<<50)
	key := o.key("a", 10)
	o.mustMake(key)
	if oldSnapshot {
		tx, err := o.conn().Begin(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tx.Exec(b.Context(), "set transaction isolation level repeatable read"); err != nil {
			b.Fatal(err)
		}
		if _, err := tx.Exec(b.Context(), "select count(*) from tranche.usage"); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	for b.Loop() {
		names := make([]string, size)
		for i := range names {
			names[i] = fmt.Sprintf("%012d", n)
			n++
		}
		batch, err := o.begin(o.store, o.w, names, key)
		if err != nil {
			b.Fatal(err)
		}
		var writes regional.Writes
		for _, name := range names {
			one, ok := chargeAll(batch.Seen(), allocation.Spend, name, []allocation.UsageKey{key})
			if !ok {
				b.Fatal("refused")
			}
			writes.Usage = one.Usage
			writes.Inserted = append(writes.Inserted, one.Inserted...)
		}
		if err := batch.Commit(b.Context(), writes); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "admissions/s")
}
