package fleet

import (
	"slices"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// outlived is what may be spent of a period under a limit of which no ledger knows any more. Owners state the limit that counts
// now; that it was higher before it was lowered, they say only by what they hold. So where etcd lost that, and an incarnation
// cannot state what it spent, the highest limit that the ledger knows may lie below what was spent under the true one.
//
//	the true limit 100    a spent 50, and is lost; b holds 30, of which it spent 5
//	the ledger then       highest 30, which b holds. 80 may come to be spent, 50 by nobody any more, and 30 by those that are left
//
// Whatever is raised, moved or given back after that, those that are left together hold no more of it.
type outlived struct {
	lost int64 // spent by those that cannot state it; that is over, and only ever falls
	held int64 // by those that are left, when all had stated

	gone []allocation.LostHolder // then: a backup brings back what one of them spent, and an etcd that went back takes it for present
}

// noteOutlived notes it of each period when all have stated, where somebody is lost. Etcd may go back again after that: what
// was within a limit before is so still.
func (c *checks) noteOutlived() {
	next := map[allocation.UsageKey]outlived{}
	defer func() { c.outlived = next }()
	if len(c.standing.Lost) == 0 {
		return // everybody has stated what was out
	}
	for k := range c.used {
		l, used := c.ledgers[allocation.ShareRef{Budget: k.Budget, Term: c.terms[k]}], c.usedOf(k)+c.openingOf(k)
		if k.Class = allocation.General; l == nil || used > c.capOf(k, l, used, nil) {
			continue
		}
		o := outlived{lost: used - c.usedByPresent(k, c.standing.Lost, nil), gone: c.standing.Lost}
		if i, there := l.doc.Periods.Index(k.Period); there {
			for _, a := range l.doc.EntryAt(i).Allocations {
				if d := c.members[a.Region]; d != nil && d.Incarnation == a.Incarnation {
					o.held += a.Held()
				}
			}
		}
		next[k] = o
	}
}

// usedByPresent is what the present owners have spent or reserved of a period, by their own rows, and with a commit that is
// being judged: its admissions count already, and its rows are not stored yet.
func (c *checks) usedByPresent(k allocation.UsageKey, gone []allocation.LostHolder, judged *ownertwin.Commit) (sum int64) {
	for _, r := range c.fleet.regions {
		lost := func(l allocation.LostHolder) bool { return l.Incarnation == r.db.Incarnation() }
		if d := c.members[r.name]; d == nil || d.Incarnation != r.db.Incarnation() || slices.ContainsFunc(gone, lost) {
			continue // it has yet to begin anew, and its rows tell of what is lost
		}
		for _, class := range []allocation.Class{allocation.General, allocation.Protected} {
			k.Class = class
			if u, there := r.db.Usage(k); there {
				sum += u.Spent + u.Reserved
			}
		}
		if judged == nil || judged.Database != r.db.Name() {
			continue
		}
		for _, u := range judged.Usage {
			if k.Class = u.After.Class; u.After.UsageKey == k {
				sum += u.After.Spent + u.After.Reserved - u.Before.Spent - u.Before.Reserved
			}
		}
	}
	return sum
}

// capOf is the most that may be spent or reserved of a period, used being what is, with the commit that is being judged.
func (c *checks) capOf(k allocation.UsageKey, l *ledgerView, used int64, judged *ownertwin.Commit) int64 {
	k.Class = allocation.General
	o, there := c.outlived[k]
	if !there {
		return l.limitOf(k.Period)
	}
	o.lost = min(o.lost, used-c.usedByPresent(k, o.gone, judged))
	c.outlived[k] = o
	return max(l.limitOf(k.Period), min(l.highest, o.lost+o.held))
}
