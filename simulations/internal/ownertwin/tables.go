package ownertwin

import (
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/regional"
)

// idTables is how many tables of admission ids there are, as in regional/postgres.
const idTables = 4

type ownerRow struct {
	region, deployment, incarnation string
	history                         allocation.History
	changes, config                 int64
	closedBefore                    allocation.Instant
	stopped                         allocation.Reason
	detail                          string
	revision, observedAt            int64
	elsewhere                       []allocation.Elsewhere
	lost                            bool
	documents                       int64
	regions                         []string
	handover                        regional.Handover
}

type writerRow struct {
	name  string
	mark  allocation.Mark
	ended bool
	seen  int64

	vouched, former bool
}

type budgetRow struct {
	allocation.ConfiguredBudget
	change int64
}

type shareRow struct {
	allocation.Share
	gone   bool
	change int64
}

type shardRow struct{ number, acked int64 }

// statementRow says what a statement saw: all commits up to `at`.
type statementRow struct {
	number int64
	system string
	at     int64
}

type idTable struct {
	serial             int64
	state              string // empty, open, closed
	openedAt, closedAt int64
}

type instances struct {
	budget string
	period allocation.Instant
	class  allocation.Class
}

// tables is what one database holds. Rows are never changed, only replaced, so that copies may share them.
type tables struct {
	commits    int64 // rises with every commit that becomes visible
	owner      ownerRow
	former     map[string]bool // incarnations: true for one that has ended
	writers    map[string]writerRow
	ended      map[string]allocation.Mark // the last marks of writers whose end was acknowledged
	turnNode   string
	turnUntil  int64
	budgets    map[string]budgetRow
	documents  map[allocation.DocumentRef]documentRow
	shares     map[allocation.ShareRef]shareRow
	touched    map[allocation.ShareRef]int64 // the commit that last changed a share or its usage
	byShard    [allocation.Shards][]allocation.ShareRef
	usage      map[allocation.UsageKey]allocation.Usage
	ofShare    map[allocation.ShareRef][]allocation.UsageKey // sorted
	instances  map[instances]int64
	shards     [allocation.Shards]shardRow
	statements map[int][]statementRow // by shard, oldest first
	ids        [idTables]map[allocation.IDKey]*allocation.Admission
	open       map[allocation.IDKey]int64 // ids that are reserved, and when they were made
	idTables   [idTables]idTable
}

func newTables(region string, now int64) *tables {
	t := &tables{
		owner: ownerRow{region: region}, former: map[string]bool{}, writers: map[string]writerRow{}, ended: map[string]allocation.Mark{}, budgets: map[string]budgetRow{},
		documents: map[allocation.DocumentRef]documentRow{},
		shares:    map[allocation.ShareRef]shareRow{}, touched: map[allocation.ShareRef]int64{}, usage: map[allocation.UsageKey]allocation.Usage{},
		ofShare: map[allocation.ShareRef][]allocation.UsageKey{}, instances: map[instances]int64{}, statements: map[int][]statementRow{},
		open: map[allocation.IDKey]int64{},
	}
	for i := range t.ids {
		t.ids[i] = map[allocation.IDKey]*allocation.Admission{}
		t.idTables[i] = idTable{serial: int64(i), state: "empty"}
	}
	t.idTables[0].state, t.idTables[0].openedAt = "open", now
	return t
}

// clone copies the tables; the rows are shared.
func (t *tables) clone() *tables {
	c := *t
	c.former, c.writers, c.budgets = maps.Clone(t.former), maps.Clone(t.writers), maps.Clone(t.budgets)
	c.ended, c.documents = maps.Clone(t.ended), maps.Clone(t.documents)
	c.shares, c.touched, c.usage = maps.Clone(t.shares), maps.Clone(t.touched), maps.Clone(t.usage)
	c.instances, c.open = maps.Clone(t.instances), maps.Clone(t.open)
	c.ofShare = make(map[allocation.ShareRef][]allocation.UsageKey, len(t.ofShare))
	for ref, list := range t.ofShare {
		c.ofShare[ref] = slices.Clone(list)
	}
	c.statements = make(map[int][]statementRow, len(t.statements))
	for shard, list := range t.statements {
		c.statements[shard] = slices.Clone(list)
	}
	for i := range t.byShard {
		c.byShard[i] = slices.Clone(t.byShard[i])
	}
	for i := range t.ids {
		c.ids[i] = maps.Clone(t.ids[i])
	}
	return &c
}

// change is one change of a transaction; it may be made again, to a copy.
type change func(t *tables)

func putOwner(edit func(*ownerRow)) change { return func(t *tables) { edit(&t.owner) } }

func putWriter(w writerRow) change {
	return func(t *tables) { t.writers[w.mark.Writer] = w }
}

func refOf(u allocation.Usage) allocation.ShareRef {
	return allocation.ShareRef{Budget: u.Budget, Term: u.Term}
}

func compareRefs(a, b allocation.ShareRef) int {
	if c := strings.Compare(a.Budget, b.Budget); c != 0 {
		return c
	}
	return int(min(1, max(-1, a.Term-b.Term)))
}

func putShare(s shareRow) change {
	ref := allocation.ShareRef{Budget: s.Budget, Term: s.Term()}
	return func(t *tables) {
		if _, had := t.shares[ref]; !had {
			list := &t.byShard[allocation.ShardOf(ref.Budget)]
			at, _ := slices.BinarySearchFunc(*list, ref, compareRefs)
			*list = slices.Insert(*list, at, ref)
		}
		t.shares[ref], t.touched[ref] = s, t.commits
	}
}

func deleteShare(ref allocation.ShareRef) change {
	return func(t *tables) {
		list := &t.byShard[allocation.ShardOf(ref.Budget)]
		if at, found := slices.BinarySearchFunc(*list, ref, compareRefs); found {
			*list = slices.Delete(*list, at, at+1)
		}
		delete(t.shares, ref)
		delete(t.touched, ref)
		for k := range t.instances {
			if k.budget == ref.Budget && k.period >= ref.Term && len(t.ofShare[ref]) == 0 {
				if _, used := t.instanceOfOther(k, ref); !used {
					delete(t.instances, k)
				}
			}
		}
	}
}

// instanceOfOther finds the share of another term that counts these instances.
func (t *tables) instanceOfOther(k instances, gone allocation.ShareRef) (allocation.ShareRef, bool) {
	for _, ref := range t.byShard[allocation.ShardOf(k.budget)] {
		if ref.Budget == k.budget && ref != gone {
			if _, ok := t.shares[ref].Periods.Index(k.period); ok {
				return ref, true
			}
		}
	}
	return allocation.ShareRef{}, false
}

func putUsage(u allocation.Usage) change {
	return func(t *tables) {
		ref := refOf(u)
		if _, had := t.usage[u.UsageKey]; !had {
			at, _ := slices.BinarySearchFunc(t.ofShare[ref], u.UsageKey, allocation.UsageKey.Compare)
			t.ofShare[ref] = slices.Insert(t.ofShare[ref], at, u.UsageKey)
			if u.Template {
				t.instances[instances{u.Budget, u.Period, u.Class}]++
			}
		}
		t.usage[u.UsageKey], t.touched[ref] = u, t.commits
	}
}

func deleteUsage(u allocation.Usage) change {
	return func(t *tables) {
		ref := refOf(u)
		if at, found := slices.BinarySearchFunc(t.ofShare[ref], u.UsageKey, allocation.UsageKey.Compare); found {
			t.ofShare[ref] = slices.Delete(t.ofShare[ref], at, at+1)
		}
		if len(t.ofShare[ref]) == 0 {
			delete(t.ofShare, ref)
		}
		delete(t.usage, u.UsageKey)
	}
}

func putID(table int, a *allocation.Admission) change {
	return func(t *tables) {
		t.ids[table][a.IDKey] = a
		if a.State == allocation.StateReserved {
			t.open[a.IDKey] = a.At
		} else {
			delete(t.open, a.IDKey)
		}
	}
}

// find looks an id up in all tables.
func (t *tables) find(key allocation.IDKey) (a *allocation.Admission, table int) {
	for i := range t.ids {
		if a := t.ids[i][key]; a != nil {
			return a, i
		}
	}
	return nil, 0
}

// openTable is the table that ids are inserted into.
func (t *tables) openTable() int {
	for i := range t.idTables {
		if t.idTables[i].state == "open" {
			return i
		}
	}
	return -1
}

func copyAdmission(a *allocation.Admission) *allocation.Admission {
	c := *a
	c.Lines, c.Settled = slices.Clone(a.Lines), maps.Clone(a.Settled)
	return &c
}
