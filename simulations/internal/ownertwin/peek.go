package ownertwin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/regional"
)

// Peek implements regional.Owner.
func (o *Owner) Peek(ctx context.Context, want regional.Want) (regional.Seen, error) {
	if err := checkWant(want); err != nil {
		return regional.Seen{}, err
	}
	seen, err := read(ctx, o, "peek", func(db *Database, t *tables) (regional.Seen, error) {
		b := &batch{owner: o, seen: newSeen()}
		x := db.begin(o.process, "peek")
		defer x.end(errAbandoned)
		extra := map[instances]int64{}
		for _, u := range want.Usage {
			row, there := t.usage[u.UsageKey]
			if !there && u.Make {
				made, fits, ok := t.wouldMake(u, extra)
				if row, there = made, ok && fits; ok && !fits {
					b.seen.Full[u.UsageKey] = true
				}
			}
			if there {
				b.seen.Usage[u.UsageKey] = &row
			}
		}
		for _, id := range want.OfIDs {
			if a, _ := t.find(id); a != nil {
				for _, line := range a.Lines {
					if row, there := t.usage[line.UsageKey]; there {
						b.seen.Usage[line.UsageKey] = &row
					}
				}
			}
		}
		b.lookUp(x, want.IDs)
		b.seen.Loaded = t.loaded(want.Changes)
		b.seen.Lineage = db.lineage()
		b.seen.Now, b.seen.Unsafe = db.Clock().Micros(), db.Unsafe
		return b.seen, nil
	})
	if err != nil {
		return regional.Seen{}, fmt.Errorf("read for a check: %w", err)
	}
	seen.Home = o.home
	checkBehind(&seen)
	return seen, nil
}

// checkBehind drops the lists of a node that is too far behind.
func checkBehind(seen *regional.Seen) {
	if len(seen.Budgets)+len(seen.Terms)+len(seen.Gone)+len(seen.Documents) > regional.MaxChanges {
		seen.Behind = true
		seen.Budgets, seen.Terms, seen.Gone, seen.Documents = nil, nil, nil, nil
	}
}

// loaded is the owner's row, and what changed of budgets and terms after a change number.
func (t *tables) loaded(after int64) regional.Loaded {
	o := t.owner
	l := regional.Loaded{
		Region: o.region, Deployment: o.deployment, Incarnation: o.incarnation, History: o.history, Changes: o.changes,
		Config: o.config, ClosedBefore: o.closedBefore, Stopped: o.stopped, Detail: o.detail, Revision: o.revision, ObservedAt: o.observedAt,
		Lost: o.lost, Handover: o.handover, DocumentsThrough: o.documents,
	}
	l.Stopped, l.Detail = o.handover.Stopped(l.Stopped, l.Detail)
	if o.changes <= after {
		return l
	}
	for _, b := range t.budgets {
		if b.change > after {
			l.Budgets = append(l.Budgets, b.ConfiguredBudget)
		}
	}
	slices.SortFunc(l.Budgets, func(a, b allocation.ConfiguredBudget) int { return strings.Compare(a.Budget.Name, b.Budget.Name) })
	l.Documents = t.changedDocuments(after)
	for ref, s := range t.shares {
		switch {
		case s.change <= after:
		case s.gone:
			l.Gone = append(l.Gone, ref)
		default:
			l.Terms = append(l.Terms, allocation.Term{Budget: s.Budget, Template: s.Template, Policy: s.Policy, Regions: s.Regions, Periods: s.Periods})
		}
	}
	slices.SortFunc(l.Gone, compareRefs)
	slices.SortFunc(l.Terms, func(a, b allocation.Term) int {
		return compareRefs(allocation.ShareRef{Budget: a.Budget, Term: a.Periods.Start()}, allocation.ShareRef{Budget: b.Budget, Term: b.Periods.Start()})
	})
	return l
}
