package ownertwin

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/world"
)

// Copy starts a database on another server that holds what is committed here now: a dump that was restored. Its home is its
// own.
func (db *Database) Copy(w *world.World, name string) *Database {
	c := db.Clone(w, name)
	c.home = allocation.Home{System: fmt.Sprint(8_000_000_000 + c.random.Int64N(1_000_000_000)), Database: 16385, Timeline: 1}
	return c
}

// Handover is how a handover stands in the database.
func (db *Database) Handover() regional.Handover { return db.tables.owner.handover }

// Marks are those of all writers, as they stand, and the writers among them that ended.
func (db *Database) Marks() (marks []allocation.Mark, ended []string) {
	for _, id := range slices.Sorted(maps.Keys(db.tables.writers)) {
		w := db.tables.writers[id]
		if marks = append(marks, w.mark); w.ended {
			ended = append(ended, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(db.tables.ended)) {
		marks, ended = append(marks, db.tables.ended[id]), append(ended, id)
	}
	return marks, ended
}

// Lacks names the tables in which a copy differs from the database that it was made of, as `tranche regions handover`
// compares them: turns aside, which are a habit.
func (db *Database) Lacks(copy *Database) (tables []string) {
	a, b := db.tables, copy.tables
	if a.owner.handover.ID != b.owner.handover.ID {
		tables = append(tables, "it was copied before the owner stopped")
	}
	ours, theirs := a.owner, b.owner
	ours.handover, theirs.handover = regional.Handover{}, regional.Handover{}
	for _, t := range []struct {
		name       string
		ours, copy any
	}{
		{"owner", ours, theirs},
		{"former", a.former, b.former},
		{"writers", a.writers, b.writers},
		{"ended writers", a.ended, b.ended},
		{"budgets", a.budgets, b.budgets},
		{"documents", a.documents, b.documents},
		{"shares", a.shares, b.shares},
		{"usage", a.usage, b.usage},
		{"shards", a.shards, b.shards},
		{"statements", a.statements, b.statements},
		{"admission ids", a.ids, b.ids},
		{"tables of ids", a.idTables, b.idTables},
	} {
		if !reflect.DeepEqual(t.ours, t.copy) {
			tables = append(tables, t.name)
		}
	}
	return tables
}
