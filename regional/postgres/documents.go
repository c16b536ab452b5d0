package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
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
func (s *Store) PutDocument(ctx context.Context, rw regional.Writer, d allocation.Document) (stored bool, err error) {
	c, err := newDocumentColumns([]allocation.Document{d})
	if err != nil {
		return false, err
	}
	err = s.write(ctx, rw, switchShared, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		a := &application{t: t}
		if _, err := a.readLife(ctx); err != nil {
			return nil, err
		}
		if err := a.lockOwner(ctx); err != nil {
			return nil, err
		}
		next := a.changes + 1
		tag, err := t.conn.Exec(ctx, upsertDocuments, c.args(madeHere, next)...)
		if stored = tag.RowsAffected() > 0; err != nil || !stored {
			return nil, err
		}
		b := &pgx.Batch{}
		b.Queue(raiseChanges, next)
		return b, nil
	})
	if err != nil {
		return false, fmt.Errorf("store %s %s: %w", d.Kind, d.Name, err)
	}
	return stored, nil
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
