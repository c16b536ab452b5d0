package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// changedBudget is a budget as selectOwner lists it.
type changedBudget struct {
	Declaration allocation.Budget `json:"declaration"`
	Version     int64             `json:"version"`
	Number      int64             `json:"number"`
	Deleted     bool              `json:"deleted"`
}

// storedPeriods are the periods of a term in columns: instants are numbers there, as SQL computes with them.
type storedPeriods struct {
	First    int64   `json:"first"`
	Step     int64   `json:"step"`
	Count    int     `json:"count"`
	Instants []int64 `json:"instants"`
}

func storePeriods(p allocation.Periods) storedPeriods {
	s := storedPeriods{First: int64(p.First), Step: p.Step, Count: p.Count, Instants: []int64{}}
	for _, i := range p.Instants {
		s.Instants = append(s.Instants, int64(i))
	}
	return s
}

func (s storedPeriods) periods() allocation.Periods {
	p := allocation.Periods{First: allocation.Instant(s.First), Step: s.Step, Count: s.Count}
	for _, i := range s.Instants {
		p.Instants = append(p.Instants, allocation.Instant(i))
	}
	return p
}

// changedTerm is a term as selectOwner lists it.
type changedTerm struct {
	Budget   string            `json:"budget"`
	Term     int64             `json:"term"`
	Template bool              `json:"template"`
	Policy   allocation.Policy `json:"policy"`
	Regions  []string          `json:"regions"`
	Gone     bool              `json:"gone"`
	storedPeriods
}

// noChanges asks for the owner's row without lists.
const noChanges = math.MaxInt64

// queueOwner reads the owner's row, and what changed after a change number, at most `most` budgets, terms and documents each.
func (s *Store) queueOwner(q *pgx.Batch, after int64, most int64, into *regional.Loaded) {
	q.Queue(selectOwner, after, most).QueryRow(func(row pgx.Row) error { return s.scanOwner(row, into) })
}

// scanOwner reads a row of selectOwner, and what else there is in it.
func (s *Store) scanOwner(row pgx.Row, l *regional.Loaded, more ...any) error {
	var format int
	var budgets, terms, homes, documents []byte
	err := row.Scan(append([]any{
		&format, &l.Region, &l.Deployment, &l.Incarnation, &l.History.Number, &l.History.Stamp, &l.Changes, &l.Config,
		&l.ClosedBefore, &l.Stopped, &l.Detail, &l.Revision, &l.ObservedAt, &l.Lost, &l.Handover.ID, &homes, &l.DocumentsThrough, &l.Lineage,
		&budgets, &terms, &documents,
	}, more...)...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: the owner's row is missing", regional.ErrNotReady)
	case err != nil:
		return err
	case format != Format:
		return fmt.Errorf("%w: its tables have format %d, this program knows format %d: upgrade the program", regional.ErrNotReady, format, Format)
	case l.Deployment != "" && s.cfg.Deployment != "" && l.Deployment != s.cfg.Deployment:
		return fmt.Errorf("%w: it belongs to deployment %s, this region's token to %s", regional.ErrNotReady, l.Deployment, s.cfg.Deployment)
	case l.Region != s.cfg.Region:
		return fmt.Errorf("%w: it belongs to region %s, not %s", regional.ErrNotReady, l.Region, s.cfg.Region)
	}
	if err := decode(homes, &l.Handover); err != nil {
		return fmt.Errorf("decode the handover: %w", err)
	}
	l.Stopped, l.Detail = l.Handover.Stopped(l.Stopped, l.Detail)
	if err := decode(documents, &l.Documents); err != nil {
		return fmt.Errorf("decode documents: %w", err)
	}
	return scanChanges(budgets, terms, l)
}

func scanChanges(budgets, terms []byte, l *regional.Loaded) error {
	var changed []changedBudget
	if err := decode(budgets, &changed); err != nil {
		return fmt.Errorf("decode budgets: %w", err)
	}
	for _, c := range changed {
		l.Budgets = append(l.Budgets, allocation.ConfiguredBudget{Budget: c.Declaration, Version: c.Version, Number: c.Number, Deleted: c.Deleted})
	}
	var opened []changedTerm
	if err := decode(terms, &opened); err != nil {
		return fmt.Errorf("decode terms: %w", err)
	}
	for _, t := range opened {
		if t.Gone {
			l.Gone = append(l.Gone, allocation.ShareRef{Budget: t.Budget, Term: allocation.Instant(t.Term)})
			continue
		}
		l.Terms = append(l.Terms, allocation.Term{
			Budget: t.Budget, Template: t.Template, Policy: t.Policy, Regions: t.Regions, Periods: t.periods(),
		})
	}
	return nil
}

// decode reads JSON that may be absent.
func decode(text []byte, into any) error {
	if len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, into)
}

// checkBehind drops the lists of a node that is too far behind.
func checkBehind(seen *regional.Seen) {
	if len(seen.Budgets)+len(seen.Terms)+len(seen.Gone)+len(seen.Documents) > regional.MaxChanges {
		seen.Behind = true
		seen.Budgets, seen.Terms, seen.Gone, seen.Documents = nil, nil, nil, nil
	}
}

// Load reads the owner's row, and the budgets, terms and documents that changed after the change number.
func (s *Store) Load(ctx context.Context, after int64) (regional.Loaded, error) {
	var l regional.Loaded
	var elsewhere []byte
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectHome).QueryRow(func(row pgx.Row) error { return row.Scan(&l.Home.System, &l.Home.Database, &l.Home.Timeline) })
	s.queueOwner(q, after, math.MaxInt64, &l)
	q.Queue(selectElsewhere).QueryRow(func(row pgx.Row) error { return row.Scan(&elsewhere) })
	q.Queue(selectOpen).QueryRow(func(row pgx.Row) error { return row.Scan(&l.OpenReservations, &l.OldestReservation) })
	q.Queue(selectOldestSnapshot).QueryRow(func(row pgx.Row) error { return row.Scan(&l.OldestSnapshot) })
	if err := s.read(ctx, q); err != nil {
		return regional.Loaded{}, fmt.Errorf("load the owner: %w", err)
	}
	if err := decode(elsewhere, &l.Elsewhere); err != nil {
		return regional.Loaded{}, fmt.Errorf("load the owner: decode what is elsewhere: %w", err)
	}
	home := l.Home
	s.home.Store(&home)
	return l, nil
}

// read runs a pipeline that begins a transaction which writes nothing, and ends it.
func (s *Store) read(ctx context.Context, q *pgx.Batch) error {
	q.Queue(rollback)
	t, err := s.start(ctx, q)
	if err != nil {
		return err
	}
	t.conn.Release()
	return nil
}

// Peek reads what a batch would: rows that are not there yet as they would be made.
func (s *Store) Peek(ctx context.Context, want regional.Want) (regional.Seen, error) {
	if err := checkWant(want); err != nil {
		return regional.Seen{}, err
	}
	seen, err := s.peek(ctx, want, selectOwnerOnly)
	if err == nil && seen.Changes > want.Changes {
		seen, err = s.peek(ctx, want, selectOwnerNow, want.Changes, regional.MaxChanges+1)
	}
	if err != nil {
		return regional.Seen{}, fmt.Errorf("read for a check: %w", err)
	}
	return seen, nil
}

// peek reads it with the owner's row by one of the statements.
func (s *Store) peek(ctx context.Context, want regional.Want, owner string, args ...any) (regional.Seen, error) {
	b := newBatch(s)
	q := &pgx.Batch{}
	// Not one snapshot for all: each statement is to see the newest, as in a batch, so that the clock comes last.
	q.Queue(begin)
	q.Queue(planByKey)
	keys := newKeys(len(want.Usage))
	for _, u := range want.Usage {
		keys.add(u.UsageKey)
	}
	if len(want.OfIDs) > 0 {
		q.Queue(readUsageOfIDs, append(keys.args(), newIDKeys(want.OfIDs).args()...)...).Query(b.readUsage)
	} else if len(want.Usage) > 0 {
		q.Queue(readUsage, keys.args()...).Query(b.readUsage)
	}
	if missing := newMissing(want.Usage); len(missing.terms) > 0 {
		q.Queue(peekUsage, missing.args()...).Query(b.wouldMake)
	}
	b.queueIDs(q, want.IDs)
	b.queueOwnerNow(q, owner, args...)
	if err := s.read(ctx, q); err != nil {
		return regional.Seen{}, err
	}
	b.seen.Home = *s.home.Load()
	checkBehind(&b.seen)
	return b.seen, nil
}

// wouldMake reads the rows of peekUsage.
func (b *batch) wouldMake(rows pgx.Rows) error {
	for rows.Next() {
		u, fits := &allocation.Usage{}, false
		if err := rows.Scan(append(usageFields(u), &fits)...); err != nil {
			return err
		}
		if !fits {
			b.seen.Full[u.UsageKey] = true
		} else if b.seen.Usage[u.UsageKey] == nil {
			b.seen.Usage[u.UsageKey] = u
		}
	}
	return rows.Err()
}
