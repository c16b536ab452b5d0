package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"tranche/allocation"
	"tranche/regional"
)

// Rows travel to the database as one array for each column.

// keys are the columns of usage keys.
type keys struct {
	budgets, instances []string
	periods            []int64
	classes            []string
}

func newKeys(n int) *keys {
	return &keys{
		budgets: make([]string, 0, n), instances: make([]string, 0, n), periods: make([]int64, 0, n), classes: make([]string, 0, n),
	}
}

func (k *keys) add(key allocation.UsageKey) {
	k.budgets = append(k.budgets, key.Budget)
	k.instances = append(k.instances, key.Instance)
	k.periods = append(k.periods, int64(key.Period))
	k.classes = append(k.classes, string(key.Class))
}

func (k *keys) args() []any { return []any{k.budgets, k.instances, k.periods, k.classes} }

// missing are the columns of usage rows that are to be made.
type missing struct {
	keys
	terms []int64
	most  []int64
}

func newMissing(wanted []regional.WantedUsage) *missing {
	m := &missing{keys: *newKeys(0)}
	for _, w := range wanted {
		if !w.Make {
			continue
		}
		m.add(w.UsageKey)
		m.terms = append(m.terms, int64(w.Term))
		m.most = append(m.most, w.MaxInstances)
	}
	return m
}

func (m *missing) args() []any { return append(m.keys.args(), m.terms, m.most) }

// idKeys are the columns of ids.
type idKeys struct{ credentials, tenants, ids []string }

func newIDKeys(list []allocation.IDKey) *idKeys {
	k := &idKeys{credentials: make([]string, len(list)), tenants: make([]string, len(list)), ids: make([]string, len(list))}
	for i, id := range list {
		k.credentials[i], k.tenants[i], k.ids[i] = id.Credential, id.Tenant, id.ID
	}
	return k
}

func (k *idKeys) args() []any { return []any{k.credentials, k.tenants, k.ids} }

// counters are the columns of usage rows as a batch changes them. What they were granted is compared, not written.
type counters struct {
	keys
	granted, returned, spent, reserved, overdraft []int64
	places                                        []pgtype.TID
}

func newCounters(n int) *counters { return &counters{keys: *newKeys(n)} }

func (c *counters) add(u *allocation.Usage, place pgtype.TID) {
	c.keys.add(u.UsageKey)
	c.granted = append(c.granted, u.Granted)
	c.returned = append(c.returned, u.Returned)
	c.spent = append(c.spent, u.Spent)
	c.reserved = append(c.reserved, u.Reserved)
	c.overdraft = append(c.overdraft, u.Overdraft)
	c.places = append(c.places, place)
}

func (c *counters) args() []any {
	return append(c.keys.args(), c.granted, c.returned, c.spent, c.reserved, c.overdraft, len(c.budgets), c.places)
}

// lateChanges are the shares whose usage changed after its period was closed.
type lateChanges struct {
	shards  []int16
	budgets []string
	terms   []int64
}

func (l *lateChanges) add(budget string, term allocation.Instant) {
	l.shards = append(l.shards, int16(allocation.ShardOf(budget)))
	l.budgets = append(l.budgets, budget)
	l.terms = append(l.terms, int64(term))
}

func (l *lateChanges) queue(q *pgx.Batch) {
	if len(l.budgets) > 0 {
		q.Queue(noteLate, l.shards, l.budgets, l.terms)
	}
}

func eachKey(rows pgx.Rows, each func(allocation.UsageKey)) error {
	for rows.Next() {
		var k allocation.UsageKey
		if err := rows.Scan(&k.Budget, &k.Instance, &k.Period, &k.Class); err != nil {
			return err
		}
		each(k)
	}
	return rows.Err()
}

// usageFields are where the columns of usageColumns go.
func usageFields(u *allocation.Usage) []any {
	return []any{
		&u.Budget, &u.Instance, &u.Period, &u.Class, &u.Until, &u.Term, &u.Template, &u.Version, &u.Generation,
		&u.Granted, &u.Returned, &u.Target, &u.Protected, &u.Spent, &u.Reserved, &u.Overdraft, &u.Sealed,
	}
}

func eachUsage(rows pgx.Rows, into map[allocation.UsageKey]*allocation.Usage) error {
	for rows.Next() {
		u := &allocation.Usage{}
		if err := rows.Scan(usageFields(u)...); err != nil {
			return err
		}
		into[u.UsageKey] = u
	}
	return rows.Err()
}

// readUsage reads rows of usageOfKeys: those of eachUsage, and where each stands.
func (b *batch) readUsage(rows pgx.Rows) error {
	for rows.Next() {
		u := &allocation.Usage{}
		var place pgtype.TID
		if err := rows.Scan(append(usageFields(u), &place)...); err != nil {
			return err
		}
		b.seen.Usage[u.UsageKey], b.rows[u.UsageKey] = u, standing{place, countsOf(u)}
	}
	return rows.Err()
}
