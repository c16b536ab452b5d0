package allocation

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// ledgerWorld is one ledger, owners that lag behind it, and every message that was ever sent between them: any may be
// delivered late, again, or in another order.
type ledgerWorld struct {
	t          *rapid.T
	ledger     Ledger
	budget     Budget
	version    int64
	running    int // index of the running period
	members    Members
	owners     map[Holder]*modelOwner
	grants     map[Holder][]ShareGrant
	statements map[Holder][]ShareStatement
	opening    int64   // spent of the first period before the budget was declared
	highest    []int64 // limit that each period ever had
	stamps     int
}

// modelOwner stores its share and the accounts of its used periods, as a database does.
type modelOwner struct {
	holder Holder
	share  Share
	used   map[int]Usage
}

func newLedgerWorld(t *rapid.T) *ledgerWorld {
	w := &ledgerWorld{
		t: t, version: 1, owners: map[Holder]*modelOwner{}, grants: map[Holder][]ShareGrant{}, statements: map[Holder][]ShareStatement{},
		members: Members{Number: 1, Regions: []string{"a", "b", "c"}},
		budget: Budget{
			Name: "acme/requests", Unit: "requests", Limit: new(int64), Window: Window{Every: Minute},
			Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 3, "b": 2}},
		},
	}
	for _, r := range w.members.Regions {
		w.join(r)
	}
	*w.budget.Limit = rapid.Int64Range(0, 20).Draw(t, "limit")
	w.opening = max(0, rapid.Int64Range(-15, 15).Draw(t, "opening spent"))
	w.budget.OpeningSpent = w.opening
	w.ledger = OpenLedger(w.budget, 1, Periods{First: 600, Step: 60, Count: 5}, w.members, w.next())
	w.highest = slices.Repeat([]int64{*w.budget.Limit}, 5)
	w.highest[0] = max(w.highest[0], w.opening) // more than the limit was spent before: nothing may come on top
	w.sent()
	return w
}

func (w *ledgerWorld) join(region string) {
	h := Holder{Region: region, Incarnation: fmt.Sprintf("%s%d", region, len(w.owners))}
	w.members.Holders = slices.DeleteFunc(w.members.Holders, func(o Holder) bool { return o.Region == region })
	w.members.Holders = append(w.members.Holders, h)
	w.owners[h] = &modelOwner{holder: h, used: map[int]Usage{}}
}

// next is the generation after the present one.
func (w *ledgerWorld) next() Generation {
	w.stamps++
	return Generation{Number: w.ledger.Generation.Number + 1, Stamp: fmt.Sprintf("s%d", w.stamps)}
}

// change takes a new state of the ledger, and checks what may never go back.
func (w *ledgerWorld) change(next Ledger) {
	for i := range next.Periods.Len() {
		for _, before := range w.ledger.EntryAt(i).Allocations {
			e := next.EntryAt(i)
			after := e.find(before.Holder, before.Class)
			if after == nil || after.Granted < before.Granted || after.Returned < before.Returned {
				w.t.Fatalf("period %d: %+v became %+v", i, before, after)
			}
		}
		w.highest[i] = max(w.highest[i], next.EntryAt(i).Limit)
	}
	w.ledger = next
	w.sent()
}

func (w *ledgerWorld) sent() {
	for h := range w.owners {
		w.grants[h] = append(w.grants[h], w.ledger.GrantTo(h))
	}
}

func (w *ledgerWorld) someone(t *rapid.T) *modelOwner {
	var holders []Holder
	for h := range w.owners {
		holders = append(holders, h)
	}
	slices.SortFunc(holders, func(a, b Holder) int { return compare(a.Incarnation, b.Incarnation) })
	return w.owners[rapid.SampledFrom(holders).Draw(t, "owner")]
}

func (w *ledgerWorld) follow(t *rapid.T) {
	*w.budget.Limit = rapid.Int64Range(0, 20).Draw(t, "limit")
	w.budget.Allocation.Weights = map[string]int64{
		"a": rapid.Int64Range(0, 3).Draw(t, "weight a"), "b": rapid.Int64Range(0, 3).Draw(t, "weight b"), "c": 1,
	}
	w.budget.Override = nil
	if limit := *w.budget.Limit; limit > 0 && rapid.Bool().Draw(t, "override") {
		w.budget.Override = &Override{ID: "o", Units: rapid.Int64Range(1, limit).Draw(t, "units"), Until: Instant(rapid.IntRange(600, 900).Draw(t, "until")), By: "x"}
	}
	w.refollow()
}

func (w *ledgerWorld) refollow() {
	limit := *w.budget.Limit
	b := w.budget
	b.Limit = &limit
	w.version++
	next, err := w.ledger.Follow(b, w.version, w.running, w.members, w.next())
	if err != nil {
		w.t.Fatal(err)
	}
	for i := w.running; i < next.Periods.Len(); i++ {
		if start := next.Periods.At(i).Start; next.EntryAt(i).Limit != b.LimitIn(start) {
			w.t.Fatalf("the period of %s has limit %d, and the budget %d", start, next.EntryAt(i).Limit, b.LimitIn(start))
		}
	}
	w.change(next)
}

func (w *ledgerWorld) move(t *rapid.T) {
	from, to := w.someone(t), w.someone(t)
	if from == to {
		return
	}
	next, err := w.ledger.Move(from.holder, to.holder, rapid.Int64Range(1, 5).Draw(t, "units"), w.running, w.next())
	if err == nil {
		w.change(next)
	}
}

// deliver brings any grant that was ever sent to its owner.
func (w *ledgerWorld) deliver(o *modelOwner, g ShareGrant) {
	if len(g.Entries) == 0 {
		return
	}
	share, changed, err := o.share.Apply(g)
	if err != nil {
		w.t.Fatal(err)
	}
	if changed {
		o.share = share
		for i, u := range o.used {
			o.used[i] = u.Take(share)
		}
	}
}

func (w *ledgerWorld) spend(o *modelOwner, i int, n int64) {
	u, have := o.used[i]
	if !have {
		key := UsageKey{Budget: w.budget.Name, Period: w.ledger.Periods.At(i).Start, Class: General}
		if u, have = o.share.Usage(key); !have {
			return
		}
	}
	u.Spent += min(n, u.Spendable(1000))
	o.used[i] = u
}

func (w *ledgerWorld) state(o *modelOwner) ShareStatement {
	var used []Usage
	for i := range w.ledger.Periods.Len() {
		if u, ok := o.used[i]; ok {
			used = append(used, u)
		}
	}
	s := o.share.Statement(used, nil)
	w.statements[o.holder] = append(w.statements[o.holder], s)
	return s
}

func (w *ledgerWorld) count(o *modelOwner, s ShareStatement) {
	next, changed, err := w.ledger.Count(o.holder, s, w.next())
	if err != nil {
		w.t.Fatal(err)
	}
	if changed {
		w.change(next)
	}
}

// check is invariants 1, 2 and 4: what all owners together may spend of a period, with what was spent of it before, never exceeds the highest limit it had,
// and nobody holds what the ledger did not grant.
func (w *ledgerWorld) check(*rapid.T) {
	if err := w.ledger.Conserved(); err != nil {
		w.t.Fatal(err)
	}
	for i := range w.ledger.Periods.Len() {
		var held int64
		if i == 0 {
			held = w.opening
		}
		if e := w.ledger.EntryAt(i); e.OpeningSpent != held || w.ledger.Unallocated(i) > max(0, e.Limit-held) {
			w.t.Fatalf("period %d: %d of %d were spent before, not %d; %d are unallocated", i, e.OpeningSpent, e.Limit, held, w.ledger.Unallocated(i))
		}
		for h, o := range w.owners {
			u, used := o.used[i]
			if !used {
				e, ok := o.share.EntryFor(w.ledger.Periods.At(i).Start, General)
				if !ok {
					continue
				}
				u = Usage{Granted: e.Granted, Returned: e.Returned}
			}
			held += u.Granted - u.Returned
			e := w.ledger.EntryAt(i)
			a := e.find(h, General)
			if a == nil {
				a = &Allocation{}
			}
			if u.Granted > a.Granted || a.Returned > u.Returned || u.Spent > u.Granted-u.Returned {
				w.t.Fatalf("period %d: %v has %+v, the ledger %+v", i, h, u, a)
			}
		}
		if held > w.highest[i] {
			w.t.Fatalf("period %d: owners may spend %d, and the limit was never above %d", i, held, w.highest[i])
		}
	}
}

// catchUp delivers the newest of everything until nothing changes, and wants all targets reached.
func (w *ledgerWorld) catchUp() {
	for range 20 {
		for _, o := range w.owners {
			w.deliver(o, w.ledger.GrantTo(o.holder))
			w.count(o, w.state(o))
		}
	}
	for i := w.running; i < w.ledger.Periods.Len(); i++ {
		for _, a := range w.ledger.EntryAt(i).Allocations {
			o := w.owners[a.Holder]
			switch spent := o.used[i].Spent; {
			case a.Held() > max(a.Target, spent):
				w.t.Fatalf("period %d: %v holds %d, target %d, spent %d", i, a.Holder, a.Held(), a.Target, spent)
			case a.Held() < a.Target && w.ledger.Unallocated(i) > 0:
				w.t.Fatalf("period %d: %v holds %d of its target %d, and %d are unallocated", i, a.Holder, a.Held(), a.Target, w.ledger.Unallocated(i))
			}
		}
	}
}

// If this fails, some order of changes, delays and repetitions sells a permit twice, or loses one.
func TestLedgerUnderAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newLedgerWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"":       w.check,
			"follow": w.follow,
			"move":   w.move,
			"grant": func(t *rapid.T) {
				o := w.someone(t)
				if list := w.grants[o.holder]; len(list) > 0 {
					w.deliver(o, rapid.SampledFrom(list).Draw(t, "grant"))
				}
			},
			"spend": func(t *rapid.T) {
				w.spend(w.someone(t), rapid.IntRange(0, 4).Draw(t, "period"), rapid.Int64Range(1, 8).Draw(t, "units"))
			},
			"state": func(t *rapid.T) { w.state(w.someone(t)) },
			"count": func(t *rapid.T) {
				o := w.someone(t)
				if list := w.statements[o.holder]; len(list) > 0 {
					w.count(o, rapid.SampledFrom(list).Draw(t, "statement"))
				}
			},
			"exchange": func(t *rapid.T) {
				// Prompt messages, so that late ones find something to spoil.
				o := w.someone(t)
				w.deliver(o, w.ledger.GrantTo(o.holder))
				w.count(o, w.state(o))
			},
			"next period": func(*rapid.T) { w.running = min(w.running+1, 4) },
			"drain": func(t *rapid.T) {
				w.members.Number++
				w.members.Draining = nil
				if rapid.Bool().Draw(t, "draining") {
					w.members.Draining = []string{"b"}
				}
				holders := w.members.Holders
				w.members.Holders = slices.DeleteFunc(slices.Clone(holders), func(h Holder) bool { return slices.Contains(w.members.Draining, h.Region) })
				w.refollow()
				w.members.Holders = holders
			},
			"new incarnation": func(t *rapid.T) {
				if len(w.owners) < 6 {
					w.members.Number++
					w.join(rapid.SampledFrom(w.members.Regions).Draw(t, "region"))
					w.refollow()
				}
			},
		})
		w.catchUp()
		w.check(t)
	})
}

// An owner that returned less of one period than of its neighbours must not be counted for more there.
func TestCountRefusesOverlappingRuns(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "x", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 1}}}
	h := Holder{Region: "a", Incarnation: "a1"}
	l := OpenLedger(b, 1, Periods{First: 600, Step: 60, Count: 5}, Members{Regions: []string{"a"}, Holders: []Holder{h}}, Generation{1, "s1"})
	s := ShareStatement{Budget: "x", Term: 600, Generation: Generation{1, "s1"}, Returned: []ReturnedStatement{
		{From: 600, Until: 900, Class: General, Returned: 30}, {From: 660, Until: 720, Class: General, Returned: 20},
	}}
	if _, changed, err := l.Count(h, s, Generation{2, "s2"}); err == nil || changed || errors.Is(err, ErrContradicted) {
		t.Fatalf("counted: %v, %v", changed, err)
	}
}
