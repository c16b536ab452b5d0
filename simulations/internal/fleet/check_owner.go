package fleet

import (
	"slices"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

type charge struct{ spent, reserved, overdraft int64 }

// commit judges one commit of one database as it becomes durable.
func (c *checks) commit(x *ownertwin.Commit) {
	c.fleet.faults.around(x.Process)
	r := c.regionOf(x.Database)
	if r == nil {
		return
	}
	c.closed[r.name] = max(c.closed[r.name], r.db.ClosedBefore())
	c.judgeLife(r, x)
	c.noteSpent(r, x)
	c.must(!x.IntoClosed, 6, "%s inserts ids into a table that is closed: they may be forgotten too early, or be there twice", r.name)
	c.judgeShares(r, x)
	c.judgeCharges(r, x)
	for _, u := range x.Usage {
		c.judgeUsage(r, x, u)
	}
}

// shown enters one commit as everybody can see it.
func (c *checks) shown(x *ownertwin.Commit) {
	if r := c.regionOf(x.Database); r != nil {
		c.linear.commit(r, x)
	}
	c.order.show(x)
}

// judgeShares judges what an owner stores of what it was granted.
func (c *checks) judgeShares(r *region, x *ownertwin.Commit) {
	db := c.database(r, x)
	incarnation := x.Incarnation
	for _, s := range x.Shares {
		ref := allocation.ShareRef{Budget: s.Budget, Term: s.Term()}
		l := c.ledgers[ref]
		if l == nil {
			c.fail(4, "%s stores a share of %s, term %s, of which there never was a ledger", r.name, s.Budget, s.Term())
			return
		}
		c.must(samePeriods(s.Periods, l.doc.Periods), 10, "%s stores a share of %s with the periods %+v, and its term has %+v", r.name, s.Budget, s.Periods, l.doc.Periods)
		c.must(l.stamps[s.Generation], 8, "%s stores generation %s of %s, term %s, which its ledger never had", r.name, s.Generation, s.Budget, s.Term())
		if before, ok := db.Share(ref); ok {
			c.must(s.Generation.Number >= before.Generation.Number, 8, "%s goes from generation %s of %s back to %s", r.name, before.Generation, s.Budget, s.Generation)
		}
		h := allocation.Holder{Region: r.name, Incarnation: incarnation}
		for _, e := range s.Entries {
			c.must(e.Granted <= l.granted(h, e.From, e.Class), 4, "%s stores %d granted of %s, period %s, and the ledger never granted it more than %d",
				r.name, e.Granted, s.Budget, e.From, l.granted(h, e.From, e.Class))
			c.must(e.Granted >= 0 && e.Returned >= 0 && e.Returned <= e.Granted, 1, "%s: granted %d, returned %d of %s", r.name, e.Granted, e.Returned, s.Budget)
		}
	}
}

// judgeUsage judges one usage row that a commit changed.
func (c *checks) judgeUsage(r *region, x *ownertwin.Commit, u ownertwin.UsageChange) {
	k, after, before := u.After.UsageKey, u.After, u.Before
	made := before.Budget == ""
	ref := allocation.ShareRef{Budget: k.Budget, Term: after.Term}
	c.terms[k] = after.Term
	l := c.ledgers[ref]
	if l == nil {
		c.fail(9, "%s uses %s, period %s, of which there never was a ledger", r.name, k.Budget, k.Period)
		return
	}
	db := c.database(r, x)
	if _, there := db.Share(ref); made {
		c.must(there, 9, "%s makes a usage row of %s, period %s, without a share", r.name, k.Budget, k.Period)
	}
	c.judgeSealed(r, x, ref, u)
	c.must(!after.Overflowed(), 2, "%s: usage of %s, period %s left its bounds: %+v", r.name, k.Budget, k.Period, after)
	h := allocation.Holder{Region: r.name, Incarnation: x.Incarnation}
	granted := l.granted(h, k.Period, k.Class)
	if c.gone(h) && !made && after.Granted == before.Granted {
		// A backup brings back what an incarnation held that was replaced since, maybe of a history that all have stated after.
		// What is open in there ends, and nothing is granted to it.
		granted = l.everGranted(h, k.Period, k.Class)
	}
	c.must(after.Granted <= granted, 4, "%s counts %d granted of %s, period %s, and the ledger never granted it more than %d",
		r.name, after.Granted, k.Budget, k.Period, granted)
	if !made {
		c.must(after.Granted >= before.Granted && after.Returned >= before.Returned && after.Spent >= before.Spent && after.Overdraft >= before.Overdraft &&
			after.Generation >= before.Generation, 8, "%s: the usage of %s, period %s fell: %+v, then %+v", r.name, k.Budget, k.Period, before, after)
		now, there := db.Usage(k)
		c.must(!there || now == before, 7, "%s: the usage of %s, period %s is %+v, and a commit changes %+v", r.name, k.Budget, k.Period, now, before)
	}
	used := c.usedOf(k) + c.openingOf(k) // which alone may be above a limit that was lowered before the term was opened
	limit := c.capOf(k, l, used, x)
	if used > limit {
		c.twice.most = max(c.twice.most, used-limit)
		limit += c.soldTwice(k)
	}
	c.must(c.usedOf(k) == 0 || used <= limit, 2, "%d of %s %s are spent or reserved in the period %s, and its limit was never above %d (%s, %s of %s)",
		used, k.Budget, k.Instance, k.Period, limit, r.name, x.What, x.Process)
	if after.Spent+after.Reserved > before.Spent+before.Reserved {
		c.judgeSpender(r, x, k)
	}
}

// judgeSpender judges who spends: the incarnation that the coordinator recorded to live there, and no other.
func (c *checks) judgeSpender(r *region, x *ownertwin.Commit, k allocation.UsageKey) {
	d, home := c.members[r.name], c.database(r, x).Home()
	if slices.Contains(c.formerly[r.name], x.Incarnation) {
		return // etcd does not know it any more: it may go on until it hears of that, with what it holds
	}
	if c.replacedBeside(r.name, x.Incarnation) || c.hasLeft(x) {
		return
	}
	c.must(d != nil && x.Incarnation != "" && d.Incarnation == x.Incarnation && d.Home == home, 3,
		"%s spends of %s as incarnation %q from %+v, which is not recorded", x.Database, k.Budget, x.Incarnation, home)
}

// replacedBeside says whether an incarnation was replaced because of a copy that asked for a new one: until the original
// hears of that, it spends what nobody else was granted. That no two databases spend as one incarnation, judgeLife judges.
func (c *checks) replacedBeside(region, incarnation string) bool {
	d := c.members[region]
	return len(c.copies[region]) > 0 && d != nil && slices.Contains(d.Former, incarnation)
}

// judgeCharges holds what a commit charges against the admissions that it commits (invariants 6, 7, 10, 13).
func (c *checks) judgeCharges(r *region, x *ownertwin.Commit) {
	c.judgeFloors(r, x)
	want := map[allocation.UsageKey]charge{}
	add := func(a *allocation.Admission, sign int64) {
		for _, line := range a.Lines {
			w := want[line.UsageKey]
			w.spent, w.reserved, w.overdraft = w.spent+sign*line.Spent, w.reserved+sign*line.Held, w.overdraft+sign*line.Overdraft
			want[line.UsageKey] = w
		}
	}
	for _, a := range x.Inserted {
		add(a, 1)
		c.judgeAdmission(r, x, a)
		c.enter(r, x, a)
	}
	for _, a := range x.Updated {
		_, before := c.heldBy(c.database(r, x), claimKey{r.name, a.IDKey})
		if before == nil {
			c.fail(6, "%s changes the admission %s, which was never made", r.name, a.ID)
			return
		}
		add(before, -1)
		add(a, 1)
		c.enter(r, x, a)
	}
	for _, u := range x.Usage { // a row that was made and then charged stands twice
		w := want[u.After.UsageKey]
		w.spent -= u.After.Spent - u.Before.Spent
		w.reserved -= u.After.Reserved - u.Before.Reserved
		w.overdraft -= u.After.Overdraft - u.Before.Overdraft
		want[u.After.UsageKey] = w
	}
	c.judged[7]++
	for k, w := range want {
		if w != (charge{}) {
			c.fail(7, "%s: a commit of %s leaves %+v of %s, period %s, in its admissions that it does not charge", r.name, x.Process, w, k.Budget, k.Period)
			return
		}
	}
}

// judgeAdmission judges one id that is admitted.
func (c *checks) judgeAdmission(r *region, x *ownertwin.Commit, a *allocation.Admission) {
	key := claimKey{r.name, a.IDKey}
	cl := c.claims[key]
	db := c.database(r, x)
	c.judgeOnce(r, x, a)
	if len(a.Lines) == 0 {
		return
	}
	c.must(a.First.Config >= x.Changes, 13, "%s admits %s under change %d, and %d was stored when its transaction began", r.name, a.ID, a.First.Config, x.Changes)
	c.must(a.At == x.Clock, 10, "%s dates %s %d, and its database's clock was at %d", r.name, a.ID, a.At, x.Clock)
	stopped, _ := db.Stopped()
	c.must(stopped == "", 11, "%s admits %s and is stopped: %s", r.name, a.ID, stopped)
	c.must(!keyTooOld(db, a), 11, "%s admits %s with key %s on evidence of %d, at %d", r.name, a.ID, a.First.Fingerprint, a.First.ObservedAt, a.At)
	now := allocation.At(time.UnixMicro(a.At))
	for _, line := range a.Lines {
		if line.Uncharged() {
			continue // judged by its amount
		}
		c.must(line.Period <= now && now < line.Until, 10, "%s charges %s to the period %s–%s of %s at %s", r.name, a.ID, line.Period, line.Until, line.Budget, now)
		if l := c.ledgers[allocation.ShareRef{Budget: line.Budget, Term: c.terms[line.UsageKey]}]; l != nil {
			i, there := l.doc.Periods.Index(line.Period)
			c.must(there && l.doc.Periods.At(i).End == line.Until, 10, "%s charges %s to the period %s–%s of %s, and its term has no such period", r.name, a.ID, line.Period, line.Until, line.Budget)
			if policy := l.doc.Policy; l.doc.Template && policy.RegionFrom != "" {
				c.must(line.Instance == r.name, 3, "%s charges %s to %s of %s, which is at home there", r.name, a.ID, line.Instance, line.Budget)
			}
		}
		c.must(line.Until > db.ClosedBefore(), 10, "%s charges %s to the period %s of %s, and has closed all before %s", r.name, a.ID, line.Period, line.Budget, db.ClosedBefore())
		b := c.budgets[line.Budget]
		limit, known := b.limitIn(line.Version, line.Period, line.Limit)
		if oldest := int64(b.doc.Budget.MaxEvidenceAge) * 1_000_000; oldest > 0 && b.doc.Version == line.Version && b.doc.Budget.OnStaleEvidence == allocation.OnStaleRefuse {
			c.must(a.First.ObservedAt > 0 && a.At-a.First.ObservedAt <= oldest, 11, "%s admits %s of %s on evidence of %d, at %d", r.name, a.ID, line.Budget, a.First.ObservedAt, a.At)
		}
		c.must(known && limit == line.Limit && (limit > 0 || line.Enforcement == allocation.Meter), 13, "%s admits %s under version %d of %s with limit %d, and it was %d", r.name, a.ID, line.Version, line.Budget, line.Limit, limit)
	}
	if cl != nil {
		c.judgeBudgets(r, db, a, cl)
	}
}

// judgeBudgets judges that all budgets that a request matches are charged (invariant 7).
func (c *checks) judgeBudgets(r *region, db *ownertwin.Database, a *allocation.Admission, cl *claim) {
	if a.First.Config != db.Changes() {
		return // the owner has learnt of another budget since
	}
	var matching []allocation.Budget
	catalogue := db.Catalogue()
	for _, b := range catalogue.Budgets() {
		if !b.Deleted {
			matching = append(matching, b.Budget)
		}
	}
	hits, _ := allocation.MatchBudgets(matching, cl.labels)
	c.must(len(hits) == len(a.Lines), 7, "%s charges %s to %d budgets, and it matches %d", r.name, a.ID, len(a.Lines), len(hits))
	for i, h := range hits {
		if i >= len(a.Lines) {
			return
		}
		line := a.Lines[i]
		cost := cl.costs[line.Unit]
		c.must(line.Budget == h.Budget.Name && line.Instance == h.Instance, 7,
			"%s charges %s to %s %s, and it is to be %s %s", r.name, a.ID, line.Budget, line.Instance, h.Budget.Name, h.Instance)
		c.judgeAmount(r, a, line, cost)
	}
}
