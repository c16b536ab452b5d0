package ownertwin

import (
	"slices"
	"time"

	"tranche/allocation"
)

// UsageChange is a usage row before and after a commit; one that was made has no key before.
type UsageChange struct{ Before, After allocation.Usage }

// Commit is one commit that some database ever made visible or durable.
type Commit struct {
	Number      int64 // in the order of being durable, over all databases
	Database    string
	Line        int // of the database, then
	Process     string
	Writer      string
	What        string        // batch, apply, close, …
	At          time.Duration // the world's time
	Incarnation string        // of the owner, before it
	Usage       []UsageChange
	Inserted    []*allocation.Admission // not to be changed
	Updated     []*allocation.Admission
	Shares      []allocation.Share // as applied by it
	Changes     int64              // the owner's change number when the transaction began
	Clock       int64              // of a batch: the database's clock as it was read after the locks, Unix microseconds

	// StartsOver: with it the owner is a new incarnation, with nothing. Usage then tells what it reserved and counts as spent.
	StartsOver bool

	// IntoClosed: ids were inserted into a table that was closed by then.
	IntoClosed bool
	// Acknowledged: the process that made it was told so. What it then told its callers truly happened.
	Acknowledged bool
	// Lost: no database holds it any more.
	Lost bool

	entry *entry
}

// Truth is what truly happened in all databases of a world: also what a restore lost.
type Truth struct {
	// OnCommit hears of every commit when it is durable, OnShow when everybody can see it; OnLost of every one that is lost.
	OnCommit func(*Commit)
	OnShow   func(*Commit)
	OnLost   func(*Commit)

	commits   []*Commit
	totals    map[allocation.UsageKey]*Total
	databases []*Database
	lines     int
}

// Total is what was ever done with the permits of one budget, instance, period and class, in all databases together.
type Total struct {
	allocation.UsageKey
	Spent     int64 // ever; what was lost before anybody was told of it does not count
	Overdraft int64
	// LostReserved is what commits that were told of, and are lost, had reserved: somebody may believe to hold it.
	LostReserved int64
}

// NewTruth is the truth before anything happened.
func NewTruth() *Truth { return &Truth{totals: map[allocation.UsageKey]*Total{}} }

// Commits are all that ever were, in order.
func (t *Truth) Commits() []*Commit { return t.commits }

// Total is what was ever done with one key's permits.
func (t *Truth) Total(k allocation.UsageKey) Total {
	if total := t.totals[k]; total != nil {
		return *total
	}
	return Total{UsageKey: k}
}

// Totals are all totals, by key.
func (t *Truth) Totals() []Total {
	var all []Total
	for _, total := range t.totals {
		all = append(all, *total)
	}
	slices.SortFunc(all, func(a, b Total) int { return a.Compare(b.UsageKey) })
	return all
}

// Reserved is what the databases that exist hold reserved for a key, together.
func (t *Truth) Reserved(k allocation.UsageKey) (sum int64) {
	for _, db := range t.databases {
		if !db.destroyed {
			sum += db.tables.usage[k].Reserved
		}
	}
	return sum
}

func (t *Truth) total(k allocation.UsageKey) *Total {
	total := t.totals[k]
	if total == nil {
		total = &Total{UsageKey: k}
		t.totals[k] = total
	}
	return total
}

func (t *Truth) add(c *Commit) {
	c.Number = int64(len(t.commits) + 1)
	t.commits = append(t.commits, c)
	t.count(c, 1)
	if t.OnCommit != nil {
		t.OnCommit(c)
	}
}

func (t *Truth) count(c *Commit, sign int64) {
	for _, u := range c.Usage {
		total := t.total(u.After.UsageKey)
		total.Spent += sign * (u.After.Spent - u.Before.Spent)
		total.Overdraft += sign * (u.After.Overdraft - u.Before.Overdraft)
	}
}

// lose notes that a commit is gone, unless another database still holds it.
func (t *Truth) lose(e *entry) {
	for _, db := range t.databases {
		if !db.destroyed && db.holds(e) {
			return
		}
	}
	c := e.commit
	if c.Lost {
		return
	}
	c.Lost = true
	if !c.Acknowledged {
		t.count(c, -1) // nobody was told: it did not happen
	} else {
		for _, u := range c.Usage {
			t.total(u.After.UsageKey).LostReserved += u.After.Reserved - u.Before.Reserved
		}
	}
	if t.OnLost != nil {
		t.OnLost(c)
	}
}

// Acknowledge notes that somebody was told of a commit, maybe after it was lost: then it happened all the same.
func (t *Truth) Acknowledge(c *Commit) {
	if c.Acknowledged {
		return
	}
	c.Acknowledged = true
	if !c.Lost {
		return
	}
	t.count(c, 1)
	for _, u := range c.Usage {
		t.total(u.After.UsageKey).LostReserved += u.After.Reserved - u.Before.Reserved
	}
}

// regain notes that a database holds a commit again that was lost.
func (t *Truth) regain(e *entry) {
	c := e.commit
	if !c.Lost {
		return
	}
	c.Lost = false
	if !c.Acknowledged {
		t.count(c, 1)
		return
	}
	for _, u := range c.Usage {
		t.total(u.After.UsageKey).LostReserved -= u.After.Reserved - u.Before.Reserved
	}
}
