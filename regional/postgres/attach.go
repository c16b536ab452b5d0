package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/allocation"
	"tranche/regional"
)

// Attach opens a database that is a region's owner already, for a tool that is no node: it makes nothing and migrates
// nothing, so that a wrong URL changes no other database.
//
// It fails with ErrNotReady when the database is no owner, is another region's or deployment's, or has another format.
func Attach(ctx context.Context, cfg Config) (*Store, regional.Loaded, error) {
	cfg = cfg.withDefaults()
	config, err := poolConfig(cfg.URL, cfg.MaxConns)
	if err != nil {
		return nil, regional.Loaded{}, fmt.Errorf("read the database's URL: %w", err)
	}
	if err := checkServer(ctx, config.ConnConfig, cfg.MaxConns); err != nil {
		return nil, regional.Loaded{}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, regional.Loaded{}, fmt.Errorf("connect to the owner's database: %w", err)
	}
	s := &Store{cfg: cfg, pool: pool}
	loaded, err := s.Load(ctx, noChanges)
	if err != nil {
		pool.Close()
		if errors.Is(err, regional.ErrNotReady) {
			err = fmt.Errorf("the database is not the owner of region %s: %w", cfg.Region, err)
		}
		return nil, regional.Loaded{}, err
	}
	return s, loaded, nil
}

// Holdings is what a seal would prove now. It seals and reads as Seal does, and takes all of it back: batches wait for it
// meanwhile, and nothing is changed.
func (s *Store) Holdings(ctx context.Context, incarnation string) (allocation.Seal, error) {
	t, seal, err := s.sealing(ctx, incarnation)
	if err != nil {
		return allocation.Seal{}, fmt.Errorf("read what the owner holds: %w", err)
	}
	t.abandon()
	return seal, nil
}
