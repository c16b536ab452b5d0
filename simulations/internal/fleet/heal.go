package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/network"
)

// healWithin bounds how long everything takes to come right once all faults are over and no client asks any more.
const healWithin = 90 * time.Second

// staysRight is how long all must stay as it is once it came right: longer than a statement is kept unwritten.
const staysRight = 4 * time.Second

// closedAhead is how far an owner may have closed periods ahead of time: what clocks that drift make of a run, while only
// one of the two clocks that close a period is ever wrong.
const closedAhead = 20

// converge waits until nothing is missing any more, and then probes and closes the books.
func (f *fleet) converge() {
	missing := f.awaitNothing()
	if len(missing) == 0 {
		// What comes late, or once more, must not make it wrong again.
		f.w.Outside().Sleep(f.w.Outside().Context(), staysRight)
		missing = f.awaitNothing()
	}
	if wrong := f.misstated(); len(wrong) > 0 {
		f.check.fail(1, "%s after all faults are over: %s", healWithin, wrong[0])
		return
	}
	if f.closedAhead() {
		f.notes["runs in which wrong clocks of both sides closed periods ahead"]++
		f.check.ghosts()
		f.check.linear.judge()
		f.healed = true
		return
	}
	if late := f.standing(); len(late) > 0 {
		f.check.fail(2, "%s after all faults are over: %s", healWithin, late[0])
		return
	}
	for _, r := range f.regions {
		f.check.must(r.db.ClosedBefore() <= allocation.At(f.w.Now())+closedAhead, 10, "%s has closed all that ends before %s", r.name, r.db.ClosedBefore())
	}
	if len(missing) > 0 {
		f.check.fail(0, "still missing %s after all faults are over: %s", healWithin, strings.Join(missing[:min(5, len(missing))], "; "))
		return
	}
	for _, r := range f.regions {
		for _, n := range r.nodes {
			if !f.probe(n) {
				return
			}
		}
	}
	f.check.ghosts()
	f.check.linear.judge()
	f.keys.agree()
	f.healed = true
}

// closedAhead says that some owner has closed what has yet to begin, in a run in which the clocks of both sides that close
// a period were wrong. The cap holds, and what was closed stays closed: there is nothing to wait for.
func (f *fleet) closedAhead() bool {
	return f.plan.faults.clocks == clocksOfAll && slices.ContainsFunc(f.regions, func(r *region) bool {
		return r.db.ClosedBefore() > allocation.At(f.w.Now())+closedAhead
	})
}

// awaitNothing waits until nothing is missing, and returns what still is.
func (f *fleet) awaitNothing() (missing []string) {
	out := f.w.Outside()
	ctx := out.Context()
	for until := f.w.Elapsed() + healWithin; f.w.Elapsed() < until; out.Sleep(ctx, 500*time.Millisecond) {
		if missing = f.missing(); len(missing) == 0 {
			return nil
		}
		f.operator.settle(ctx) // a call to drain may have been late
		if f.keys != nil {
			f.keys.lift(ctx)
		}
	}
	return missing
}

// missing is what has yet to come right, in words.
func (f *fleet) missing() (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	now := allocation.At(f.w.Now())
	for _, r := range f.regions {
		d := f.check.members[r.name]
		if d == nil || !d.Confirmed {
			say("%s has no incarnation", r.name)
			continue
		}
		if stopped, why := r.db.Stopped(); stopped != "" {
			say("%s is stopped: %s: %s", r.name, stopped, why)
		}
		if c := d.Contradiction; c != nil && !c.Other { // that of another database stands for minutes after its last call
			say("%s is said to contradict: %s", r.name, d.Contradiction.Detail)
		}
		if d.Draining {
			say("%s is draining", r.name)
		}
		if r.db.Config() < f.check.number.Config {
			say("%s has configuration %d of %d", r.name, r.db.Config(), f.check.number.Config)
		}
		at := r.db.Clock().Micros()
		for _, a := range r.db.Reservations() {
			if a.ExpiresAt <= at-2_000_000 {
				say("%s: the reservation %s lapsed and is not over", r.name, a.ID)
			}
		}
		if behind := now - r.db.ClosedBefore(); behind > allocation.Instant(f.plan.closeGrace)+15 {
			say("%s has closed nothing after %s", r.name, r.db.ClosedBefore())
		}
	}
	for _, r := range f.regions {
		for _, n := range r.nodes {
			if n.current == nil || !n.current.Status().Ready {
				say("%s does not serve", n.process.Name())
			}
		}
	}
	f.missingOfBudgets(now, say)
	f.keys.missing(say)
	f.moves.missing(say)
	f.missingOfActs(say)
	f.missingRegister(say)
	f.missingVersion(say)
	for _, ref := range f.check.openLedgers() {
		f.missingOfLedger(ref, now, say)
	}
	list = append(list, f.misstated()...)
	return list
}

func (f *fleet) missingOfBudgets(now allocation.Instant, say func(string, ...any)) {
	for _, p := range f.plan.budgets {
		b := f.check.budgets[p.Name]
		if b == nil {
			continue
		}
		if _, anew := f.anew[p.Name]; anew && (b.doc.Version == 0 || b.doc.Lost) {
			say("%s was declared in the etcd that was empty, and is not there", p.Name)
		}
		// An etcd that was empty has none of a name that was deleted when the others were declared there.
		if b.doc.Version == 0 || b.doc.Deleted || b.doc.OpenedThrough == allocation.Never {
			continue
		}
		w := b.doc.Budget.Window
		horizon := now + allocation.Instant(w.Horizon(b.doc.Budget.WithDefaults().RunsAloneFor)) - 3
		if w.Once != nil {
			horizon = min(horizon, w.Once.Until)
			if b.doc.OpenedThrough == 0 && w.Once.Until <= now {
				continue // it was over before it was declared again
			}
		}
		if b.doc.OpenedThrough < horizon {
			say("%s is opened through %s only", p.Name, b.doc.OpenedThrough)
		}
	}
}

// openLedgers are those that etcd has, in order.
func (c *checks) openLedgers() []allocation.ShareRef {
	var refs []allocation.ShareRef
	for ref, l := range c.ledgers {
		if !l.closed && !l.restored {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b allocation.ShareRef) int {
		if n := strings.Compare(a.Budget, b.Budget); n != 0 {
			return n
		}
		return int(min(1, max(-1, a.Term-b.Term)))
	})
	return refs
}

// missingOfLedger compares a ledger with its budget and its owners: nothing may be in transit.
func (f *fleet) missingOfLedger(ref allocation.ShareRef, now allocation.Instant, say func(string, ...any)) {
	l, b := f.check.ledgers[ref].doc, f.check.budgets[ref.Budget].doc
	name := fmt.Sprintf("%s, term %s", ref.Budget, ref.Term)
	if l.Periods.End() <= now-allocation.Instant(f.plan.closeGrace)-20 {
		say("%s is over and not closed", name)
		return
	}
	if l.Periods.End() <= now || b.Lost { // that budget etcd lost, and nobody declared it again
		return
	}
	if l.Version != b.Version || l.Members != f.check.number.Members {
		say("%s follows version %d, members %d of %d, %d", name, l.Version, l.Members, b.Version, f.check.number.Members)
		return
	}
	running, ok := l.Periods.Find(now)
	if !ok {
		running = 0
	}
	for i := running; i < l.Periods.Len(); i++ {
		e, period := l.EntryAt(i), l.Periods.At(i)
		wants, kept := false, keptOf(l, e)
		for _, a := range e.Allocations {
			held := a.Granted - a.Returned
			db := f.check.databaseOf(a.Region)
			if f.check.gone(a.Holder) {
				continue // stranded to the period's end
			}
			if db == nil || db.Incarnation() != a.Incarnation {
				say("%s: %s is held by an incarnation that nobody knows", name, a.Region)
				continue
			}
			if held < a.Target {
				wants = true
				if hadAnother(e, a.Holder) {
					kept = 0 // it is for this one
				}
			}
			f.missingOfOwner(name, ref, l, period, a, say)
		}
		if free := l.Unallocated(i) - kept; free > 0 && wants && !l.Template {
			say("%s, period %s: %d are unallocated, and somebody lacks them", name, period.Start, free)
		}
	}
}

func (f *fleet) missingOfOwner(name string, ref allocation.ShareRef, l allocation.Ledger, period allocation.Period, a allocation.Allocation, say func(string, ...any)) {
	db := f.check.databaseOf(a.Region)
	s, there := db.Share(ref)
	if !there || s.Generation != l.Generation {
		say("%s: %s has generation %s of %s", name, a.Region, s.Generation, l.Generation)
		return
	}
	if l.Template || period.End <= db.ClosedBefore() {
		return
	}
	u, _ := db.Row(ref, allocation.UsageKey{Budget: ref.Budget, Period: period.Start, Class: a.Class})
	if u.Granted != a.Granted || u.Returned != a.Returned {
		say("%s, period %s: %s has %d granted, %d returned, the ledger %d, %d: in transit", name, period.Start, a.Region, u.Granted, u.Returned, a.Granted, a.Returned)
	}
	if free := u.Granted - u.Returned - u.Spent - u.Reserved; free > 0 && u.Granted-u.Returned > a.Target {
		say("%s, period %s: %s keeps %d above its target", name, period.Start, a.Region, u.Granted-u.Returned-a.Target)
	}
}

// probe asks one node for one unit of each budget: a request within the share is admitted (invariant 11: none is refused
// for ever; 13: zero refuses).
func (f *fleet) probe(n *node) bool {
	for i, tenant := range []string{tenantSteady, tenantChanging, tenantOnce, tenantTemplate, tenantPlaced} {
		if !f.probeFor(n, tenant, fmt.Sprint(n.process.Name(), "-", i)) {
			return false
		}
	}
	return true
}

// probeAgain is how often a probe is asked that came just before newer evidence: of at most 3 s, every second or two.
const probeAgain = 4

func (f *fleet) probeFor(n *node, tenant, id string) bool {
	out := f.w.Outside()
	for try := range probeAgain {
		r := allocation.Request{
			Op: allocation.Spend, Key: allocation.IDKey{Credential: "probe", Tenant: tenant, ID: id},
			Labels: allocation.Labels{"tenant": tenant, "user": "u0", "place": n.region.name}, Costs: map[string]int64{"requests": 1, "tokens": 1},
		}
		free, certain := f.spendable(n.region, r)
		reply, err := network.Call(out.Context(), f.net, out, n.process, network.Exchange, "probe", func(ctx context.Context) admitReply {
			return n.decide(ctx, []allocation.Request{r})
		})
		if err != nil || !reply.up {
			f.check.fail(0, "%s does not answer after all faults are over: %v", n.process.Name(), err)
			return false
		}
		d := reply.decisions[0]
		if again, still := f.spendable(n.region, r); !certain || !still || !free || !again {
			return true // its share has no room, or a period began meanwhile; what is charged is judged elsewhere
		}
		if d.Reason == allocation.EvidenceStale && try < probeAgain-1 {
			out.Sleep(out.Context(), time.Second)
			continue
		}
		f.check.must(d.Admitted(), 13, "%s refuses a request of %s with %s (%s), although its share has room", n.process.Name(), tenant, d.Reason, d.Detail)
		return true
	}
	return true
}

// spendable says whether the region's own rows have room for a request now.
func (f *fleet) spendable(r *region, q allocation.Request) (free, certain bool) {
	catalogue := r.db.Catalogue()
	now := allocation.Instant(r.db.Clock().Micros() / 1_000_000)
	plan := catalogue.Plan(q, now)
	if plan.Refusal != "" {
		return false, true
	}
	for _, line := range plan.Lines {
		if line.Problem != "" {
			return false, true
		}
		if line.Until <= now+1 {
			return false, false
		}
		u, ok := r.db.Row(allocation.ShareRef{Budget: line.UsageKey.Budget, Term: line.Term}, line.UsageKey)
		if !ok {
			return false, true
		}
		b, _ := catalogue.Budget(line.UsageKey.Budget)
		if line.Instance != "" {
			if _, there := r.db.Usage(line.UsageKey); !there {
				return false, false // there may be too many instances
			}
		}
		if limit := b.Budget.LimitOrZero(); limit == 0 || b.Deleted || u.Spendable(limit) < line.Cost || line.Until <= r.db.ClosedBefore() {
			return false, true
		}
	}
	return true, true
}
