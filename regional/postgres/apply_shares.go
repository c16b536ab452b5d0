package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
)

// shareColumns are columns of shares as they are written.
type shareColumns struct {
	budgets     []string
	terms       []int64
	versions    []int64
	templates   []bool
	policies    []string
	regions     []string
	generations []int64
	stamps      []string
	openings    []int64
}

func (c *shareColumns) add(s allocation.Share) error {
	policy, err := json.Marshal(s.Policy)
	if err != nil {
		return fmt.Errorf("encode the policy of %s: %w", s.Budget, err)
	}
	c.budgets, c.terms = append(c.budgets, s.Budget), append(c.terms, int64(s.Term()))
	c.versions, c.templates = append(c.versions, s.Version), append(c.templates, s.Template)
	c.policies, c.regions = append(c.policies, string(policy)), append(c.regions, textArray(s.Regions))
	c.generations, c.stamps = append(c.generations, s.Generation.Number), append(c.stamps, s.Generation.Stamp)
	c.openings = append(c.openings, s.OpeningSpent)
	return nil
}

// entryColumns are columns of shares' entries.
type entryColumns struct {
	budgets                                               []string
	terms                                                 []int64
	classes                                               []string
	from, until, limit, granted, returned, aim, protected []int64
}

func (c *entryColumns) add(s allocation.Share) {
	for _, e := range s.Entries {
		c.budgets, c.terms = append(c.budgets, s.Budget), append(c.terms, int64(s.Term()))
		c.classes = append(c.classes, string(e.Class))
		c.from, c.until = append(c.from, int64(e.From)), append(c.until, int64(e.Until))
		c.limit, c.granted = append(c.limit, e.Limit), append(c.granted, e.Granted)
		c.returned, c.aim = append(c.returned, e.Returned), append(c.aim, e.Target)
		c.protected = append(c.protected, e.Protected)
	}
}

func (c *entryColumns) args() []any {
	return []any{c.budgets, c.terms, c.classes, c.from, c.until, c.limit, c.granted, c.returned, c.aim, c.protected}
}

// takenColumns are columns of usage as a grant changes it.
type takenColumns struct {
	keys
	versions, generations, granted, returned, targets, protected []int64
}

func (c *takenColumns) add(u allocation.Usage) {
	c.keys.add(u.UsageKey)
	c.versions, c.generations = append(c.versions, u.Version), append(c.generations, u.Generation)
	c.granted, c.returned, c.targets = append(c.granted, u.Granted), append(c.returned, u.Returned), append(c.targets, u.Target)
	c.protected = append(c.protected, u.Protected)
}

func (c *takenColumns) args() []any {
	return append(c.keys.args(), c.versions, c.generations, c.granted, c.returned, c.targets, c.protected, len(c.budgets))
}

// applyShares enters the grants: share rows first, then the usage rows of those that changed, each in the order of keys.
// Terms that are closed are locked with them, to be marked later.
func (a *application) applyShares(ctx context.Context) error {
	grants := newestGrants(a.answer.Shares)
	if len(grants)+len(a.answer.Closed) == 0 {
		return nil
	}
	if err := a.insertShares(ctx, grants); err != nil {
		return err
	}
	shares, gone, err := a.lockShares(ctx, grants)
	if err != nil {
		return err
	}
	var changed []allocation.Share
	for ref, grant := range grants {
		if gone[ref] { // a closed ledger is never opened again
			continue
		}
		next, news, err := shares[ref].Apply(grant)
		if err != nil {
			return fmt.Errorf("apply a grant: %w", err)
		}
		if !news {
			continue
		}
		changed = append(changed, next)
		if shares[ref].Generation.Number == 0 {
			a.opened = append(a.opened, ref)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if err := a.writeShares(ctx, changed); err != nil {
		return err
	}
	return a.takeUsage(ctx, changed)
}

// newestGrants keeps the newest grant of each share, should an answer name one twice.
func newestGrants(list []allocation.ShareGrant) map[allocation.ShareRef]allocation.ShareGrant {
	out := map[allocation.ShareRef]allocation.ShareGrant{}
	for _, g := range list {
		ref := allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}
		if had, ok := out[ref]; !ok || g.Generation.Number > had.Generation.Number {
			out[ref] = g
		}
	}
	return out
}

// insertShares makes the rows of shares that are not there, without a generation.
func (a *application) insertShares(ctx context.Context, grants map[allocation.ShareRef]allocation.ShareGrant) error {
	if len(grants) == 0 {
		return nil
	}
	var budgets, instants []string
	var terms, ends, firsts, steps []int64
	var counts []int32
	var shards []int16
	for ref, g := range grants {
		if err := g.Periods.Validate(); err != nil {
			return fmt.Errorf("a grant of %s: %w", g.Budget, err)
		}
		p := storePeriods(g.Periods)
		budgets, terms, ends = append(budgets, ref.Budget), append(terms, int64(ref.Term)), append(ends, int64(g.Periods.End()))
		firsts, steps = append(firsts, p.First), append(steps, p.Step)
		counts, instants = append(counts, int32(p.Count)), append(instants, numberArray(p.Instants))
		shards = append(shards, int16(allocation.ShardOf(ref.Budget)))
	}
	if _, err := a.t.conn.Exec(ctx, insertShares, budgets, terms, ends, shards, firsts, steps, counts, instants); err != nil {
		return fmt.Errorf("make shares: %w", err)
	}
	return nil
}

// lockShares locks the shares of the grants and of the closed terms, and reads them.
func (a *application) lockShares(ctx context.Context, grants map[allocation.ShareRef]allocation.ShareGrant) (map[allocation.ShareRef]allocation.Share, map[allocation.ShareRef]bool, error) {
	budgets, terms := refColumns(a.answer.Closed)
	for ref := range grants {
		budgets, terms = append(budgets, ref.Budget), append(terms, int64(ref.Term))
	}
	var read shareReader
	q := &pgx.Batch{}
	q.Queue(lockSharesFully, budgets, terms).Query(read.shares)
	q.Queue(selectEntries, budgets, terms).Query(read.entries)
	if err := a.t.run(ctx, q); err != nil {
		return nil, nil, fmt.Errorf("lock shares: %w", err)
	}
	shares, gone := map[allocation.ShareRef]allocation.Share{}, map[allocation.ShareRef]bool{}
	for _, ref := range read.order {
		shares[ref], gone[ref] = *read.found[ref], read.gone[ref]
	}
	return shares, gone, nil
}

// shareReader joins the rows of shares and of their entries.
type shareReader struct {
	order []allocation.ShareRef
	found map[allocation.ShareRef]*allocation.Share
	gone  map[allocation.ShareRef]bool
}

func (r *shareReader) shares(rows pgx.Rows) error {
	r.found, r.gone = map[allocation.ShareRef]*allocation.Share{}, map[allocation.ShareRef]bool{}
	for rows.Next() {
		var ref allocation.ShareRef
		var s allocation.Share
		var p storedPeriods
		var policy []byte
		var gone bool
		if err := rows.Scan(&ref.Budget, &ref.Term, &s.Version, &s.Template, &policy, &s.Regions, &p.First, &p.Step, &p.Count, &p.Instants,
			&s.Generation.Number, &s.Generation.Stamp, &gone, &s.Sealed, &s.OpeningSpent); err != nil {
			return err
		}
		if err := decode(policy, &s.Policy); err != nil {
			return fmt.Errorf("decode the policy of %s: %w", ref.Budget, err)
		}
		s.Budget, s.Periods = ref.Budget, p.periods()
		r.order, r.found[ref], r.gone[ref] = append(r.order, ref), &s, gone
	}
	return rows.Err()
}

func (r *shareReader) entries(rows pgx.Rows) error {
	for rows.Next() {
		var ref allocation.ShareRef
		var e allocation.GrantEntry
		if err := rows.Scan(&ref.Budget, &ref.Term, &e.Class, &e.From, &e.Until, &e.Limit, &e.Granted, &e.Returned, &e.Target, &e.Protected); err != nil {
			return err
		}
		if s := r.found[ref]; s != nil {
			s.Entries = append(s.Entries, e)
		}
	}
	return rows.Err()
}

func (a *application) writeShares(ctx context.Context, changed []allocation.Share) error {
	var rows shareColumns
	var entries entryColumns
	for _, s := range changed {
		if err := rows.add(s); err != nil {
			return err
		}
		entries.add(s)
	}
	q := &pgx.Batch{}
	q.Queue(updateShares, rows.budgets, rows.terms, rows.versions, rows.templates, rows.policies, rows.regions,
		rows.generations, rows.stamps, rows.openings, len(changed))
	q.Queue(deleteEntries, rows.budgets, rows.terms)
	q.Queue(insertEntries, entries.args()...)
	if err := a.t.run(ctx, q); err != nil {
		return fmt.Errorf("write shares: %w", err)
	}
	return nil
}

// takeUsage enters the shares' new state into the usage of their periods. What a lowered target leaves free is returned
// in this same commit (invariant 4). Statements need no hint: the shares themselves have changed.
func (a *application) takeUsage(ctx context.Context, changed []allocation.Share) error {
	byRef := map[allocation.ShareRef]allocation.Share{}
	var refs []allocation.ShareRef
	for _, s := range changed {
		ref := allocation.ShareRef{Budget: s.Budget, Term: s.Term()}
		byRef[ref], refs = s, append(refs, ref)
	}
	budgets, terms := refColumns(refs)
	usage := map[allocation.UsageKey]*allocation.Usage{}
	q := &pgx.Batch{}
	q.Queue(lockUsageOfShares, budgets, terms).Query(func(rows pgx.Rows) error { return eachUsage(rows, usage) })
	if err := a.t.run(ctx, q); err != nil {
		return fmt.Errorf("lock the usage of shares: %w", err)
	}
	rows := takenColumns{keys: *newKeys(len(usage))}
	for _, u := range usage {
		taken := u.Take(byRef[allocation.ShareRef{Budget: u.Budget, Term: u.Term}])
		if taken.Overflowed() {
			return fmt.Errorf("usage of %s in period %s would leave its bounds: %+v", u.Budget, u.Period, taken)
		}
		rows.add(taken)
	}
	q = &pgx.Batch{}
	q.Queue(takeUsage, rows.args()...)
	q.Queue(takeInstances, budgets, terms)
	if err := a.t.run(ctx, q); err != nil {
		return fmt.Errorf("write the usage of shares: %w", err)
	}
	return nil
}
