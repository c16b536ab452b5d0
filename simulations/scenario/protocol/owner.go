package protocol

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"tranche/allocation"
)

// Owner is the owner of one region: its share of each term, the usage rows of the periods that it used, and the state on
// which requests are decided.
type Owner struct {
	w      *World
	index  int
	region Region

	lives   int64  // incarnations that the coordinator gave out
	known   string // the latest of them
	resets  allocation.Duration
	waiting bool // for the incarnation of an emptied database

	locked    allocation.Locked
	shares    map[allocation.ShareRef]*share
	order     []*share // the shares, by budget and term
	config    int64
	instances map[instancesKey]int64
}

// share is a stored share with its usage rows.
type share struct {
	allocation.Share
	rows    []*allocation.Usage // as they were made
	silent  int                 // so many rows at the front are over and returned what the whole share did
	changed int64               // number of its last change
	told    int64               // the change that was stated last and answered
}

type instancesKey struct {
	budget string
	period allocation.Instant
}

func lifeName(n int64) string { return strconv.FormatInt(n, 10) }

func newOwner(w *World, index int, r Region) *Owner {
	o := &Owner{w: w, index: index, region: r, lives: 1, known: "1"}
	o.empty("1")
	return o
}

// empty is an owner's database that holds nothing but its incarnation.
func (o *Owner) empty(incarnation string) {
	o.shares, o.order, o.instances, o.config = map[allocation.ShareRef]*share{}, nil, map[instancesKey]int64{}, 0
	o.locked = allocation.Locked{
		Catalogue: allocation.NewCatalogue(o.region.Name), Incarnation: incarnation, Node: o.region.Name + "-1",
		Usage: map[allocation.UsageKey]*allocation.Usage{}, IDs: map[allocation.IDKey]*allocation.Admission{},
		Full: map[allocation.UsageKey]bool{}, None: map[allocation.UsageKey]bool{},
		LookedUp:  func(allocation.IDKey) bool { return true },
		Elsewhere: map[string]allocation.Elsewhere{}, ChangedUsage: map[allocation.UsageKey]bool{},
		Inserted: map[allocation.IDKey]bool{}, Updated: map[allocation.IDKey]bool{},
	}
}

// sync makes a call, if the database is there to make it from, and takes its answer when it comes.
func (o *Owner) sync() {
	if up, lost := o.w.databaseUp(o.index); !up {
		return
	} else if lost > o.resets {
		o.resets, o.waiting = lost, true
		o.empty("")
	}
	if calls, _ := o.w.reaches(o.index); !calls {
		return
	}
	call, sent := o.call(), o.w.now
	stated := o.stated()
	half := o.region.RoundTrip.Microseconds() / 2
	o.w.after(half, func() {
		if calls, _ := o.w.reaches(o.index); !calls || !o.w.coordinatorUp() {
			return
		}
		if call.Lost && !o.waiting {
			return // an earlier call was answered
		}
		answer := o.w.coordinator.answer(call)
		if _, answers := o.w.reaches(o.index); !answers {
			return
		}
		o.w.after(half, func() {
			_, answers := o.w.reaches(o.index)
			up, lost := o.w.databaseUp(o.index)
			if answers && up && lost <= o.resets {
				stated()
				o.take(answer, sent)
			}
		})
	})
}

// stated is to be called when a call made now is answered: what it stated need not be stated again.
func (o *Owner) stated() func() {
	shares, changes := slices.Clone(o.order), make([]int64, len(o.order))
	for i, sh := range shares {
		changes[i] = sh.changed
	}
	return func() {
		for i, sh := range shares {
			sh.told = max(sh.told, changes[i])
		}
	}
}

// call states what changed since the last answered call.
func (o *Owner) call() allocation.SyncCall {
	now := o.w.instant()
	call := allocation.SyncCall{
		Format: allocation.SyncFormat, Region: o.region.Name, Node: o.locked.Node, Incarnation: o.locked.Incarnation,
		Clock: o.w.now, Config: o.config, Lost: o.waiting, Low: o.low(now),
	}
	var statement allocation.Statement
	for _, sh := range o.order {
		call.Known = append(call.Known, allocation.ShareAck{Budget: sh.Budget, Term: sh.Term(), Generation: sh.Generation})
		if sh.changed > sh.told {
			statement.Shares = append(statement.Shares, o.statement(sh, now))
		}
	}
	if len(statement.Shares) > 0 {
		call.Statements = append(call.Statements, statement)
	}
	return call
}

// sort puts the shares in order after one came or went.
func (o *Owner) sort() {
	o.order = slices.SortedFunc(maps.Values(o.shares), func(a, b *share) int {
		return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Term(), b.Term()))
	})
}

// statement accounts for a share. Periods long over, whose rows returned what the whole share did, say nothing that
// anybody still asks; to leave them out keeps a day of short periods cheap.
func (o *Owner) statement(sh *share, now allocation.Instant) allocation.ShareStatement {
	if sh.Template {
		return o.sums(sh, now)
	}
	var used []allocation.Usage
	for i := sh.silent; i < len(sh.rows); i++ {
		u := sh.rows[i]
		e, _ := sh.EntryFor(u.Period, u.Class)
		if u.Until > now-60 || u.Returned != e.Returned {
			used = append(used, *u)
		} else if i == sh.silent {
			sh.silent++
		}
	}
	return sh.Statement(used, nil)
}

// sums states a template: its instances together.
func (o *Owner) sums(sh *share, now allocation.Instant) allocation.ShareStatement {
	sum := map[allocation.Instant]*allocation.Usage{}
	instances := map[allocation.Instant]int64{}
	for _, u := range sh.rows {
		if u.Until <= now {
			continue
		}
		if sum[u.Period] == nil {
			sum[u.Period] = &allocation.Usage{UsageKey: allocation.UsageKey{Budget: u.Budget, Period: u.Period, Class: u.Class}}
		}
		sum[u.Period].Spent += u.Spent
		sum[u.Period].Reserved += u.Reserved
		instances[u.Period]++
	}
	var used []allocation.Usage
	for _, u := range sum {
		used = append(used, *u)
	}
	slices.SortFunc(used, func(a, b allocation.Usage) int { return a.Compare(b.UsageKey) })
	return sh.Statement(used, instances)
}

// lowPart is how little of a share makes a region ask what is elsewhere: one in so many.
const lowPart = 5

// low names the budgets of which this region's share is nearly spent.
func (o *Owner) low(now allocation.Instant) []string {
	var names []string
	for _, sh := range o.order {
		i, ok := sh.Periods.Find(now)
		if !ok || sh.Template || len(names) == 100 {
			continue
		}
		granted, spendable := o.standing(sh, sh.Periods.At(i).Start)
		if spendable*lowPart <= granted {
			names = append(names, sh.Budget)
		}
	}
	return names
}

// Ready says whether the region has heard what it needs to decide; until then it is starting.
func (o *Owner) Ready() bool { return o.config > 0 }

// take enters an answer: grants first, then budgets, then what is elsewhere.
func (o *Owner) take(a allocation.SyncAnswer, sent int64) {
	if o.waiting {
		o.waiting = false
		o.locked.Incarnation = a.Incarnation
	}
	if a.Incarnation != o.locked.Incarnation {
		return
	}
	o.locked.Revision, o.locked.ObservedAt = a.Revision, sent
	var terms []allocation.Term
	for _, g := range a.Shares {
		if t, opened := o.grant(g); opened {
			terms = append(terms, t)
		}
	}
	gone := o.forget()
	var budgets []allocation.ConfiguredBudget
	if a.Config > o.config {
		o.config, budgets = a.Config, a.Budgets
	}
	if len(terms)+len(gone)+len(budgets) > 0 {
		o.locked.Catalogue = o.locked.Catalogue.With(o.locked.Catalogue.Number+1, budgets, terms, gone)
	}
	for _, e := range a.Elsewhere {
		o.locked.Elsewhere[e.Budget] = e
	}
}

// grant applies one grant to its share and to the usage rows made from it.
func (o *Owner) grant(g allocation.ShareGrant) (t allocation.Term, opened bool) {
	ref := allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}
	sh := o.shares[ref]
	if sh == nil {
		sh = &share{}
		opened = true
	}
	next, changed, err := sh.Apply(g)
	if err != nil {
		o.w.violated("%s applies a grant: %w", o.region.Name, err)
	}
	if !changed {
		return t, false
	}
	sh.Share = next
	sh.changed++
	sh.silent = 0
	if opened {
		o.shares[ref] = sh
		o.sort()
	}
	for _, u := range sh.rows {
		*u = u.Take(next)
		o.check(u)
	}
	return allocation.Term{
		Budget: next.Budget, Template: next.Template, Policy: next.Policy, Regions: next.Regions, Periods: next.Periods,
	}, opened
}

// check holds a usage row to its bounds.
func (o *Owner) check(u *allocation.Usage) {
	if u.Overflowed() {
		o.w.violated("invariant 2: %s spent %d and reserved %d of %s, period %s, and holds %d",
			o.region.Name, u.Spent, u.Reserved, u.Budget, u.Period, u.Granted-u.Returned)
	}
}

// forget drops shares whose terms are long over, and rows of periods that are.
func (o *Owner) forget() (gone []allocation.ShareRef) {
	now := o.w.instant()
	for ref, sh := range o.shares {
		if sh.Periods.End() >= now-keepOver {
			continue
		}
		for _, u := range sh.rows {
			delete(o.locked.Usage, u.UsageKey)
			delete(o.instances, instancesKey{u.Budget, u.Period})
		}
		delete(o.shares, ref)
		gone = append(gone, ref)
	}
	if len(gone) > 0 {
		o.sort()
	}
	return gone
}
