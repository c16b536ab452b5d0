package mutants

import (
	"context"

	"tranche/allocation"
	"tranche/regional"
)

// The mutants here answer from what was true once. Nothing that they commit is wrong: only who holds every answer against
// the states between question and answer can see it.

// replayFromMemory replays ids in the state in which the node first saw them.
func replayFromMemory() ownerSeam {
	first := map[allocation.IDKey]allocation.State{}
	return ownerSeam{seen: func(want regional.Want, seen *regional.Seen) {
		of := map[allocation.IDKey]bool{}
		for _, k := range want.OfIDs {
			of[k] = true
		}
		for k, a := range seen.IDs {
			if was, known := first[k]; known && !of[k] && len(a.Lines) > 0 {
				a.State = was
			} else if !known {
				first[k] = a.State
			}
		}
	}}
}

// refuseByOldRow shows a row that was used up once more as it was then, after permits came back.
func refuseByOldRow() ownerSeam {
	dry := map[allocation.UsageKey]allocation.Usage{}
	return ownerSeam{seen: func(want regional.Want, seen *regional.Seen) {
		if len(want.OfIDs) > 0 {
			return
		}
		for k, u := range seen.Usage {
			was, known := dry[k]
			switch free := min(u.Granted-u.Returned, u.Target) - u.Spent - u.Reserved; {
			case free == 0:
				dry[k] = *u
			case known:
				*u = was
				delete(dry, k)
			}
		}
	}}
}

// tellOldRemainder records with an admission what remained before it.
func tellOldRemainder() ownerSeam {
	return ownerSeam{commit: func(ctx context.Context, _ regional.Writer, b regional.Batch, writes regional.Writes) error {
		for _, a := range writes.Inserted {
			for i := range a.Lines {
				a.Lines[i].Remaining += a.Lines[i].Requested
			}
		}
		return b.Commit(ctx, writes)
	}}
}

// ceilingTooSoon forgets what others hold, so that a share that is used up passes for the whole budget.
func ceilingTooSoon() ownerSeam {
	return ownerSeam{loaded: func(l *regional.Loaded) {
		for i := range l.Elsewhere {
			e := &l.Elsewhere[i]
			e.Unallocated, e.Spendable, e.Reserved, e.Stranded = 0, 0, 0, 0
		}
	}}
}

// elsewhereOfOldLimit takes what was counted under another limit for what is left under the present one.
func elsewhereOfOldLimit() syncFunc {
	type key struct{ region, budget string }
	last := map[key]allocation.Elsewhere{}
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		answer, err := c.Sync(ctx, call)
		for i, e := range answer.Elsewhere {
			k := key{call.Region, e.Budget}
			if was, known := last[k]; known && was.Period == e.Period && was.Limit < e.Limit {
				was.Limit, was.Generation = e.Limit, e.Generation
				answer.Elsewhere[i] = was
				continue
			}
			last[k] = e
		}
		return answer, err
	}
}

// commitThenRefuse commits, and says that nothing was committed.
func commitThenRefuse() ownerSeam {
	commits := 0
	return ownerSeam{commit: func(ctx context.Context, _ regional.Writer, b regional.Batch, writes regional.Writes) error {
		err := b.Commit(ctx, writes)
		if commits++; err == nil && commits%5 == 0 && len(writes.Inserted) > 0 {
			return regional.ErrNotReady
		}
		return err
	}}
}
