package fleet

import (
	"slices"

	"tranche/simulations/internal/ownertwin"
)

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
