package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// Seal ends the incarnation for good and reads what it proves, in one transaction. It needs no node and no writer.
//
// The exclusive switch lock lets the batches that run end first. Share rows are locked before usage rows, and a usage row
// is made under its share row's lock, so no period can appear behind a seal: it is made sealed (invariant 9).
func (s *Store) Seal(ctx context.Context, incarnation string) (allocation.Seal, error) {
	t, seal, err := s.sealing(ctx, incarnation)
	if err != nil {
		return allocation.Seal{}, fmt.Errorf("seal the owner: %w", err)
	}
	if err := t.commitWithout(ctx, &pgx.Batch{}); err != nil {
		return allocation.Seal{}, fmt.Errorf("seal the owner: %w", err) // what is not known to be durable proves nothing
	}
	return seal, nil
}

// sealing seals and reads, and leaves the transaction open, to be committed or abandoned. After an error there is none.
func (s *Store) sealing(ctx context.Context, incarnation string) (*transaction, allocation.Seal, error) {
	var seal allocation.Seal
	var lost bool
	var read shareReader
	var usage []allocation.Usage
	b := &pgx.Batch{}
	s.queueBegin(b, switchExclusive)
	b.Queue(lockAllShares)
	b.Queue(lockAllUsage)
	b.Queue(sealShares)
	b.Queue(sealUsage)
	b.Queue(sealOwner)
	b.Queue(notHandedOver)
	b.Queue(selectSealing).QueryRow(func(row pgx.Row) error { return row.Scan(&seal.Region, &seal.Incarnation, &lost) })
	b.Queue(selectHome).QueryRow(func(row pgx.Row) error {
		return row.Scan(&seal.Home.System, &seal.Home.Database, &seal.Home.Timeline)
	})
	b.Queue(selectAllMarks).Query(func(rows pgx.Rows) error { return eachSealedMark(rows, &seal) })
	b.Queue(selectSealedShares).Query(read.shares)
	b.Queue(selectSealedEntries).Query(read.entries)
	b.Queue(selectSealedUsage).Query(func(rows pgx.Rows) (err error) {
		usage, err = listUsage(rows)
		return err
	})
	t, err := s.start(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: the owner's row is missing", regional.ErrNotReady)
	}
	if err != nil {
		return nil, seal, err
	}
	if err := sealable(seal, incarnation, lost); err != nil {
		t.abandon()
		return nil, seal, err
	}
	used := map[allocation.ShareRef][]allocation.Usage{}
	for _, u := range usage {
		ref := allocation.ShareRef{Budget: u.Budget, Term: u.Term}
		used[ref] = append(used[ref], u)
	}
	for _, ref := range read.order {
		seal.Shares = append(seal.Shares, allocation.SealedShare{Share: *read.found[ref], Used: used[ref]})
	}
	return t, seal, nil
}

func sealable(seal allocation.Seal, incarnation string, lost bool) error {
	switch {
	case seal.Incarnation == "":
		return errors.New("it has no incarnation: there is nothing to seal")
	case incarnation != "" && incarnation != seal.Incarnation:
		return fmt.Errorf("its incarnation is %s, not %s", seal.Incarnation, incarnation)
	case lost:
		return fmt.Errorf("%w: what it says is no proof", regional.ErrHistoryLost)
	}
	return nil
}

func eachSealedMark(rows pgx.Rows, seal *allocation.Seal) error {
	for rows.Next() {
		m, err := scanMark(rows)
		if err != nil {
			return err
		}
		seal.Marks = append(seal.Marks, m.Mark)
		if m.Ended {
			seal.Ended = append(seal.Ended, m.Writer)
		}
	}
	return rows.Err()
}
