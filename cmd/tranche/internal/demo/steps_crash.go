package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/regional"
)

const (
	waves     = 3
	waveSize  = 100 // requests that are sent at the same moment
	jobs      = waves * waveSize
	killAt    = 10 // answers of the second wave
	killsMost = 3
	jobsLimit = 1500 // of which 900 are the region's
)

// job is one request of the crash, as its gateway knows it.
type job struct {
	id       string
	answered bool // before the crash
	replayed bool // the retry found that it had been charged already
}

// crash kills a node in the middle of many requests; those without an answer are asked again, by the same ids, at the
// region's other node. Whether a kill hits a moment in which requests are charged and not yet answered is chance: it is
// done again, on the restarted node, until it did.
func (w *world) crash(ctx context.Context) error {
	from := allocation.At(time.Now().Add(-time.Hour))
	if _, err := w.declare(ctx, budgetJobs, jobsLimit, allocation.Window{Once: &allocation.Once{From: from}}, 3, 2); err != nil {
		return err
	}
	r := w.Regions[regionA]
	g, err := w.gateway(edge1, r, budgetJobs)
	if err != nil {
		return err
	}
	var all []*job
	var retried, replayed, kills int
	for replayed == 0 && kills < killsMost {
		if !r.Nodes[0].Running() {
			w.tell.progress("the kill hit no request between its charge and its answer: once more")
			if err := r.Nodes[0].Start(ctx); err != nil {
				return err
			}
		}
		kills++
		list := make([]*job, jobs)
		for i := range list {
			list[i] = &job{id: newID()}
		}
		all = append(all, list...)
		if err := w.sendAndKill(ctx, g, list); err != nil {
			return err
		}
		if retried, replayed, err = w.retry(ctx, g, list); err != nil {
			return err
		}
	}
	if err := w.chargedOnce(ctx, g, all); err != nil {
		return err
	}
	w.tell.step("crash", fields{"node": r.Nodes[0].Name, "kills": kills, "ids": len(all), "retried": retried, "already_charged": replayed, "charged": len(all)},
		fmt.Sprintf("Node %s is killed (SIGKILL) with requests in mid-flight. %d of %d ids got no answer and are asked again at %s: "+
			"%d of these had been charged before the kill and are not charged again. The gateway's own record: %d; the database: %d.",
			r.Nodes[0].Name, retried, jobs, r.Nodes[1].Name, replayed, len(all), len(all)))
	return nil
}

// chargedOnce holds the gateway's record against the database, and asks for every id once more: each must be known.
func (w *world) chargedOnce(ctx context.Context, g *gateway, all []*job) error {
	stored, err := w.stored(ctx, g.region, budgetJobs)
	if err != nil {
		return err
	}
	if stored != int64(len(all)) {
		return fmt.Errorf("%d different ids were admitted, and the database has charged %d", len(all), stored)
	}
	return abreastOf(all, func(j *job) error {
		d, err := g.admitAt(ctx, 1, j.id)
		if err == nil && (!d.Admitted() || !d.Replayed) {
			err = fmt.Errorf("id %s was admitted before, and now: %s, replayed %v", j.id, why(d), d.Replayed)
		}
		return err
	})
}

// abreastOf does something for each job, several at once.
func abreastOf(list []*job, do func(*job) error) error {
	queue := make(chan *job, len(list))
	for _, j := range list {
		queue <- j
	}
	close(queue)
	var parts []func(context.Context) error
	for range abreast {
		parts = append(parts, func(context.Context) error {
			for j := range queue {
				if err := do(j); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return stage.Together(context.Background(), parts...)
}

// sendAndKill sends the jobs to the first node in three waves, and kills it in the middle of the second.
func (w *world) sendAndKill(ctx context.Context, g *gateway, list []*job) error {
	for wave := range waves {
		var answers atomic.Int64
		var wait sync.WaitGroup
		for _, j := range list[wave*waveSize : (wave+1)*waveSize] {
			wait.Go(func() {
				d, err := g.admitAt(ctx, 0, j.id)
				if err != nil || !d.Admitted() {
					return
				}
				j.answered = true
				if answers.Add(1) == killAt && wave == 1 {
					g.region.Nodes[0].Kill()
				}
			})
		}
		wait.Wait()
		if got := answers.Load(); wave == 0 && got != waveSize || wave == 1 && got < killAt {
			return fmt.Errorf("before it was killed the node answered %d of %d requests that fit the budget", got, waveSize)
		}
	}
	return ctx.Err()
}

// retry asks the other node for every id without an answer, until there is one.
func (w *world) retry(ctx context.Context, g *gateway, list []*job) (retried, replayed int, err error) {
	open := slices.DeleteFunc(slices.Clone(list), func(j *job) bool { return j.answered })
	if len(open) == 0 {
		return 0, 0, errors.New("the node answered everything before it was killed; nothing was in mid-flight")
	}
	err = abreastOf(open, func(j *job) error {
		return until(ctx, "the other node tells the truth about "+j.id, func() (bool, error) {
			d, err := g.admitAt(ctx, 1, j.id)
			j.replayed = d.Replayed
			return err == nil && d.Admitted(), err
		})
	})
	for _, j := range open {
		if j.replayed {
			replayed++
		}
	}
	return len(open), replayed, err
}

// stored is what the region's database has charged to a budget.
func (w *world) stored(ctx context.Context, r *stage.Region, budget string) (spent int64, err error) {
	client, err := w.Gateway(edge1, r.Nodes[len(r.Nodes)-1])
	if err != nil {
		return 0, err
	}
	var account regional.Account
	if _, err := client.Do(ctx, api.Call{Method: "GET", Path: "/v1/account"}, &account); err != nil {
		return 0, err
	}
	for _, u := range account.Usage {
		if u.Budget == budget {
			spent += u.Spent
		}
	}
	return spent, nil
}
