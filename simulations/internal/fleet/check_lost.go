package fleet

import (
	"slices"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// admissionView is an admission as the databases truly hold it, or held it: one that was lost stays what it was.
type admissionView struct {
	first  *ownertwin.Commit
	now    *allocation.Admission // as the last commit left it that is not lost
	at     time.Duration
	lost   time.Duration    // when the commit that made it was lost last
	states []admissionState // in the order of their commits

	counts map[allocation.UsageKey]int64
}

type admissionState struct {
	commit *ownertwin.Commit
	is     *allocation.Admission
}

// counted is what the admission counts against the cap (invariant 2): what it spent or holds by the last commit that is
// not gone, or that somebody was told of before it was. What ended a reservation in a history that was lost has ended it,
// if somebody was told: a new incarnation counts it as spent once more, and nobody can spend it for a second time. Where two
// databases stand beside each other, each holds what it holds: see parted.
func (v *admissionView) counted(standing []*ownertwin.Database) map[allocation.UsageKey]int64 {
	var lost *allocation.Admission
	held := make([]admissionState, len(standing))
	for _, s := range v.states {
		gone := true
		for i, db := range standing {
			if db.Holds(s.commit) {
				held[i], gone = s, false
			}
		}
		switch {
		case !gone:
		case (s.commit.StartsOver || lapsed(s.is)) && (ended(lost) || slices.ContainsFunc(held, func(h admissionState) bool { return ended(h.is) })):
			// It had ended before, in what was lost or in what a second backup brought back; that an incarnation counted it as
			// spent once more, or that it ran out in a database that had gone back, is lost, too.
		case s.commit.Acknowledged:
			lost = s.is
		}
	}
	sum := map[allocation.UsageKey]int64{}
	add := func(a *allocation.Admission) {
		of := map[allocation.UsageKey]int64{}
		for _, line := range a.Lines {
			of[line.UsageKey] += line.Spent + line.Held
		}
		for k, n := range of {
			sum[k] = max(sum[k], n)
		}
	}
	if lost != nil {
		add(lost)
	}
	if lost == nil || lost.State == allocation.StateReserved {
		for _, s := range parted(held) {
			add(s.is)
		}
	}
	return sum
}

// ended says whether an admission is known, and no open reservation.
func ended(a *allocation.Admission) bool { return a != nil && a.State != allocation.StateReserved }

// lapsed says whether a reservation ran out: nobody was told of that by an answer of their own.
func lapsed(a *allocation.Admission) bool {
	return a.State == allocation.StateLapsedSpent || a.State == allocation.StateLapsedReleased
}

// recount enters what an admission counts, and is, after something of it changed.
func (c *checks) recount(v *admissionView) {
	for k, n := range v.counts {
		c.used[k] -= n
	}
	r := c.regionOf(v.first.Database)
	standing := c.beside(r)
	v.counts = v.counted(standing)
	for k, n := range v.counts {
		c.used[k] += n
	}
	for _, s := range v.states {
		if v.now == nil || slices.ContainsFunc(standing, func(db *ownertwin.Database) bool { return db.Holds(s.commit) }) {
			v.now = s.is
		}
	}
}

// usedOf is what is spent or reserved of a period, in both classes together.
func (c *checks) usedOf(k allocation.UsageKey) (sum int64) {
	for _, class := range []allocation.Class{allocation.General, allocation.Protected} {
		k.Class = class
		sum += c.used[k]
	}
	return sum
}

// enter notes what a commit makes of an admission.
func (c *checks) enter(r *region, x *ownertwin.Commit, a *allocation.Admission) {
	key := claimKey{r.name, a.IDKey}
	v, _ := c.heldBy(c.database(r, x), key)
	if v == nil || slices.Contains(x.Inserted, a) {
		v = &admissionView{first: x, at: c.fleet.w.Elapsed()}
		c.admissions[key] = append(c.admissions[key], v)
	}
	v.states = append(v.states, admissionState{x, a})
	c.recount(v)
}

// heldBy is an admission as one database holds it.
func (c *checks) heldBy(db *ownertwin.Database, key claimKey) (*admissionView, *allocation.Admission) {
	for _, v := range slices.Backward(c.admissions[key]) {
		for _, s := range slices.Backward(v.states) {
			if db.Holds(s.commit) {
				return v, s.is
			}
		}
	}
	return nil, nil
}

// admissionOf is the admission that counts now of an id: the last one that is not lost, or else the last.
func (c *checks) admissionOf(key claimKey) *admissionView {
	list := c.admissions[key]
	for _, v := range slices.Backward(list) {
		if !c.mayLack(key.region, v.first) {
			return v
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// saidOf is the admission that an answer is about: an answer may be on its way while its commit is lost, and another one
// made.
func (c *checks) saidOf(key claimKey, d allocation.Decision) *admissionView {
	if d.Admitted() {
		for _, v := range slices.Backward(c.admissions[key]) {
			if v.now.At == d.At {
				return v
			}
		}
	}
	return c.admissionOf(key)
}

// acknowledge notes that a caller was told of an admission: it counts, whatever is lost.
func (c *checks) acknowledge(v *admissionView) {
	c.fleet.truth.Acknowledge(v.first)
	c.recount(v)
}

// judgeOnce judges that an id that is admitted is not there yet (invariant 6): one that was lost after somebody was told of
// it may be charged again by another incarnation, and by no other. A release of one that was lost charges nothing.
func (c *checks) judgeOnce(r *region, x *ownertwin.Commit, a *allocation.Admission) {
	key := claimKey{r.name, a.IDKey}
	v := c.admissionOf(key)
	if v == nil || c.fleet.w.Elapsed()-v.at > c.fleet.plan.retention.Std()*8/10 {
		return
	}
	held, _ := c.heldBy(c.database(r, x), key)
	c.must(held == nil, 6, "%s admits %s twice: at %s by %s, and now by %s", r.name, a.ID, v.at, v.first.Process, x.Process)
	for _, v := range c.admissions[key] {
		charged := len(a.Lines) > 0 && len(v.now.Lines) > 0
		c.must(!charged || !v.first.Acknowledged || v.first.Incarnation != x.Incarnation, 6, "%s admits %s twice in incarnation %s: at %s by %s, which was lost since, and now by %s",
			r.name, a.ID, x.Incarnation, v.at, v.first.Process, x.Process)
	}
}

// life is what was spent in one incarnation, by the line of the database in which it was.
type life map[int][]*ownertwin.Commit

// judgeLife judges that an incarnation is one life (invariant 3): who admits as one does it in a database that holds all
// that was ever acknowledged in it. A database that went back, or a copy, holds less.
func (c *checks) judgeLife(r *region, x *ownertwin.Commit) {
	if !charges(x) {
		return
	}
	l := c.lives[x.Incarnation]
	if l == nil {
		l = &life{}
		c.lives[x.Incarnation] = l
	}
	db := c.database(r, x)
	for line, list := range *l {
		for i, before := range slices.Backward(list) {
			if !before.Acknowledged {
				continue
			}
			(*l)[line] = list[i:]
			c.judged[3]++
			if !db.Holds(before) {
				v := c.violation(3, "%s admits as incarnation %s by %s, and does not hold what was admitted by %s in it at %s",
					x.Database, x.Incarnation, x.Process, before.Process, before.At)
				if !c.livesTwice(x.Incarnation, v) {
					c.fleet.w.Fail(v)
				}
			}
			break
		}
	}
	(*l)[x.Line] = append((*l)[x.Line], x)
}

// charges says whether a commit makes admissions that are charged.
func charges(x *ownertwin.Commit) bool {
	return slices.ContainsFunc(x.Inserted, func(a *allocation.Admission) bool { return len(a.Lines) > 0 })
}

// lost notes that a commit is lost.
func (c *checks) lost(x *ownertwin.Commit) {
	r := c.regionOf(x.Database)
	if r == nil {
		return
	}
	c.doomed[x.Incarnation], c.damaged[r.name] = true, true
	c.forgotten(x)
	for _, a := range slices.Concat(x.Inserted, x.Updated) {
		key := claimKey{r.name, a.IDKey}
		for _, v := range c.admissions[key] {
			if v.first == x {
				v.lost = c.fleet.w.Elapsed()
			}
			c.recount(v)
		}
		if cl := c.claims[key]; cl != nil {
			cl.gone = 0
		}
	}
	c.order.lost(r)
}

// handed notes that a database was handed over: its copy, which lacks nothing, is the region's from here on.
func (c *checks) handed(r *region, copy *ownertwin.Database) {
	if r.db != copy {
		r.left = append(r.left, r.db)
		r.db = copy
	}
}

// moved notes that all nodes of a region work on a copy from here on: what only the other one holds is lost to them.
func (c *checks) moved(r *region, copy *ownertwin.Database) {
	r.db = copy
	for key, list := range c.admissions {
		if key.region != r.name {
			continue
		}
		for _, v := range list {
			if !copy.Holds(v.first) {
				v.lost = c.fleet.w.Elapsed()
			}
			c.recount(v)
		}
		if cl := c.claims[key]; cl != nil {
			cl.gone = 0
		}
	}
	c.order.lost(r)
}

// database is where a commit was made.
func (c *checks) database(r *region, x *ownertwin.Commit) *ownertwin.Database {
	if db := c.databases[x.Database]; db != nil {
		return db
	}
	return r.db
}
