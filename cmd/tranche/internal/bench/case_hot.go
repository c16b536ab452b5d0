package bench

import (
	"context"
	"time"

	"tranche/allocation"
	"tranche/regional/postgres/baseline"
)

// Of the baselines.
const (
	perRequestAtOnce = 16 // transactions at once; on one row more are no faster
	largeBatch       = 10_000
)

var acme = allocation.Labels{"tenant": "acme"}

// hot is one budget that all callers spend from, beside what the database can do with the same rows.
func hot(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close() //nolint:errcheck // nothing is kept
	base, err := w.baselines(ctx)
	if err != nil {
		return err
	}
	many := w.closedArm(b, "1024 callers", 1024, w.nodes, one(spend(acme)))
	all, err := b.alternate(ctx, result,
		w.closedArm(b, "1 caller", 1, w.nodes, one(spend(acme))), base.bareCommit(b),
		w.closedArm(b, "256 callers", 256, w.nodes, one(spend(acme))), base.perRequest(b),
		many, base.bulk(b, "bulk", 0), base.bulk(b, "bulk 10000", largeBatch),
	)
	if err != nil {
		return err
	}
	result.atLeast("256 callers against one transaction a request", ratio(all["256 callers"].rates(), all["per request"].rates()), 30)
	result.atLeast("1024 callers against bulk in batches of the same size", ratio(all["1024 callers"].rates(), all["bulk"].rates()), 0.8)
	result.atLeast("1024 callers against the best bulk", ratio(all["1024 callers"].rates(), greater(all["bulk"].rates(), all["bulk 10000"].rates())), 0.6)
	result.atMost("one caller's median against the bare commit's", ratio(all["1 caller"].medians(), all["bare commit"].medians()), "", 1.5)
	return w.half(ctx, b, result, base, median(all["1024 callers"].rates()))
}

// half is the open loop at half of the best rate, or at the rate that was asked for, beside the bare commit.
func (w *world) half(ctx context.Context, b *bench, result *Case, base *baselines, best float64) error {
	rate := b.Rate
	if rate == 0 {
		rate = best / 2
	}
	name := "open loop, " + whole(rate) + " a second"
	all, err := b.alternate(ctx, result, base.bareCommit(b), arm{name, "requests arrive at that rate, whatever becomes of those before", func(ctx context.Context, d time.Duration) (tally, error) {
		return w.counted(open(ctx, d, 1024, rate, !b.Random, func(int) client { return inProcess(w.nodes[0], patience, spend(acme)) })), nil
	}})
	if err != nil {
		return err
	}
	bound := ratio(all[name].tails(), all["bare commit"].medians())
	if b.Rate == 0 {
		result.atMost("at half of the best rate, p99 against the bare commit's median", bound, "", 10)
	} else {
		result.shown("at "+whole(rate)+" a second, p99 against the bare commit's median", bound, "")
	}
	result.shown("the bare commit's own p99 against its median", ratio(all["bare commit"].tails(), all["bare commit"].medians()), "")
	if err := w.settleBooks(ctx, result, "the node"); err != nil {
		return err
	}
	return base.settleBooks(ctx, result)
}

func greater(a, b []float64) (out []float64) {
	for i := range min(len(a), len(b)) {
		out = append(out, max(a[i], b[i]))
	}
	return out
}

// baselines are what the database can do with the same rows.
type baselines struct {
	world  *world
	tables *baseline.Tables
	told   int64 // rows that were written
}

// baselines makes the tables, once something was admitted.
func (w *world) baselines(ctx context.Context) (*baselines, error) {
	w.counted(closed(ctx, 50*time.Millisecond, 4, true, func(int) client { return inProcess(w.nodes[0], patience, spend(acme)) }))
	tables, err := baseline.Open(ctx, w.url, perRequestAtOnce)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, tables.Close)
	return &baselines{world: w, tables: tables}, nil
}

func (s *baselines) perRequest(b *bench) arm {
	return arm{"per request", "a transaction for each: insert the id, raise the counter if it fits; 16 at once", func(ctx context.Context, d time.Duration) (tally, error) {
		t := closed(ctx, d, perRequestAtOnce, !b.Random, func(int) client {
			return func(ctx context.Context, id string) outcome {
				switch ok, err := s.tables.PerRequest(ctx, id); {
				case err != nil:
					return failed
				case ok:
					return admitted
				}
				return refused
			}
		})
		s.told += t.counts[admitted]
		return t, nil
	}}
}

func (s *baselines) bareCommit(b *bench) arm {
	return arm{"bare commit", "begin and lock a row; insert a row and commit; one after the other", func(ctx context.Context, d time.Duration) (tally, error) {
		return closed(ctx, d, 1, !b.Random, func(int) client {
			return func(ctx context.Context, id string) outcome {
				if err := s.tables.BareCommit(ctx, id); err != nil {
					return failed
				}
				return admitted
			}
		}), nil
	}}
}

// bulk writes batches one after the other; of size 0, as large as the node's last ones.
func (s *baselines) bulk(b *bench, name string, size int) arm {
	return arm{name, "the same rows by COPY and one counter, a batch after the other on one connection", func(ctx context.Context, d time.Duration) (tally, error) {
		n := size
		if n == 0 {
			n = max(1, int(s.world.batch))
		}
		var t tally
		names, list := newIDs(!b.Random), make([]string, n)
		began := time.Now()
		for end := began.Add(d); time.Now().Before(end) && ctx.Err() == nil; {
			from := time.Now()
			for i := range list {
				list[i] = names.next()
			}
			if err := s.tables.Bulk(ctx, list); err != nil {
				return t, err
			}
			t.counts[admitted] += int64(n)
			t.latency.add(time.Since(from))
		}
		t.took, t.batch = time.Since(began), float64(n)
		s.told += t.counts[admitted]
		return t, nil
	}}
}

func (s *baselines) settleBooks(ctx context.Context, result *Case) error {
	spent, ids, err := s.tables.Counted(ctx)
	if err != nil {
		return err
	}
	result.Books = append(result.Books, Books{Of: "the baselines", Told: s.told, Spent: spent, IDs: ids, Agree: spent == s.told && ids == s.told})
	return nil
}
