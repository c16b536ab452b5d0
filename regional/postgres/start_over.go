package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// startOverStep is how many open reservations are rewritten at a time.
const startOverStep = 1000

// StartOver makes the owner a new incarnation with nothing. The exclusive switch lock keeps all batches out, and rows are
// locked in everybody's order besides, for those who do not take it.
//
// No mark is left, since no writer has one here: what this writes takes everything away, so it can do no harm in a database
// that went back, only once more.
func (s *Store) StartOver(ctx context.Context, call allocation.SyncCall, answer allocation.SyncAnswer) (regional.StartedOver, error) {
	var over regional.StartedOver
	b := &pgx.Batch{}
	s.queueBegin(b, switchExclusive)
	b.Queue(notHandedOver)
	t, err := s.start(ctx, b)
	if err != nil {
		return over, fmt.Errorf("start over: %w", err)
	}
	b, err = t.startOver(ctx, call, answer, &over)
	if err != nil || b == nil {
		t.abandon()
		if err != nil {
			err = fmt.Errorf("start over: %w", translate(err))
		}
		return regional.StartedOver{}, err
	}
	if err := t.commitWithout(ctx, b); err != nil {
		return regional.StartedOver{}, fmt.Errorf("start over: %w", err)
	}
	return over, nil
}

// startOver says what is left to be written; nil if nothing is.
func (t *transaction) startOver(ctx context.Context, call allocation.SyncCall, answer allocation.SyncAnswer, over *regional.StartedOver) (*pgx.Batch, error) {
	a := &application{t: t, answer: answer}
	former, err := a.readLife(ctx)
	if err != nil {
		return nil, err
	}
	l := a.life
	heeded, take := l.history.Heed(answer.History)
	b := &pgx.Batch{}
	switch {
	case l.deployment != "" && answer.Deployment != l.deployment:
		return nil, fmt.Errorf("it is of deployment %q, the owner belongs to %q: %w", answer.Deployment, l.deployment, allocation.ErrContradicted)
	case heeded != l.history:
		b.Queue(heedHistory, heeded.Number, heeded.Stamp)
		b.Queue(forgetBases)
		return b, nil
	case !take, former, answer.Refusal != "", answer.Incarnation == "", answer.Incarnation == l.incarnation,
		call.Incarnation != l.incarnation, !l.lost && l.stopped != allocation.Sealed:
		return nil, nil
	}
	if call.Home != l.home {
		return nil, fmt.Errorf("the incarnation was given to the database %+v, this is %+v: %w", call.Home, l.home, allocation.ErrContradicted)
	}
	q := &pgx.Batch{}
	q.Queue(lockAllShares)
	q.Queue(lockAllUsage)
	q.Queue(selectStranded).QueryRow(func(row pgx.Row) error { return row.Scan(&over.Stranded) })
	if err := t.run(ctx, q); err != nil {
		return nil, err
	}
	if over.Open, err = t.endReservations(ctx); err != nil {
		return nil, err
	}
	b.Queue(emptyUsage)
	b.Queue(emptyTemplates)
	for _, sql := range dropShares {
		b.Queue(sql)
	}
	b.Queue(endIncarnation, l.incarnation)
	b.Queue(insertIncarnation, answer.Incarnation)
	b.Queue(renewOwner, answer.Deployment, answer.Incarnation)
	b.Queue(forgetStatements)
	b.Queue(forgetBases)
	b.Queue(retireWriters)
	b.Queue(forgetWriters)
	over.Incarnation = answer.Incarnation
	return b, nil
}

// endReservations counts all open reservations as spent, some at a time.
func (t *transaction) endReservations(ctx context.Context) (ended int64, err error) {
	for {
		var perTable [idTables][]*allocation.Admission
		n := 0
		q := &pgx.Batch{}
		q.Queue(selectReservations, "", "", "", startOverStep).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var key allocation.IDKey
				var r scannedID
				if err := rows.Scan(append([]any{&key.Credential, &key.Tenant, &key.ID}, r.fields()...)...); err != nil {
					return err
				}
				a, err := r.admission(key)
				if err != nil {
					return err
				}
				over := a.StartOver()
				perTable[r.table] = append(perTable[r.table], &over)
				n++
			}
			return rows.Err()
		})
		if err := t.run(ctx, q); err != nil {
			return 0, fmt.Errorf("read the open reservations: %w", err)
		}
		if n == 0 {
			return ended, nil
		}
		ended += int64(n)
		q = &pgx.Batch{}
		for table, list := range perTable {
			if err := queueUpdated(q, table, list, func(*allocation.Admission) allocation.State { return allocation.StateReserved }); err != nil {
				return 0, err
			}
		}
		if err := t.run(ctx, q); err != nil {
			return 0, fmt.Errorf("end the open reservations: %w", err)
		}
	}
}

// queueUpdated writes ids of one table that were in some state before.
func queueUpdated(q *pgx.Batch, table int, list []*allocation.Admission, was func(*allocation.Admission) allocation.State) error {
	if len(list) == 0 {
		return nil
	}
	rows, err := newIDRows(list)
	if err != nil {
		return err
	}
	for _, a := range list {
		rows.was = append(rows.was, string(was(a)))
	}
	q.Queue(updateIDs[table], rows.updated()...)
	return nil
}
