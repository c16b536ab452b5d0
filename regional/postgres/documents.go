package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
)

// madeHere is under which history a document was told that the coordinator never told.
const madeHere = -1

// documentColumns are documents as parameters.
type documentColumns struct {
	kinds, names, documents []string
	versions, numbers       []int64
	final                   []bool
}

func newDocumentColumns(list []allocation.Document) (documentColumns, error) {
	var c documentColumns
	for _, d := range list {
		if err := d.Check(); err != nil {
			return c, err
		}
		text, err := json.Marshal(d)
		if err != nil {
			return c, fmt.Errorf("encode %s %s: %w", d.Kind, d.Name, err)
		}
		c.kinds, c.names, c.documents = append(c.kinds, d.Kind), append(c.names, d.Name), append(c.documents, string(text))
		c.versions, c.numbers, c.final = append(c.versions, d.Version), append(c.numbers, d.Number), append(c.final, d.Final)
	}
	return c, nil
}

func (c *documentColumns) args(told, change int64) []any {
	return []any{c.kinds, c.names, c.versions, c.numbers, c.final, c.documents, told, change}
}

// writeDocuments stores those of the answer, and says whether any was new. The owner's row is locked.
func (a *application) writeDocuments(ctx context.Context, change int64) (bool, error) {
	if len(a.answer.Documents) == 0 {
		return false, nil
	}
	c, err := newDocumentColumns(allocation.NewestDocuments(a.answer.Documents))
	if err != nil {
		return false, err
	}
	told := a.answer.History.Number
	tag, err := a.t.conn.Exec(ctx, upsertDocuments, c.args(told, change)...)
	if err != nil {
		return false, fmt.Errorf("write documents: %w", err)
	}
	if _, err := a.t.conn.Exec(ctx, tellDocuments, c.kinds, c.names, told); err != nil {
		return false, fmt.Errorf("note which documents were told: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}

// PutDocument stores a document that was made in this region.
func (s *Store) PutDocument(ctx context.Context, d allocation.Document) (stored bool, err error) {
	c, err := newDocumentColumns([]allocation.Document{d})
	if err == nil {
		stored, err = s.putDocument(ctx, c)
	}
	if err != nil {
		return false, fmt.Errorf("store %s %s: %w", d.Kind, d.Name, err)
	}
	return stored, nil
}

func (s *Store) putDocument(ctx context.Context, c documentColumns) (stored bool, err error) {
	var now life
	var changes int64
	b := &pgx.Batch{}
	s.queueBegin(b, switchShared)
	b.Queue(lockOwner).QueryRow(func(row pgx.Row) error {
		return row.Scan(&now.deployment, &now.incarnation, &now.history.Number, &now.history.Stamp, &now.observedAt, &changes)
	})
	t, err := s.start(ctx, b)
	if err != nil {
		return false, translate(err)
	}
	tag, err := t.conn.Exec(ctx, upsertDocuments, c.args(madeHere, changes+1)...)
	if err != nil || tag.RowsAffected() == 0 {
		t.abandon()
		return false, translate(err)
	}
	b = &pgx.Batch{}
	b.Queue(raiseChanges, changes+1)
	b.Queue(notHandedOver)
	return true, translate(t.commitWithout(ctx, b))
}

// queueUntold reads the documents that the next call is to state.
func queueUntold(q *pgx.Batch, into *[]allocation.Document) {
	q.Queue(selectUntold, allocation.MaxDocumentsPerCall).QueryRow(func(row pgx.Row) error {
		var list []byte
		if err := row.Scan(&list); err != nil {
			return err
		}
		return decode(list, into)
	})
}
