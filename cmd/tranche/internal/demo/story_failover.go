package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// The figures of the story.
const (
	wide       = 500 // the limit
	wideA      = wide * 3 / 5
	wideB      = wide - wideA
	crashed    = 200 // requests to us-east, in whose middle its Postgres is killed
	crashAt    = 20  // answers
	moved      = 50  // permits that go to eu-west in the part of etcd's history that is lost, and of the move etcd then knows nothing
	intoMoved  = 20  // of which eu-west spends so many before etcd goes back
	whileApart = 10  // and so many while all is frozen
	backA      = wideA - moved + backs
	backB      = wideB + moved - backs
	backs      = moved - intoMoved - whileApart // what eu-west has not spent of it goes back
	comesBack  = 30 * time.Second
)

// failoverStory crashes a region's database, and then takes etcd back.
func (w *world) failoverStory(ctx context.Context) (totals, error) {
	window, period := calm(time.Now())
	if _, err := w.declare(ctx, budgetRequests, wide, window, 3, 2); err != nil {
		return totals{}, err
	}
	both, err := w.pair(budgetRequests)
	if err != nil {
		return totals{}, err
	}
	if err := w.crashPostgres(ctx, both[0]); err != nil {
		return totals{}, err
	}
	copied := filepath.Join(w.Dir, "etcd")
	if err := w.KeepEtcd(ctx, copied); err != nil {
		return totals{}, err
	}
	if err := w.moveOn(ctx, period, both); err != nil {
		return totals{}, err
	}
	if err := w.takeBack(ctx, copied, period, both[1]); err != nil {
		return totals{}, err
	}
	if err := w.thaw(ctx, both); err != nil {
		return totals{}, err
	}
	if err := w.spendTheRest(ctx, period, both); err != nil {
		return totals{}, err
	}
	return w.endStory(ctx, 0)
}

// crashPostgres kills the database in the middle of many requests, starts it again, and asks for every id until there is
// an answer.
func (w *world) crashPostgres(ctx context.Context, a *gateway) error {
	before, err := w.incarnation(ctx, regionA)
	if err != nil {
		return err
	}
	list := make([]*job, crashed)
	for i := range list {
		list[i] = &job{id: newID()}
	}
	var answers, open, again, replayed atomic.Int64
	middle := make(chan struct{})
	err = stage.Together(ctx,
		func(ctx context.Context) error {
			return w.killAndStart(ctx, middle, func() { open.Store(crashed - answers.Load()) })
		},
		func(ctx context.Context) error {
			return abreastOf(list, func(j *job) error {
				tries := 0
				return stage.Until(ctx, comesBack, "the truth about "+j.id+" is told", func() (bool, error) {
					d, err := a.admitAt(ctx, 0, j.id)
					if tries++; tries == 2 {
						again.Add(1)
					}
					if err != nil || !d.Admitted() {
						return false, err
					}
					if d.Replayed {
						replayed.Add(1)
					}
					if answers.Add(1) == crashAt {
						close(middle)
					}
					return true, nil
				})
			})
		})
	if err != nil {
		return err
	}
	now, err := w.incarnation(ctx, regionA)
	if err != nil {
		return err
	}
	stored, err := w.stored(ctx, a.region, budgetRequests)
	switch {
	case err != nil:
		return err
	case now != before:
		return fmt.Errorf("%s is another incarnation after a crash that lost nothing", regionA)
	case stored != crashed:
		return fmt.Errorf("%d different ids were admitted, and the database has charged %d", crashed, stored)
	case open.Load() == 0:
		return errors.New("all requests were answered before the database was killed; nothing was in mid-flight")
	}
	w.tell.step("crash", fields{"ids": crashed, "open": open.Load(), "asked_again": again.Load(), "already_charged": replayed.Load(), "charged": stored, "incarnation": now},
		fmt.Sprintf("%d requests for %s, and in their middle its Postgres is killed (kill -9) and started again. %d had no answer by then; they wait, or are refused and ask again by the same id (%d did; %d had been charged). "+
			"Each is charged once: %d in the callers' record, %d in the database, and it is the same incarnation (%.8s). Nothing is lost.", crashed, regionA, open.Load(), again.Load(), replayed.Load(), crashed, stored, now))
	return nil
}

func (w *world) killAndStart(ctx context.Context, when <-chan struct{}, killed func()) error {
	select {
	case <-when:
	case <-ctx.Done():
		return ctx.Err()
	}
	p := w.Regions[regionA].Postgres
	if err := p.Kill(); err != nil {
		return err
	}
	killed()
	return p.StartAgain(ctx)
}

// moveOn is what etcd will not know any more: permits move from one region to the other, and some of them are spent.
func (w *world) moveOn(ctx context.Context, period string, both []*gateway) error {
	err := until(ctx, "permits are moved", func() (bool, error) { // etcd has just been away
		_, err := w.admin.Do(ctx, api.Call{
			Method: http.MethodPost, Path: "/v1/rebalances", Body: coordinator.RebalanceRequest{Budget: budgetRequests, From: regionA, To: regionB, Units: moved},
		}, nil)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(both[0].untilShare(ctx, wideA-moved), both[1].untilShare(ctx, wideB+moved)); err != nil {
		return err
	}
	if err := w.spend(ctx, both[1], period, wideB+intoMoved, 0); err != nil {
		return err
	}
	w.tell.step("moved", fields{"units": moved, regionA: wideA - moved, regionB: wideB + moved, "spent": wideB + intoMoved},
		fmt.Sprintf("Etcd is copied. Then %d permits are moved: %s had %d and has %d, %s had %d and has %d, and spends %d.",
			moved, regionA, wideA, wideA-moved, regionB, wideB, wideB+moved, wideB+intoMoved))
	return nil
}

// takeBack puts the copy back under running coordinators, while the region that gave cannot be heard.
func (w *world) takeBack(ctx context.Context, copied, period string, b *gateway) error {
	w.Regions[regionA].Cut()
	if err := w.TakeBackEtcd(ctx, copied, nil); err != nil {
		return err
	}
	var frozen *coordinator.FrozenStatus
	err := stage.Until(ctx, comesBack, "the ledger is frozen, and waits for "+regionA, func() (bool, error) {
		var err error
		frozen, err = w.frozen(ctx)
		return err == nil && frozen != nil && slices.Equal(frozen.Missing, []string{regionA}), err
	})
	if err != nil {
		return err
	}
	if err := w.spend(ctx, b, period, whileApart, 0); err != nil {
		return err
	}
	if err := w.movesNothing(ctx); err != nil {
		return err
	}
	w.tell.step("frozen", fields{"why": frozen.Why, "missing": frozen.Missing, "admitted_meanwhile": whileApart},
		fmt.Sprintf("Now etcd is taken back to the copy under running coordinators, while %s is cut off. By the copy %s holds %d again: granting from it would hand out %d permits twice. "+
			"It is noticed, and the ledger is frozen until both regions have stated what they hold: another move is refused. %s has stated; the freeze waits for %s. Meanwhile %s goes on with what it holds: %d more.",
			regionA, regionA, wideA, moved, regionB, regionA, regionB, whileApart),
		"", "  why frozen  "+begin(frozen.Why), "")
	return nil
}

// begin is the beginning of a reason that is made for operators, by whom and what; `tranche status` has all of it.
func begin(why string) string {
	parts := strings.SplitN(why, ": ", 3)
	if strings.HasPrefix(why, "region ") && len(parts) > 1 {
		return parts[0] + ": " + parts[1]
	}
	return parts[0]
}

// movesNothing checks that a frozen ledger grants nothing.
func (w *world) movesNothing(ctx context.Context) error {
	_, err := w.admin.Do(ctx, api.Call{
		Method: http.MethodPost, Path: "/v1/rebalances", Body: coordinator.RebalanceRequest{Budget: budgetRequests, From: regionB, To: regionA, Units: 1},
	}, nil)
	if refused, told := errors.AsType[*api.Error](err); !told || !strings.Contains(refused.Detail, allocation.ErrFrozen.Error()) {
		return fmt.Errorf("asked to move a permit, the frozen ledger says: %v", err)
	}
	return nil
}

// frozen is why nothing is granted; nil: it is not so.
func (w *world) frozen(ctx context.Context) (*coordinator.FrozenStatus, error) {
	var s coordinator.Status
	_, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/status"}, &s)
	return s.Frozen, err
}

// thaw lets the last region state what it holds. Then the ledger follows the weights again.
func (w *world) thaw(ctx context.Context, both []*gateway) error {
	w.Regions[regionA].Heal()
	held := map[string]int64{}
	err := stage.Until(ctx, comesBack, "nothing is frozen, and the ledger says what the regions hold", func() (bool, error) {
		frozen, err := w.frozen(ctx)
		if err == nil && frozen != nil {
			err = fmt.Errorf("it is frozen since %s, and waits for %v", frozen.Since.Format(time.TimeOnly), frozen.Missing)
		}
		if err != nil {
			return false, err
		}
		var shares coordinator.SharesAnswer
		if _, err := w.admin.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/shares/" + budgetRequests}, &shares); err != nil {
			return false, err
		}
		clear(held)
		for _, r := range shares.Terms[0].Regions {
			held[r.Region] += r.Granted - r.Returned
		}
		return held[regionA] == backA && held[regionB] == backB && shares.Terms[0].Overcommitted == 0, nil
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("the ledger says that the regions hold %v", held))
	}
	if err := errors.Join(both[0].untilShare(ctx, backA), both[1].untilShare(ctx, backB)); err != nil {
		return err
	}
	w.tell.step("thawed", fields{regionA: held[regionA], regionB: held[regionB], "given_back": backs},
		fmt.Sprintf("The link heals, %s states what it holds, and the freeze ends. The ledger has learned from the regions what etcd lost: %d were with %s. Of the move nobody told etcd again, "+
			"so it goes by the weights: %s gives back the %d that it has not spent. Now %s holds %d, %s %d.",
			regionA, wideB+moved, regionB, regionB, backs, regionA, held[regionA], regionB, held[regionB]))
	return nil
}

// spendTheRest spends to the last permit: one that was granted twice would be admitted here.
func (w *world) spendTheRest(ctx context.Context, period string, both []*gateway) error {
	left := []int{backA - crashed, 0}
	for i, g := range both {
		if err := w.spend(ctx, g, period, left[i], moved); err != nil {
			return err
		}
	}
	admitted, over := w.record.sums()
	if admitted != wide || over != 0 {
		return fmt.Errorf("the gateways recorded %d admissions, %d over the limit of %d", admitted, over, wide)
	}
	w.tell.step("spent", fields{"admitted": admitted, "limit": wide, "refused": 2 * moved},
		fmt.Sprintf("They are asked for all that is left, admit %d and %d, and refuse the next %d. By the callers' own count %d of %d were admitted: nothing was granted twice, nothing is missing.",
			left[0], left[1], 2*moved, admitted, wide))
	return nil
}
