package allocation

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world is one ledger and two owners, with every message between them that was ever sent and not lost: any of them may
// arrive now, and again later.
type world struct {
	ledger     Ledger
	budget     Budget
	members    Members
	owners     []*worldOwner
	highest    []int64 // limit that each period ever had
	grants     []grantSent
	statements []statementSent
}

// worldOwner is an owner's database: its share, and its rows and ids, which are made as they are used.
type worldOwner struct {
	Holder
	*Locked
	share  Share
	nextID int
	before map[UsageKey]Usage
}

type grantSent struct {
	to *worldOwner
	g  ShareGrant
}

type statementSent struct {
	from *worldOwner
	s    ShareStatement
}

func newWorld(t *rapid.T) *world {
	w := &world{budget: testBudget("a", "requests", rapid.SampledFrom([]int64{0, 1, 10, 25, MaxUnits}).Draw(t, "limit"))}
	w.budget.LongestReservation = Minute
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		w.budget.Name = "a/{caller}"
	case 1:
		w.budget.Name, w.budget.Allocation = "a/{caller}", Policy{Policy: PolicyHome, HashOf: "caller"}
	}
	periods := Periods{First: 6000, Step: 60, Count: 6}
	if rapid.Bool().Draw(t, "uneven") {
		periods = Periods{Instants: []Instant{6000, 6050, 6200, Never}}
	}
	for _, h := range []Holder{{"here", "one"}, {"there", "two"}} {
		l := newOwner()
		l.Catalogue = NewCatalogue(h.Region)
		w.owners = append(w.owners, &worldOwner{Holder: h, Locked: l})
		w.members.Holders = append(w.members.Holders, h)
		w.members.Regions = append(w.members.Regions, h.Region)
	}
	if rapid.IntRange(0, 3).Draw(t, "one comes later") == 0 {
		w.members.Holders = w.members.Holders[:1]
	}
	w.ledger = OpenLedger(w.budget, 1, periods, w.members, genOf(1))
	w.highest = slices.Repeat([]int64{*w.budget.Limit}, periods.Len())
	for _, o := range w.owners {
		if rapid.IntRange(0, 3).Draw(t, "starts later") > 0 {
			o.learn(w.budget)
			w.deliverGrant(t, grantSent{o, w.ledger.GrantTo(o.Holder)})
		}
	}
	return w
}

func (w *world) next() Generation { return genOf(w.ledger.Generation.Number + 1) }

func (w *world) owner(t *rapid.T) *worldOwner { return rapid.SampledFrom(w.owners).Draw(t, "owner") }

// follow brings the ledger to the budget and the members as they are now, from some period on.
func (w *world) follow(t *rapid.T) {
	from := rapid.IntRange(0, w.ledger.Periods.Len()-1).Draw(t, "from")
	l, err := w.ledger.Follow(w.budget, w.ledger.Version+1, from, w.members, w.next())
	if err != nil {
		t.Fatal(err)
	}
	w.ledger = l
	for i := from; i < len(w.highest); i++ {
		w.highest[i] = max(w.highest[i], *w.budget.Limit)
	}
}

func (w *world) limit(t *rapid.T) {
	w.budget.Limit = units(rapid.SampledFrom([]int64{0, 1, 7, 10, 25, MaxUnits}).Draw(t, "limit"))
	w.follow(t)
}

func (w *world) policy(t *rapid.T) {
	if !w.ledger.Template {
		w.budget.Allocation = rapid.SampledFrom([]Policy{
			{Policy: PolicyHome, Region: "here"},
			{Policy: PolicyHome, Region: "there"},
			{Policy: PolicyFixed, Weights: map[string]int64{"here": 1, "there": 1}},
			{Policy: PolicyFixed, Weights: map[string]int64{"here": 5, "there": 1}},
			{Policy: PolicyFixed, Weights: map[string]int64{"here": 0, "there": 1}},
		}).Draw(t, "policy")
		w.follow(t)
	}
}

// drain lets some regions give back and take no more, or take again.
func (w *world) drain(t *rapid.T) {
	w.members.Number++
	w.members.Draining, w.members.Holders = nil, nil
	for _, o := range w.owners {
		if rapid.IntRange(0, 3).Draw(t, "drains") == 0 {
			w.members.Draining = append(w.members.Draining, o.Region)
		} else {
			w.members.Holders = append(w.members.Holders, o.Holder)
		}
	}
	w.follow(t)
}

func (w *world) move(t *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(t, "giver")
	from := rapid.IntRange(0, w.ledger.Periods.Len()-1).Draw(t, "from")
	l, err := w.ledger.Move(w.owners[i].Holder, w.owners[1-i].Holder, rapid.Int64Range(1, 6).Draw(t, "units"), from, w.next())
	if err == nil {
		w.ledger = l
	}
}

// use asks one owner for something, at any moment of the term: its clock may be wrong.
func (w *world) use(t *rapid.T) {
	o := w.owner(t)
	o.Now = int64(rapid.SampledFrom([]Instant{6000, 6049, 6061, 6130, 6199, 6359}).Draw(t, "now")) * 1_000_000
	op := rapid.SampledFrom([]Op{Spend, Reserve, Reserve, Settle, Settle, Release, Extend, Lapse}).Draw(t, "op")
	cost := requests(rapid.SampledFrom([]int64{0, 1, 2, 3, 5, 9, MaxUnits / 2, MaxUnits}).Draw(t, "cost"))
	if op == Spend || op == Reserve {
		o.nextID++
		o.use(t, op, o.nextID, cost)
	} else {
		o.use(t, op, rapid.IntRange(1, o.nextID+1).Draw(t, "id"), cost)
	}
}

func (o *worldOwner) use(t *rapid.T, op Op, id int, cost map[string]int64) {
	r := request(op, fmt.Sprint(id), cost)
	plan := o.Catalogue.Plan(r, o.now())
	o.None = map[UsageKey]bool{}
	for _, k := range plan.Keys() { // made from the share, as under the lock of its row
		if o.Usage[k] != nil {
			continue
		}
		if u, ok := o.share.Usage(k); ok {
			o.Usage[k] = &u
		} else {
			o.None[k] = true
		}
	}
	if out := o.Decide(plan); out.Again {
		t.Fatalf("%s of id %d is never decided", op, id)
	}
}

// learn tells an owner the newest version of the budget, which reaches it apart from grants.
func (w *world) learn(t *rapid.T) { w.owner(t).learn(w.budget) }

func (o *worldOwner) learn(b Budget) {
	o.Catalogue = o.Catalogue.With(o.Catalogue.Number+1, []ConfiguredBudget{{Budget: b}}, nil, nil)
}

func (o *worldOwner) state() ShareStatement {
	if o.share.Template {
		return o.share.Statement(nil, nil)
	}
	var used []Usage
	for _, u := range o.Usage {
		used = append(used, *u)
	}
	slices.SortFunc(used, func(a, b Usage) int { return a.Compare(b.UsageKey) })
	return o.share.Statement(used, nil)
}

func (w *world) state(t *rapid.T) {
	if o := w.owner(t); o.share.Generation.Number > 0 {
		w.statements = append(w.statements, statementSent{o, o.state()})
	}
}

func (w *world) sendGrant(t *rapid.T) {
	o := w.owner(t)
	w.grants = append(w.grants, grantSent{o, w.ledger.GrantTo(o.Holder)})
}

// count delivers some statement; those that are not lost may come again, after newer ones.
func (w *world) count(t *rapid.T) {
	if len(w.statements) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.statements)-1).Draw(t, "statement")
	w.deliverStatement(t, w.statements[i])
	if rapid.Bool().Draw(t, "only once") {
		w.statements = slices.Delete(w.statements, i, i+1)
	}
}

func (w *world) deliverStatement(t *rapid.T, s statementSent) bool {
	l, changed, err := w.ledger.Count(s.from.Holder, s.s, w.next())
	if err != nil {
		t.Fatalf("a statement contradicts: %v", err)
	}
	w.ledger = l
	return changed
}

func (w *world) apply(t *rapid.T) {
	if len(w.grants) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.grants)-1).Draw(t, "grant")
	w.deliverGrant(t, w.grants[i])
	if rapid.Bool().Draw(t, "only once") {
		w.grants = slices.Delete(w.grants, i, i+1)
	}
}

// deliverGrant is one transaction of an owner: the share, and the rows of all its periods that are used.
func (w *world) deliverGrant(t *rapid.T, m grantSent) bool {
	o := m.to
	share, changed, err := o.share.Apply(m.g)
	if err != nil {
		t.Fatalf("a grant contradicts: %v", err)
	}
	if !changed {
		return false
	}
	o.share = share
	for _, u := range o.Usage {
		*u = u.Take(share)
	}
	o.Catalogue = o.Catalogue.With(o.Catalogue.Number+1, nil, []Term{{
		Budget: share.Budget, Template: share.Template, Policy: share.Policy, Regions: share.Regions, Periods: share.Periods,
	}}, nil)
	return true
}

func (w *world) lose(t *rapid.T) {
	if n := len(w.grants); n > 0 {
		w.grants = w.grants[rapid.IntRange(0, n).Draw(t, "lost grants"):]
	}
	if n := len(w.statements); n > 0 {
		w.statements = w.statements[rapid.IntRange(0, n).Draw(t, "lost statements"):]
	}
}

// holds is what an owner has been granted and has returned of a period, and its row if it is used.
func (w *world) holds(o *worldOwner, i int) (granted, returned int64, u Usage) {
	k := UsageKey{Budget: w.budget.Name, Period: w.ledger.Periods.At(i).Start, Class: General}
	if w.ledger.Template {
		k.Instance = "kim"
	}
	if u := o.Usage[k]; u != nil {
		return u.Granted, u.Returned, *u
	}
	e, _ := o.share.EntryFor(k.Period, General)
	return e.Granted, e.Returned, Usage{}
}

// check is what must be true at every moment (invariants 1, 2 and 4).
func (w *world) check(t *rapid.T) {
	if err := w.ledger.Conserved(); err != nil {
		t.Fatal(err)
	}
	for i := range w.ledger.Periods.Len() {
		e := w.ledger.EntryAt(i)
		var used, held int64
		for _, o := range w.owners {
			granted, returned, u := w.holds(o, i)
			var a Allocation
			if found := e.find(o.Holder, General); found != nil {
				a = *found
			}
			if granted > a.Granted || returned < a.Returned || u.Overflowed() {
				t.Fatalf("period %d: %s was granted %d and has returned %d, by the ledger %d and %d; %+v", i, o.Region, granted, returned, a.Granted, a.Returned, u)
			}
			used, held = used+u.Spent+u.Reserved, held+granted-returned
		}
		if used > w.highest[i] {
			t.Fatalf("period %d: %d are spent or reserved of %d", i, used, w.highest[i])
		}
		if out := w.ledger.out(e); held > out && !w.ledger.perInstanceHome() {
			t.Fatalf("period %d: the owners hold %d, by the ledger %d are out", i, held, out)
		}
	}
	for _, o := range w.owners {
		now := map[UsageKey]Usage{}
		for k, u := range o.Usage {
			if was := o.before[k]; u.Spent < was.Spent || u.Granted < was.Granted || u.Returned < was.Returned || u.Overdraft < was.Overdraft {
				t.Fatalf("a counter fell: %+v was %+v", *u, was)
			}
			now[k] = *u
		}
		o.before = now
	}
}

// converge ends all reservations and delivers every message until nothing changes any more.
func (w *world) converge(t *rapid.T) {
	for _, o := range w.owners {
		o.learn(w.budget)
		for id := range o.nextID {
			o.use(t, Release, id+1, nil)
		}
	}
	for range 20 {
		changed := false
		for _, s := range append(w.statements, statementSent{w.owners[0], w.owners[0].state()}, statementSent{w.owners[1], w.owners[1].state()}) {
			changed = w.deliverStatement(t, s) || changed
			w.check(t)
		}
		for _, o := range w.owners {
			w.grants = append(w.grants, grantSent{o, w.ledger.GrantTo(o.Holder)})
		}
		for _, g := range w.grants {
			changed = len(g.g.Entries) > 0 && w.deliverGrant(t, g) || changed
			w.check(t)
		}
		if !changed {
			w.settled(t)
			return
		}
	}
	t.Fatal("it never comes to rest")
}

// settled is what must be true once nothing is on its way: everybody holds the target, but where more was spent, or
// where others spent what it would get.
func (w *world) settled(t *rapid.T) {
	for i := range w.ledger.Periods.Len() {
		e := w.ledger.EntryAt(i)
		var out int64
		for _, o := range w.owners {
			a := e.find(o.Holder, General)
			if a == nil {
				continue
			}
			granted, returned, u := w.holds(o, i)
			out += a.Held()
			switch {
			case granted != a.Granted || returned != a.Returned:
				t.Fatalf("period %d: %s has %d − %d, the ledger %+v", i, o.Region, granted, returned, *a)
			case a.Held() > a.Target && !w.ledger.Template && a.Held() != u.Spent:
				t.Fatalf("period %d: %s keeps what it could return: %+v", i, o.Region, u)
			case a.Held() < a.Target && w.ledger.unallocated(e, o.Holder) > 0:
				t.Fatalf("period %d: %s is kept short: %+v, %d unallocated", i, o.Region, *a, w.ledger.Unallocated(i))
			}
		}
		if !w.ledger.perInstanceHome() && e.Limit+w.ledger.Overcommitted(i) != w.ledger.Unallocated(i)+out {
			t.Fatalf("period %d: limit %d, overcommitted %d, unallocated %d, out %d", i, e.Limit, w.ledger.Overcommitted(i), w.ledger.Unallocated(i), out)
		}
	}
}

// A ledger and its owners keep the cap and conserve every permit, whatever becomes of the messages between them, and
// agree again once messages arrive (invariants 1, 2, 4, 8). If this fails, two regions together spend more than the
// limit, or permits are lost for good.
func TestLedgerAndOwners(t *testing.T) {
	for range 20 { // a hundred runs are too few to meet the rare orders
		rapid.Check(t, runWorld)
	}
}

func runWorld(t *rapid.T) {
	w := newWorld(t)
	actions := []func(*rapid.T){
		w.use, w.use, w.use, w.use, w.use, w.sendGrant, w.sendGrant, w.apply, w.apply, w.apply, w.state, w.state, w.count, w.count,
		w.learn, w.limit, w.policy, w.drain, w.move, w.lose,
	}
	for range rapid.IntRange(20, 200).Draw(t, "steps") {
		anyOf(t, actions...)(t)
		w.check(t)
	}
	w.converge(t)
}
