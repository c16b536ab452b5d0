package ownertwin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
)

// madeHere is under which history a document was told that the coordinator never told, as in regional/postgres.
const madeHere = -1

type documentRow struct {
	allocation.Document
	told, change int64
}

// putDocuments stores documents as told under a history, and says whether any was new. The owner's row is locked.
func (x *transaction) putDocuments(list []allocation.Document, told, next int64) (changed bool, err error) {
	for _, d := range allocation.NewestDocuments(list) {
		if err := d.Check(); err != nil {
			return false, err
		}
		row, there := x.db.tables.documents[d.Ref()]
		if !there || d.Replaces(row.Document) {
			changed = true
			row = documentRow{Document: d, told: told, change: next}
		}
		row.told = max(row.told, told)
		x.change(func(t *tables) { t.documents[row.Ref()] = row })
	}
	return changed, nil
}

// PutDocument implements regional.Owner.
func (o *Owner) PutDocument(ctx context.Context, d allocation.Document) (stored bool, err error) {
	x, err := o.start(ctx, "document", switchShared, func(x *transaction) error {
		if err := o.belongs(x.db.tables); err != nil {
			return err
		}
		if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
			return err
		}
		row, there := x.db.tables.documents[d.Ref()]
		stored = !there || d.Replaces(row.Document)
		return d.Check()
	})
	switch {
	case err == nil && !stored:
		o.abandon(x)
	case err == nil:
		err = o.commitWithout(ctx, x, func() error {
			if err := x.notHandedOver(); err != nil {
				return err
			}
			next := x.db.tables.owner.changes + 1
			x.change(putOwner(func(r *ownerRow) { r.changes = next }))
			_, err := x.putDocuments([]allocation.Document{d}, madeHere, next)
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("store %s %s: %w", d.Kind, d.Name, err)
	}
	return stored, nil
}

// changedDocuments are those that changed after a change number.
func (t *tables) changedDocuments(after int64) (list []allocation.Document) {
	for _, row := range t.documents {
		if row.change > after {
			list = append(list, row.Document)
		}
	}
	slices.SortFunc(list, func(a, b allocation.Document) int { return a.Ref().Compare(b.Ref()) })
	return list
}

// untold are the documents that the coordinator has not told under the present history, those made here first.
func (t *tables) untold() (list []allocation.Document) {
	rows := slices.SortedFunc(maps.Values(t.documents), func(a, b documentRow) int {
		return cmp.Or(cmp.Compare(a.told, b.told), a.Ref().Compare(b.Ref()))
	})
	for _, row := range rows {
		if row.told < t.owner.history.Number && len(list) < allocation.MaxDocumentsPerCall {
			list = append(list, row.Document)
		}
	}
	return list
}

// Document is one that the owner has stored.
func (db *Database) Document(ref allocation.DocumentRef) (allocation.Document, bool) {
	row, ok := db.tables.documents[ref]
	return row.Document, ok
}

// Documents are those of a kind that the owner has stored, by name.
func (db *Database) Documents(kind string) (list []allocation.Document) {
	for ref, row := range db.tables.documents {
		if ref.Kind == kind {
			list = append(list, row.Document)
		}
	}
	slices.SortFunc(list, func(a, b allocation.Document) int { return a.Ref().Compare(b.Ref()) })
	return list
}

// DocumentsThrough is the configuration number through which the owner has stored documents.
func (db *Database) DocumentsThrough() int64 { return db.tables.owner.documents }

// Untold is how many documents the coordinator has not told under the owner's history.
func (db *Database) Untold() int { return len(db.tables.untold()) }
