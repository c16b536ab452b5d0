//go:build unix

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// coordinatorSide is what a coordinator keeps of an owner's statements.
type coordinatorSide struct {
	t       testing.TB
	numbers map[int]int64
	shares  map[int]map[allocation.ShareRef]allocation.ShareStatement
}

func newCoordinatorSide(t testing.TB) *coordinatorSide {
	return &coordinatorSide{t: t, numbers: map[int]int64{}, shares: map[int]map[allocation.ShareRef]allocation.ShareStatement{}}
}

// take merges a call: the highest number wins, on a base that is known. It answers the acknowledgements.
func (c *coordinatorSide) take(call allocation.SyncCall) (acks []allocation.ShardAck) {
	for _, s := range call.Statements {
		switch {
		case s.Number <= c.numbers[s.Shard]:
			continue
		case s.Base > c.numbers[s.Shard]:
			c.t.Errorf("shard %d: statement %d rests on %d, which was never acknowledged", s.Shard, s.Number, s.Base)
		case s.Base == 0:
			c.shares[s.Shard] = map[allocation.ShareRef]allocation.ShareStatement{}
		}
		for _, share := range s.Shares {
			c.shares[s.Shard][allocation.ShareRef{Budget: share.Budget, Term: share.Term}] = share
		}
		c.numbers[s.Shard] = s.Number
		acks = append(acks, allocation.ShardAck{Shard: s.Shard, Number: s.Number})
	}
	return acks
}

// truth is what the tables say, put into words by the pure functions.
func (o *owner) truth() map[allocation.ShareRef]allocation.ShareStatement {
	o.t.Helper()
	account, err := o.store.Export(o.t.Context(), "", 1000)
	if err != nil || account.More {
		o.t.Fatal(account.More, err)
	}
	used := map[allocation.ShareRef]map[allocation.UsageKey]allocation.Usage{}
	instances := map[allocation.ShareRef]map[allocation.Instant]int64{}
	for _, u := range account.Usage {
		ref := allocation.ShareRef{Budget: u.Budget, Term: u.Term}
		if used[ref] == nil {
			used[ref], instances[ref] = map[allocation.UsageKey]allocation.Usage{}, map[allocation.Instant]int64{}
		}
		if u.Template {
			u.Instance = ""
			instances[ref][u.Period]++
			u.Spent, u.Reserved, u.Returned = u.Spent+used[ref][u.UsageKey].Spent, u.Reserved+used[ref][u.UsageKey].Reserved, 0
		}
		used[ref][u.UsageKey] = u
	}
	out := map[allocation.ShareRef]allocation.ShareStatement{}
	for _, s := range account.Shares {
		ref := allocation.ShareRef{Budget: s.Budget, Term: s.Term()}
		var list []allocation.Usage
		for _, k := range sorted(used[ref], allocation.UsageKey.Compare) {
			list = append(list, used[ref][k])
		}
		slices.SortStableFunc(list, func(a, b allocation.Usage) int { return cmp.Compare(a.Period, b.Period) })
		out[ref] = s.Statement(list, instances[ref])
	}
	return out
}

// mustAgree fails unless what was acknowledged is what the tables say.
func (c *coordinatorSide) mustAgree(o *owner) {
	c.t.Helper()
	truth := o.truth()
	got := map[allocation.ShareRef]allocation.ShareStatement{}
	for shard, shares := range c.shares {
		for ref, s := range shares {
			if allocation.ShardOf(ref.Budget) != shard {
				c.t.Errorf("%s is stated in shard %d", ref.Budget, shard)
			}
			got[ref] = s
		}
	}
	for ref, want := range truth {
		if !reflect.DeepEqual(got[ref], want) {
			c.t.Errorf("%v: stated\n%+v\nstands\n%+v", ref, got[ref], want)
		}
	}
	if len(got) != len(truth) {
		c.t.Errorf("%d shares are stated, %d stand", len(got), len(truth))
	}
}

// settle turns what an id holds into spent, as a batch over its own rows.
func (o *owner) settle(ctx context.Context, s *Store, w regional.Writer, name string) error {
	b, err := s.Begin(ctx, w, regional.Want{IDs: []allocation.IDKey{id(name)}, OfIDs: []allocation.IDKey{id(name)}, Changes: noChanges})
	if err != nil {
		return err
	}
	a := b.Seen().IDs[id(name)]
	if a == nil || a.State != allocation.StateReserved {
		b.Abandon()
		return nil
	}
	var writes regional.Writes
	for i := range a.Lines {
		line := &a.Lines[i]
		u := b.Seen().Usage[line.UsageKey]
		if u == nil {
			b.Abandon()
			return fmt.Errorf("the row of %v was not locked", line.UsageKey)
		}
		u.Reserved, u.Spent = u.Reserved-line.Held, u.Spent+line.Held
		line.Spent, line.Held = line.Held, 0
		writes.Usage = append(writes.Usage, u)
	}
	a.State, a.Settled = allocation.StateSettled, map[string]int64{"requests": 1}
	writes.Updated = []*allocation.Admission{a}
	return b.Commit(ctx, writes)
}

// If this failed a region would come to stand in the ledger with less than it spent, for ever: statements are made under
// concurrent batches, settles behind closed periods and grants, and calls and acknowledgements are lost and repeated.
func TestAcknowledgedStatementsAddUpToTheTables(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { statementsAddUp(t, seed) })
	}
}

func statementsAddUp(t *testing.T, seed uint64) {
	o := newOwner(t)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, n := range names {
		o.give(n, 1000)
	}
	template := o.grant("t", 1, 50, 50)
	template.Template = true
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{template}})
	ctx, done := context.WithCancel(context.WithoutCancel(t.Context()))
	var nodes sync.WaitGroup
	for n := range 3 {
		w, random := o.writer(o.store), rand.New(rand.NewPCG(seed, uint64(n)))
		nodes.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if err := o.randomWork(w, random, names, fmt.Sprint(n, "-", i)); err != nil && !isAny(err, regional.ErrRaced) {
					t.Error(err)
				}
			}
		})
	}
	c := newCoordinatorSide(t)
	c.syncBadly(ctx, o, names, rand.New(rand.NewPCG(seed, 99)))
	done()
	nodes.Wait()
	for range 2 {
		call, err := o.store.Statements(t.Context(), o.w, nil)
		if err != nil {
			t.Fatal(err)
		}
		o.apply(allocation.SyncAnswer{Incarnation: "life-1", Acknowledged: c.take(call)})
	}
	c.mustAgree(o)
	if call, err := o.store.Statements(t.Context(), o.w, nil); err != nil || len(call.Statements) != 0 {
		t.Errorf("there is more to state though nothing changed: %+v, %v", call.Statements, err)
	}
}

// syncBadly makes calls of which some are lost, or their answers, and answers that come again; budgets are granted anew and
// periods closed meanwhile.
func (c *coordinatorSide) syncBadly(ctx context.Context, o *owner, names []string, random *rand.Rand) {
	t := c.t
	var memory []allocation.SyncAnswer // answers that may come again, late
	asked := map[int]int64{}
	for round := range 40 {
		call, err := o.store.Statements(ctx, o.w, asked)
		if err != nil {
			t.Fatal(err)
		}
		asked = map[int]int64{}
		if random.IntN(4) == 0 {
			continue // the call is lost
		}
		answer := allocation.SyncAnswer{Incarnation: "life-1", Acknowledged: c.take(call)}
		memory = append(memory, answer)
		if random.IntN(4) == 0 {
			continue // the answer is lost
		}
		if random.IntN(4) == 0 {
			answer = memory[random.IntN(len(memory))] // an old one comes again
		}
		for shard, number := range c.numbers { // what the node remembers counts before what is recorded
			if random.IntN(3) == 0 {
				asked[shard] = number
			}
		}
		if random.IntN(8) == 0 {
			asked[allocation.ShardOf(names[random.IntN(len(names))])] = 0 // the coordinator wants it whole
		}
		if round%5 == 4 {
			n := names[random.IntN(len(names))]
			answer.Shares = append(answer.Shares, o.grant(n, int64(round), 1000, 500+random.Int64N(600)))
		}
		if err := o.store.Apply(ctx, o.w, answer, int64(round)); err != nil {
			t.Fatal(err)
		}
		if round%7 == 6 {
			if _, err := o.store.Close(ctx, o.w, o.first+allocation.Instant(60*(round/7+1)), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// randomWork reserves or spends somewhere, or settles what it reserved long ago.
func (o *owner) randomWork(w regional.Writer, random *rand.Rand, names []string, name string) error {
	ctx := context.WithoutCancel(o.t.Context())
	k := o.key(names[random.IntN(len(names))], random.IntN(8))
	if random.IntN(4) == 0 {
		k.Budget, k.Instance = "t", fmt.Sprint("i", random.IntN(5))
	}
	op := allocation.Spend
	if random.IntN(2) == 0 {
		op = allocation.Reserve
	}
	if _, err := o.charge(ctx, o.store, w, op, name, k); err != nil {
		return err
	}
	var worker, i int
	if _, err := fmt.Sscanf(name, "%d-%d", &worker, &i); err != nil {
		return err
	}
	return o.settle(ctx, o.store, w, fmt.Sprint(worker, "-", max(0, i-20)))
}

// If this failed a statement of a region with very many shares would break the coordinator's bound, or a shard would never
// get its turn.
func TestStatementsAreBoundedAndGoRound(t *testing.T) {
	o := newOwner(t)
	const shares = allocation.MaxSharesPerCall + 700
	for at := 0; at < shares; at += 900 {
		var a allocation.SyncAnswer
		a.Incarnation = "life-1"
		for i := at; i < min(at+900, shares); i++ {
			a.Shares = append(a.Shares, o.grant(fmt.Sprint("budget-", i), 1, 5, 5))
		}
		o.apply(a)
	}
	c := newCoordinatorSide(t)
	for range 2 {
		call, err := o.store.Statements(t.Context(), o.w, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range call.Statements {
			n += len(s.Shares)
		}
		if n == 0 || n > allocation.MaxSharesPerCall {
			t.Fatalf("%d shares in one call", n)
		}
		c.take(call) // its answer is lost: the second call goes on where the first ended, all the same
	}
	if n := len(c.numbers); n != allocation.Shards {
		t.Fatalf("%d shards were stated", n)
	}
}

// If this failed the coordinator could not judge who calls: marks, clock, home, what is low.
func TestACallSaysWhoTheOwnerIs(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.give("b", 10)
	now := int((allocation.Instant(o.number("select extract(epoch from clock_timestamp())::bigint")) - o.first) / 60)
	for i := range 10 {
		o.mustSpend(fmt.Sprint("a-", i), o.key("a", now), o.key("a", now+1))
	}
	o.mustSpend("b", o.key("b", now), o.key("b", now+1))
	ending := o.writer(o.store)
	if err := ending.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.charge(t.Context(), o.store, o.w, allocation.Reserve, "open", o.key("b", now)); err != nil {
		t.Fatal(err)
	}
	mark := o.w.Mark()
	call, err := o.store.Statements(t.Context(), o.w, map[int]int64{7: 0})
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.store.Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if call.Region != region || call.Incarnation != "life-1" || call.Home != l.Home || call.Clock == 0 || call.OpenReservations != 1 || call.OldestReservation == 0 {
		t.Errorf("call %+v", call)
	}
	if !slices.Equal(call.Low, []string{"a"}) || !slices.Equal(call.Ended, []string{ending.Mark().Writer}) {
		t.Errorf("low %v, ended %v", call.Low, call.Ended)
	}
	if len(call.Marks) != 2 || !slices.Contains(call.Marks, mark) || !slices.ContainsFunc(call.Marks, ending.Mark().Holds) {
		t.Errorf("marks %v", call.Marks)
	}
	if l.OpenReservations != 1 || l.OldestReservation != call.OldestReservation {
		t.Errorf("loaded %+v", l)
	}
	if !slices.ContainsFunc(call.Statements, func(s allocation.Statement) bool { return s.Shard == 7 && s.Base == 0 && len(s.Shares) == 0 }) {
		t.Error("an empty shard that was asked for whole is not stated")
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", EndedAcknowledged: []string{ending.Mark().Writer, mark.Writer}})
	if n := o.number("select count(*) from tranche.writers"); n != 1 {
		t.Errorf("%d writers are left: only those that ended may go", n)
	}
	fullest, err := o.store.Fullest(t.Context(), 1)
	if err != nil || len(fullest) != 1 || fullest[0].Budget != "a" {
		t.Errorf("fullest %+v, %v", fullest, err)
	}
}

// If this failed statements of an owner that moved to another cluster would miss changes: transaction numbers start anew.
func TestABaseOfAnotherClusterIsNone(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	c := newCoordinatorSide(t)
	call, err := o.store.Statements(t.Context(), o.w, nil)
	if err != nil {
		t.Fatal(err)
	}
	acks := c.take(call)
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Acknowledged: acks})
	o.exec("update tranche.statements set system = '1', xmin_after = '99999999'")
	o.mustSpend("first", o.key("a", 10))
	call, err = o.store.Statements(t.Context(), o.w, map[int]int64{acks[0].Shard: acks[0].Number})
	if err != nil || len(call.Statements) != 1 || call.Statements[0].Base != 0 {
		t.Fatalf("stated %+v, %v", call.Statements, err)
	}
	c.take(call)
	c.mustAgree(o)
}
