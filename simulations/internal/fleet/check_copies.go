package fleet

import (
	"slices"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

const noteTwice = "permits above a limit, by a copy beside its original"

// twice is that an incarnation lives in two databases at once, since what its copy lacks was not found out in time. A world in
// which that is expected goes on, so that it is seen how much is sold twice by it, and tells of it at its end.
type twice struct {
	violation *Violation               // the first time that it was seen
	lives     map[string]*besideItself // by incarnation of which a copy was made
	most      int64                    // by how much a period was spent above its limit
}

// besideItself is a database, and the copy of it that was started beside it.
type besideItself struct{ original, copy *ownertwin.Database }

// mayLiveTwice notes that a copy of a region's database was started for nodes to work on.
func (c *checks) mayLiveTwice(r *region, copy *ownertwin.Database) {
	c.copied(r, copy)
	c.twice.lives[copy.Incarnation()] = &besideItself{r.db, copy}
}

// livesTwice notes that an incarnation lives in two databases; false if there is no copy of it.
func (c *checks) livesTwice(incarnation string, v *Violation) bool {
	if c.twice.lives[incarnation] == nil {
		return false
	}
	if c.twice.violation == nil {
		c.twice.violation = v
		c.fleet.w.Trace("lives twice", v.Detail)
	}
	return true
}

// soldTwice is how much may be spent or reserved of a period above its limit, at most, since an incarnation lives in two
// databases: what the original sold as that incarnation since it was copied. It was the incarnation's own, so it is no more
// than the incarnation held unspent; what the copy sells as well is that, once. Before anything is seen to live twice it is nothing.
func (c *checks) soldTwice(k allocation.UsageKey) (sum int64) {
	if c.twice.violation == nil {
		return 0
	}
	for _, list := range c.admissions {
		for _, v := range list {
			b := c.twice.lives[v.first.Incarnation]
			if b == nil || !b.original.Holds(v.first) || b.copy.Holds(v.first) {
				continue
			}
			for _, class := range []allocation.Class{allocation.General, allocation.Protected} {
				k.Class = class
				sum += v.counts[k]
			}
		}
	}
	return sum
}

// copied notes that a copy of a region's database was started beside it.
func (c *checks) copied(r *region, copy *ownertwin.Database) {
	for _, db := range []*ownertwin.Database{r.db, copy} {
		c.byDatabase[db.Name()], c.databases[db.Name()] = r, db
	}
	c.copies[r.name] = append(c.copies[r.name], r.db, copy)
}

// beside are the databases of a region in which somebody may spend: its own, and one beside it that a node works on.
func (c *checks) beside(r *region) []*ownertwin.Database {
	list := []*ownertwin.Database{r.db}
	for _, db := range c.copies[r.name] {
		if !slices.Contains(list, db) && r.works(db) {
			list = append(list, db)
		}
	}
	return list
}

// parted leaves out what one of two databases holds of an admission that has ended in the other one: where its caller was
// told of that, nobody spends it any more, whatever the other database counts; and a reservation whose time is over there, and
// that nobody extended here, is over here as well.
func parted(held []admissionState) (list []admissionState) {
	held = slices.DeleteFunc(slices.Clone(held), func(s admissionState) bool { return s.is == nil })
	for _, s := range held {
		if ended(s.is) && !lapsed(s.is) && !s.commit.StartsOver && s.commit.Acknowledged {
			list = append(list, s)
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, s := range held {
		over := slices.ContainsFunc(held, func(o admissionState) bool {
			return lapsed(o.is) && !o.commit.StartsOver && o.is.ExpiresAt >= s.is.ExpiresAt
		})
		if !over || lapsed(s.is) && !s.commit.StartsOver {
			list = append(list, s)
		}
	}
	return list
}

// mayLack says whether a commit may not be there for a node of the region: it is lost, or only one of two databases has it.
func (c *checks) mayLack(region string, x *ownertwin.Commit) bool {
	r := c.regionOf(x.Database)
	if r == nil || x.Lost || !r.db.Holds(x) {
		return true
	}
	return slices.ContainsFunc(c.copies[region], func(db *ownertwin.Database) bool { return r.works(db) && !db.Holds(x) })
}

// works says whether a node of the region works on a database.
func (r *region) works(db *ownertwin.Database) bool {
	return slices.ContainsFunc(r.nodes, func(n *node) bool { return n.endpoint.Database() == db })
}
