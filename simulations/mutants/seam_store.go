package mutants

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// Prefixes of the coordinator's layout; see coordinator/keys.go.
const (
	budgetsAt = coordinator.Root + "budgets/"
	ledgersAt = coordinator.Root + "ledgers/"
	marksAt   = coordinator.Root + "marks/"

	contactsAt = coordinator.Root + "contacts/"
)

// storeSeam stands between a coordinator and etcd.
type storeSeam struct {
	coordinator.Store
	commit func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error)
	read   func(i *coordinator.Item) // changes an item as the coordinator reads it
}

func storeSeams(make func() storeSeam) func() fleet.Seams {
	return func() fleet.Seams {
		shared := make()
		return fleet.Seams{Store: func(_ string, s coordinator.Store) coordinator.Store {
			seam := shared
			seam.Store = s
			return &seam
		}}
	}
}

func (s *storeSeam) Commit(ctx context.Context, t coordinator.Txn) (coordinator.TxnResult, error) {
	if s.commit == nil {
		return s.Store.Commit(ctx, t)
	}
	t.Compares, t.Puts, t.Deletes = slices.Clone(t.Compares), slices.Clone(t.Puts), slices.Clone(t.Deletes)
	r, err := s.commit(ctx, s.Store, t)
	for i := range r.Current {
		s.reads(&r.Current[i])
	}
	return r, err
}

func (s *storeSeam) reads(i *coordinator.Item) {
	if s.read != nil {
		s.read(i)
	}
}

func (s *storeSeam) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	items, revision, err := s.Store.Range(ctx, prefix)
	for i := range items {
		s.reads(&items[i])
	}
	return items, revision, err
}

func (s *storeSeam) Watch(ctx context.Context, prefix string, after int64, deliver func(events []coordinator.Event, revision int64)) error {
	return s.Store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
		events = slices.Clone(events)
		for i := range events {
			if !events[i].Deleted {
				s.reads(&events[i].Item)
			}
		}
		deliver(events, revision)
	})
}

// edit changes a document in an item; false leaves it as it is.
func edit[T any](item *coordinator.Item, change func(d *T) bool) bool {
	var d T
	if json.Unmarshal(item.Value, &d) != nil || !change(&d) {
		return false
	}
	item.Value, _ = json.Marshal(d)
	return true
}

// puts runs change over every ledger that a transaction writes; made says that it is a new one.
func ledgersOf(t *coordinator.Txn, change func(l *allocation.Ledger, made bool) bool) {
	for i := range t.Puts {
		if p := &t.Puts[i]; strings.HasPrefix(p.Key, ledgersAt) {
			made := slices.ContainsFunc(t.Compares, func(c coordinator.Item) bool { return c.Key == p.Key && c.Revision == 0 })
			edit(p, func(l *allocation.Ledger) bool { return change(l, made) })
		}
	}
}

// reopenClosed writes a closed ledger once more with the next transaction.
func reopenClosed() storeSeam {
	var gone []coordinator.Item
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		again := gone
		t.Puts = append(t.Puts, again...)
		r, err := s.Commit(ctx, t)
		if err != nil || !r.Committed {
			return r, err
		}
		gone = gone[len(again):]
		for _, key := range t.Deletes {
			for _, c := range t.Compares {
				if c.Key == key && strings.HasPrefix(key, ledgersAt) {
					gone = append(gone, coordinator.Item{Key: c.Key, Value: c.Value})
				}
			}
		}
		return r, nil
	}}
}

// comparesAsRead has a transaction compare what truly stood in the store, where a seam changed what was read.
func comparesAsRead(was map[string][]byte) func(context.Context, coordinator.Store, coordinator.Txn) (coordinator.TxnResult, error) {
	return func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Compares {
			if value, changed := was[string(t.Compares[i].Value)]; changed {
				t.Compares[i].Value = value
			}
		}
		return s.Commit(ctx, t)
	}
}

// openAnew forgets how far the terms of a deleted budget were opened, as if its document had gone with it.
func openAnew() storeSeam {
	was := map[string][]byte{}
	return storeSeam{
		read: func(i *coordinator.Item) {
			if !strings.HasPrefix(i.Key, budgetsAt) {
				return
			}
			value := i.Value
			if edit(i, func(d *coordinator.BudgetDocument) bool {
				changed := d.Deleted && d.OpenedThrough != 0
				d.OpenedThrough = 0
				return changed
			}) {
				was[string(i.Value)] = value
			}
		},
		commit: comparesAsRead(was),
	}
}

// recomputeStart lets a new term begin where the budget's window says that the period of its first instant begins, not
// where the term before it ended.
func recomputeStart() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			p := &t.Puts[i]
			if !strings.HasPrefix(p.Key, ledgersAt) {
				continue
			}
			edit(p, func(l *allocation.Ledger) bool {
				every := everyOf(t, l.Budget)
				if len(l.Periods.Instants) != 2 || every == 0 || l.Periods.Len() != 1 {
					return false
				}
				start, end := l.Periods.Start(), l.Periods.End()
				l.Periods.Instants = []allocation.Instant{start - start%every, end}
				return start%every != 0
			})
		}
		return s.Commit(ctx, t)
	}}
}

// everyOf is the window of a budget that the transaction writes too, in seconds; 0: it has no such window.
func everyOf(t coordinator.Txn, name string) (every allocation.Instant) {
	for _, p := range t.Puts {
		if !strings.HasPrefix(p.Key, budgetsAt) {
			continue
		}
		var d coordinator.BudgetDocument
		if json.Unmarshal(p.Value, &d) == nil && d.Budget.Name == name {
			every = allocation.Instant(d.Budget.Window.Every)
		}
	}
	return every
}

// takeFromGiver counts in the ledger as returned what is held above a target, without waiting for the giver.
func takeFromGiver() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		ledgersOf(&t, func(l *allocation.Ledger, _ bool) (changed bool) {
			for i := range l.Entries {
				for j := range l.Entries[i].Allocations {
					if a := &l.Entries[i].Allocations[j]; !l.Template && a.Held() > a.Target {
						a.Returned, changed = a.Granted-a.Target, true
					}
				}
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}

// grantTwice grants what somebody lacks although nothing is unallocated: the taker gets before the giver has given.
func grantAhead() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		ledgersOf(&t, func(l *allocation.Ledger, _ bool) (changed bool) {
			for i := range l.Entries {
				for j := range l.Entries[i].Allocations {
					if a := &l.Entries[i].Allocations[j]; a.Held() < a.Target {
						a.Granted, changed = a.Returned+a.Target, true
					}
				}
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}

// compareMarkOnly writes without comparing what a change rests on.
func compareMarkOnly() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		t.Compares = slices.DeleteFunc(t.Compares, func(c coordinator.Item) bool { return !strings.HasPrefix(c.Key, marksAt) })
		return s.Commit(ctx, t)
	}}
}

func sortedRefs[V any](m map[allocation.ShareRef]V) []allocation.ShareRef {
	return slices.SortedFunc(maps.Keys(m), func(a, b allocation.ShareRef) int {
		return cmp.Or(strings.Compare(a.Budget, b.Budget), cmp.Compare(a.Term, b.Term))
	})
}
