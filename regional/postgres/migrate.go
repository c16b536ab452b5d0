package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the session lock under which one node at a time migrates.
const migrationLock = 7_310_575_195_466_001

// migrate brings the schema to this program's version. Several nodes may call it at once: they take turns. It needs a
// direct connection, since its lock is the session's.
func migrate(ctx context.Context, config *pgx.ConnConfig) (err error) {
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := makeSchema(ctx, db); err != nil {
		return err
	}
	provider, err := migrator(db)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

func migrator(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName("tranche.migrations"), goose.WithSessionLocker(turnstile{}), goose.WithDisableGlobalRegistry(true))
}

// makeSchema makes the schema unless it is there. A role that may not create one can still use one that an operator made.
func makeSchema(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to migrate: %w", err)
	}
	defer conn.Close()
	if err := (turnstile{}).SessionLock(ctx, conn); err != nil {
		return err
	}
	defer func() { _ = (turnstile{}).SessionUnlock(context.WithoutCancel(ctx), conn) }() // else the session's end unlocks
	var there bool
	if err := conn.QueryRowContext(ctx, schemaExists).Scan(&there); err != nil {
		return fmt.Errorf("look for schema tranche: %w", err)
	}
	if there {
		return nil
	}
	if _, err := conn.ExecContext(ctx, createSchema); err != nil {
		return fmt.Errorf("create schema tranche (or let an operator create it for this role): %w", err)
	}
	return nil
}

// turnstile waits for the lock in the database, not by asking again and again.
type turnstile struct{}

func (turnstile) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, lockMigrations, int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for the migration lock: %w", err)
	}
	return nil
}

func (turnstile) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, unlockMigrations, int64(migrationLock)); err != nil {
		return fmt.Errorf("release the migration lock: %w", err)
	}
	return nil
}
