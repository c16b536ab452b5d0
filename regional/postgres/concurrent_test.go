//go:build unix

package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// If this failed batches of several nodes would deadlock, lose updates, or spend more than a share. Keys are wanted in
// random combinations while grants change and statements are made.
func TestManyNodesOverTheSameKeys(t *testing.T) {
	o := newOwner(t)
	names := []string{"a", "b", "c", "d", "e"}
	const share, tries = 60, 60
	for _, n := range names {
		o.give(n, share)
		o.mustMake(o.key(n, 10), o.key(n, 11)) // so that batches lock usage rows only, and share rows do not order them
	}
	stores := []*Store{o.store, open(t, o.url)}
	var admitted, raced atomic.Int64
	spent := make([]atomic.Int64, len(names))
	var nodes sync.WaitGroup
	for worker := range 6 {
		s := stores[worker%2]
		w := o.writer(s)
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		nodes.Go(func() {
			for i := range tries {
				var chosen []allocation.UsageKey
				var which []int
				for j, n := range names {
					if random.IntN(2) == 0 {
						chosen, which = append(chosen, o.key(n, 10+random.IntN(2))), append(which, j)
					}
				}
				if len(chosen) == 0 {
					continue
				}
				random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
				ok, err := o.chargeAgain(s, w, fmt.Sprint(worker, "-", i), &raced, chosen...)
				if err != nil {
					t.Error(err)
					return
				}
				if ok {
					admitted.Add(1)
					for _, j := range which {
						spent[j].Add(1)
					}
				}
			}
		})
	}
	keeper := o.writer(o.store)
	nodes.Go(func() { o.keepGranting(keeper, names, share) })
	nodes.Wait()
	if n := o.number(`select count(*) from tranche.admission_ids_0`); n != admitted.Load() {
		t.Errorf("%d ids, %d admitted", n, admitted.Load())
	}
	for j, n := range names {
		if got := o.number(`select sum(spent) from tranche.usage where budget = $1`, n); got != spent[j].Load() {
			t.Errorf("%s: spent %d, admitted %d", n, got, spent[j].Load())
		}
	}
	if n := o.number(`select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("admitted %d, raced %d", admitted.Load(), raced.Load())
}

// chargeAgain decides again after a race.
func (o *owner) chargeAgain(s *Store, w regional.Writer, name string, raced *atomic.Int64, keys ...allocation.UsageKey) (bool, error) {
	for {
		ok, err := o.charge(context.WithoutCancel(o.t.Context()), s, w, allocation.Spend, name, keys...)
		if !isAny(err, regional.ErrRaced) {
			return ok, err
		}
		raced.Add(1)
	}
}

// keepGranting changes all shares again and again, in several orders, and makes statements.
func (o *owner) keepGranting(w regional.Writer, names []string, share int64) {
	ctx := context.WithoutCancel(o.t.Context())
	for generation := int64(2); generation < 25; generation++ {
		var grants []allocation.ShareGrant
		for i := range names {
			target := share - 10*(generation%3)
			g := o.grant(names[(i+int(generation))%len(names)], generation, share+10*generation, target+10*generation)
			grants = append(grants, g)
		}
		if err := o.store.Apply(ctx, w, allocation.SyncAnswer{Incarnation: "life-1", Shares: grants}, generation); err != nil {
			o.t.Error(err)
		}
		if _, err := o.store.Statements(ctx, w, nil); err != nil {
			o.t.Error(err)
		}
	}
}

// If this failed an id could be admitted on both sides of a switch of tables, or a switch would lose one.
func TestSwitchesUnderLoad(t *testing.T) {
	o := newOwner(t)
	o.give("a", 1_000_000)
	o.mustSpend("first", o.key("a", 10))
	const ids, workers = 150, 4
	var admitted, raced atomic.Int64
	var nodes sync.WaitGroup
	second := open(t, o.url)
	for n := range workers { // all of them want all ids
		s := []*Store{o.store, second}[n%2]
		w := o.writer(s)
		nodes.Go(func() {
			for i := range ids {
				ok, err := o.chargeAgain(s, w, fmt.Sprint("id-", i), &raced, o.key("a", 10+n%2))
				if err != nil {
					t.Error(err)
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	switches := 0
	keeper := o.writer(o.store)
	for range 3 { // three tables are empty; the fourth switch would come too early
		did, err := o.store.switchTables(t.Context(), keeper, 0)
		if err != nil && !isAny(err, regional.ErrRaced) {
			t.Error(err)
		}
		if did != "" {
			switches++
		}
	}
	nodes.Wait()
	if did, err := o.store.switchTables(t.Context(), keeper, 0); switches == 3 && (did != "" || err != nil) {
		t.Errorf("switched to a table that holds ids: %s, %v", did, err)
	}
	rows := o.number(`select count(*) from (` + allTables(`select id from tranche.admission_ids_{n} where id like 'id-%'`) + `) as a`)
	spent := o.number(`select sum(spent) from tranche.usage`)
	if admitted.Load() != ids || rows != ids || spent != ids+1 || switches == 0 {
		t.Fatalf("%d ids were admitted %d times, stored %d times, charged %d times, over %d switches", ids, admitted.Load(), rows, spent-1, switches)
	}
}
