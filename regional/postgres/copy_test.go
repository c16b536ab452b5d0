//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// chargeMany is one admission for each name.
func chargeMany(seen *regional.Seen, names []string, key allocation.UsageKey) (all regional.Writes) {
	for _, name := range names {
		one, _ := chargeAll(seen, allocation.Spend, name, []allocation.UsageKey{key})
		all.Usage = one.Usage
		all.Inserted = append(all.Inserted, one.Inserted...)
	}
	return all
}

func manyNames(prefix string) (names []string) {
	for i := range 2 * copyLeast {
		names = append(names, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return names
}

// If this failed a batch of which a row cannot be stored would leave some of the others behind, or its connection in a state
// in which the next transaction fails.
func TestAnErrorAmidCopiedRows(t *testing.T) {
	o := newOwner(t)
	o.give("a", 1000)
	key := o.key("a", 10)
	o.mustSpend("first", key)
	names := manyNames("id")
	b, err := o.begin(o.store, o.w, names, key)
	if err != nil {
		t.Fatal(err)
	}
	writes := chargeMany(b.Seen(), names, key)
	writes.Inserted[copyLeast].Payload = "" // stored, as any bytes are
	writes.Inserted[copyLeast].Op = "no\x00text"
	err = b.Commit(t.Context(), writes)
	if err == nil || errors.Is(err, regional.ErrUnknownOutcome) || errors.Is(err, regional.ErrRaced) {
		t.Fatal(err)
	}
	if committed, err := o.w.Resolve(t.Context()); err != nil || committed {
		t.Fatal(committed, err)
	}
	if o.idCount(names[0]) != 0 || o.usage(key).Spent != 1 {
		t.Fatal("part of the batch was committed")
	}
	for range 3 * DefaultMaxConns { // whichever connection it was
		o.mustSpend(fmt.Sprint("after-", o.usage(key).Spent), key)
	}
}

// If this failed a large batch whose connection broke would be told as uncommitted though it was, or the other way round.
func TestAConnectionThatBreaksInALargeBatch(t *testing.T) {
	commit := "commit"
	for name, k := range map[string]struct {
		cut       func(*proxy)
		unknown   bool
		committed bool
	}{
		"the rows are lost":                {func(p *proxy) { p.loseNextRequest.Store(true) }, false, false},
		"the answer to the rows is lost":   {func(p *proxy) { p.loseNextAnswer.Store(true) }, false, false},
		"the answer to the commit is lost": {func(p *proxy) { p.loseAnswerTo.Store(&commit) }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t)
			o.give("a", 1000)
			key := o.key("a", 10)
			o.mustSpend("first", key)
			p := newProxy(t, o.url)
			far := open(t, withParam(p.url, "default_query_exec_mode=exec")) // so that the commit stands in what is sent
			w := o.writer(far)
			names := manyNames("id")
			b, err := o.begin(far, w, names, key)
			if err != nil {
				t.Fatal(err)
			}
			writes := chargeMany(b.Seen(), names, key)
			k.cut(p)
			err = b.Commit(t.Context(), writes)
			if err == nil || errors.Is(err, regional.ErrUnknownOutcome) != k.unknown {
				t.Fatal(err)
			}
			if k.committed { // or Resolve may be faster than the commit, and fence it off
				waitFor(t, "the commit", func() bool { return o.idCount(names[0]) == 1 })
			}
			committed, err := w.Resolve(t.Context())
			if err != nil || committed != k.committed {
				t.Fatalf("resolved as committed %v, %v", committed, err)
			}
			want := int64(1)
			if k.committed {
				want += int64(len(names))
			}
			if spent, there := o.usage(key).Spent, o.idCount(names[0]) == 1; spent != want || there != committed {
				t.Fatalf("spent %d of %d, the first id is there: %v", spent, want, there)
			}
			if ok, err := o.spend(far, w, "after", key); !ok || err != nil {
				t.Fatal(ok, err)
			}
		})
	}
}
