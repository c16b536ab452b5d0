package mutants

import (
	"context"
	"errors"
	"math"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// ownerSeam stands between a node and its owner's database.
type ownerSeam struct {
	regional.Owner
	seen   func(want regional.Want, seen *regional.Seen)                                                // changes what a batch found
	loaded func(l *regional.Loaded)                                                                     // changes what was loaded of budgets and terms
	commit func(ctx context.Context, w regional.Writer, b regional.Batch, writes regional.Writes) error // in place of the commit
	tidy   func(monotonic func(int) allocation.Duration) func(int) allocation.Duration                  // changes how long a table is known to be closed
	close  func(upTo allocation.Instant) allocation.Instant                                             // changes up to where periods are closed
	looked func(own allocation.Mark, l *regional.Look)                                                  // changes what was seen of the other writers
}

func ownerSeams(make func() ownerSeam) func() fleet.Seams {
	return func() fleet.Seams {
		return fleet.Seams{Owner: func(_ string, o regional.Owner) regional.Owner {
			s := make()
			s.Owner = o
			return &s
		}}
	}
}

func (s *ownerSeam) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	b, err := s.Owner.Begin(ctx, w, want)
	if err != nil {
		return nil, err
	}
	if s.loaded != nil {
		s.loaded(&b.Seen().Loaded)
	}
	if s.seen != nil {
		s.seen(want, b.Seen())
	}
	return &batchSeam{Batch: b, owner: s, writer: w}, nil
}

func (s *ownerSeam) Load(ctx context.Context, after int64) (regional.Loaded, error) {
	l, err := s.Owner.Load(ctx, after)
	if err == nil && s.loaded != nil {
		s.loaded(&l)
	}
	return l, err
}

func (s *ownerSeam) Tidy(ctx context.Context, w regional.Writer, retention allocation.Duration, monotonic func(int) allocation.Duration) (string, error) {
	if s.tidy != nil {
		monotonic = s.tidy(monotonic)
	}
	return s.Owner.Tidy(ctx, w, retention, monotonic)
}

func (s *ownerSeam) Close(ctx context.Context, w regional.Writer, upTo allocation.Instant, grace allocation.Duration) (allocation.Instant, error) {
	if s.close != nil {
		upTo = s.close(upTo)
	}
	return s.Owner.Close(ctx, w, upTo, grace)
}

type batchSeam struct {
	regional.Batch
	owner  *ownerSeam
	writer regional.Writer
}

func (b *batchSeam) Commit(ctx context.Context, writes regional.Writes) error {
	if b.owner.commit != nil {
		return b.owner.commit(ctx, b.writer, b.Batch, writes)
	}
	return b.Batch.Commit(ctx, writes)
}

// chargeOneOfTwo forgets the last usage row of every batch that charges several.
func chargeOneOfTwo() ownerSeam {
	return ownerSeam{commit: func(ctx context.Context, _ regional.Writer, b regional.Batch, writes regional.Writes) error {
		if n := len(writes.Usage); n > 1 && len(writes.Inserted) > 0 {
			writes.Usage = writes.Usage[:n-1]
		}
		return b.Commit(ctx, writes)
	}}
}

// chargeNothing commits ids without their charges.
func chargeNothing() ownerSeam {
	return ownerSeam{commit: func(ctx context.Context, _ regional.Writer, b regional.Batch, writes regional.Writes) error {
		writes.Usage = nil
		return b.Commit(ctx, writes)
	}}
}

// admitUnknown takes every lost answer to a commit for a yes, once it was found out that the transaction is over.
func admitUnknown() ownerSeam {
	return ownerSeam{commit: func(ctx context.Context, w regional.Writer, b regional.Batch, writes regional.Writes) error {
		err := b.Commit(ctx, writes)
		for errors.Is(err, regional.ErrUnknownOutcome) {
			if _, unresolved := w.Resolve(ctx); unresolved == nil {
				return nil
			} else if errors.Is(unresolved, regional.ErrHistoryLost) || ctx.Err() != nil {
				return err
			}
		}
		return err
	}}
}

// replayReleased shows reservations that were given back as if they still stood, to those who ask for an admission.
func replayReleased() ownerSeam {
	return ownerSeam{seen: func(want regional.Want, seen *regional.Seen) {
		of := map[allocation.IDKey]bool{}
		for _, k := range want.OfIDs {
			of[k] = true
		}
		for k, a := range seen.IDs {
			if !of[k] && len(a.Lines) > 0 && (a.State == allocation.StateReleased || a.State == allocation.StateLapsedReleased) {
				a.State = allocation.StateReserved
			}
		}
	}}
}

// refuseFromMemory looks no id up where a share is used up: it refuses at once.
func refuseFromMemory() ownerSeam {
	return ownerSeam{seen: func(want regional.Want, seen *regional.Seen) {
		if len(want.OfIDs) > 0 {
			return
		}
		for _, u := range seen.Usage {
			if u.Granted-u.Returned-u.Spent-u.Reserved < 2 {
				clear(seen.IDs)
			}
		}
	}}
}

// forgetRelease does not store the release of an id that is unknown.
func forgetRelease() ownerSeam {
	return ownerSeam{commit: func(ctx context.Context, _ regional.Writer, b regional.Batch, writes regional.Writes) error {
		var kept []*allocation.Admission
		for _, a := range writes.Inserted {
			if len(a.Lines) > 0 {
				kept = append(kept, a)
			}
		}
		writes.Inserted = kept
		return b.Commit(ctx, writes)
	}}
}

// oldConfiguration does not read in a batch what changed of budgets and terms: a node hears of it when it next loads.
func oldConfiguration() ownerSeam {
	return ownerSeam{seen: func(want regional.Want, seen *regional.Seen) {
		seen.Changes, seen.Budgets, seen.Terms, seen.Gone = want.Changes, nil, nil, nil
	}}
}

// emptyByOneClock trusts the database's clock alone when it empties a table of ids.
func emptyByOneClock() ownerSeam {
	return ownerSeam{tidy: func(func(int) allocation.Duration) func(int) allocation.Duration {
		return func(int) allocation.Duration { return allocation.Duration(400 * 24 * time.Hour / time.Second) }
	}}
}

// closeByOwnClock does not ask the coordinator's clock when it closes periods.
func closeByOwnClock() ownerSeam {
	return ownerSeam{close: func(allocation.Instant) allocation.Instant { return math.MaxInt32 }}
}

// openClosed decides as if no period were closed.
func openClosed() ownerSeam {
	return ownerSeam{loaded: func(l *regional.Loaded) { l.ClosedBefore = 0 }}
}
