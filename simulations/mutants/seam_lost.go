package mutants

import (
	"context"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
	"tranche/simulations/internal/ownertwin"
)

const (
	regionsAt = coordinator.Root + "regions/"
	historyAt = coordinator.Root + "history"
)

// thawAtOnce begins a new history without a freeze: nobody waits for what the regions hold.
func thawAtOnce() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			if t.Puts[i].Key == historyAt {
				edit(&t.Puts[i], func(d *coordinator.StandingDocument) bool {
					frozen := d.Freeze != nil
					d.Freeze = nil
					return frozen
				})
			}
		}
		return s.Commit(ctx, t)
	}}
}

// hearNothingHeld ends a freeze once every region has called, and does not listen to what they hold.
func hearNothingHeld() func(serve fleet.Sync) fleet.Sync {
	return func(serve fleet.Sync) fleet.Sync {
		return func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			var heard []allocation.Statement
			for _, st := range call.Statements {
				var shares []allocation.ShareStatement
				for _, sh := range st.Shares {
					if sh.Held == nil {
						shares = append(shares, sh)
					}
				}
				if len(shares) == len(st.Shares) {
					heard = append(heard, st)
				}
			}
			call.Statements = heard
			return serve(ctx, call)
		}
	}
}

// regrantLost counts what an incarnation held as returned as soon as another one has taken its place: its database is gone,
// so nobody can spend it, or so it seems.
func regrantLost() storeSeam {
	now := map[string]string{} // incarnations by region
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			if p := t.Puts[i]; strings.HasPrefix(p.Key, regionsAt) {
				edit(&p, func(d *coordinator.RegionDocument) bool { now[d.Region] = d.Incarnation; return false })
			}
		}
		ledgersOf(&t, func(l *allocation.Ledger, _ bool) (changed bool) {
			for i := range l.Entries {
				for j := range l.Entries[i].Allocations {
					a := &l.Entries[i].Allocations[j]
					if current := now[a.Region]; !l.Template && current != "" && current != a.Incarnation && a.Held() > 0 {
						a.Returned, a.Target, changed = a.Granted, 0, true
					}
				}
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}

func (s *ownerSeam) Look(ctx context.Context, w regional.Writer) (regional.Look, error) {
	l, err := s.Owner.Look(ctx, w)
	if err == nil && s.looked != nil {
		s.looked(w.Mark(), &l)
	}
	return l, err
}

// waitForNobody gives all writers the name of the one that looks: there is nobody else to wait for.
func waitForNobody() ownerSeam {
	return ownerSeam{looked: func(own allocation.Mark, l *regional.Look) {
		for i := range l.Marks {
			l.Marks[i].Name = nameOf(own.Writer, l.Marks)
		}
	}}
}

func nameOf(writer string, marks []regional.WriterMark) string {
	for _, m := range marks {
		if m.Writer == writer {
			return m.Name
		}
	}
	return ""
}

// lostHistoryMutants are those of databases and of an etcd that went back.
func lostHistoryMutants() []Mutant {
	return []Mutant{
		inFleet("thaw-at-once", "an etcd that went back is granted from before the regions have stated what they hold", wentBack, storeSeams(thawAtOnce), 1, 2, 3, 4, 8),
		inFleet("hear-nothing-held", "a freeze ends without a word of what the regions hold", wentBack, arriveSeams(hearNothingHeld), 1, 2, 3, 4, 8),
		inFleet("regrant-lost", "what a lost incarnation held is granted again", startedOver, storeSeams(regrantLost), 2, 4),
		inFleet("go-on-with-what-was-lost", "a new incarnation goes on with what the database held before it was put back", startedOver, broken(ownertwin.Breaks{KeepHeld: true}), 1, 2, 3, 4, 8),
		inFleet("voucher-waits-for-nobody", "a node that the coordinator vouches for goes on at once, whatever another one alone knows", crashed, ownerSeams(waitForNobody), 2, 3, 6),
		inFleet("restore-unnoticed", "no mark is compared in the database, which was put back", startedOver, broken(ownertwin.Breaks{NoMark: true}), 1, 2, 3, 4, 6, 8, 12),
	}
}
