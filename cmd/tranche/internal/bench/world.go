package bench

import (
	"context"
	"time"

	"tranche/allocation"
)

// maker makes what one client sends.
type maker func(caller int) func(id string) allocation.Request

// one is a maker for clients that all send the same.
func one(request func(id string) allocation.Request) maker {
	return func(int) func(string) allocation.Request { return request }
}

// counted adds what clients were told to the books.
func (w *world) counted(t tally) tally {
	w.told.merge(&t)
	return t
}

// closedArm is so many callers in this process, spread over the nodes, each of which asks again as soon as it was answered.
func (w *world) closedArm(b *bench, name string, callers int, nodes []*node, make maker) arm {
	return arm{name, "each asks again as soon as it was answered", func(ctx context.Context, d time.Duration) (tally, error) {
		requests, transactions := batches(nodes)
		t := closed(ctx, d, callers, !b.Random, func(i int) client { return inProcess(nodes[i%len(nodes)], patience, make(i)) })
		after, afterTransactions := batches(nodes)
		t.batch = (after - requests) / max(1, afterTransactions-transactions)
		if callers > 1 {
			w.batch = t.batch
		}
		return w.counted(t), nil
	}}
}

func batches(nodes []*node) (requests, transactions float64) {
	for _, n := range nodes {
		r, t := n.batches()
		requests, transactions = requests+r, transactions+t
	}
	return requests, transactions
}

// settleBooks compares what the clients of the node were told with its database.
func (w *world) settleBooks(ctx context.Context, result *Case, of string) error {
	each := max(1, w.each)
	return w.settle(ctx, result, of, each, func(told, open, spent, ids int64) bool { return agrees(told, open, each, spent, ids) })
}

func (w *world) settle(ctx context.Context, result *Case, of string, each int64, agree func(told, open, spent, ids int64) bool) error {
	spent, reserved, err := w.look.Spent(ctx, w.budgets...)
	if err != nil {
		return err
	}
	ids, err := w.look.IDs(ctx)
	if err != nil {
		return err
	}
	told, open := w.told.counts[admitted], w.told.counts[unknown]+w.told.counts[failed]
	result.Books = append(result.Books, Books{
		Of: of, Told: told * each, Spent: spent + reserved, IDs: ids, Unknowns: open, Agree: agree(told, open, spent+reserved, ids),
	})
	return nil
}

// agrees says whether so many admissions, each charged so many units, and at most so many more whose truth nobody knows,
// are what the counters and the ids say.
func agrees(told, open, each, spent, ids int64) bool {
	return told <= ids && ids <= told+open && told*each <= spent && spent <= (told+open)*each
}
