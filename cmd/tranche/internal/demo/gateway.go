package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

// abreast is how many requests a gateway has under way at once.
const abreast = 10

// gateway is a caller of one region: it asks its nodes in turn, and writes down every answer.
type gateway struct {
	w      *world
	name   string
	region *stage.Region
	labels map[string]string
	ask    []*api.Client // one for each node
	turn   atomic.Int64
}

var serial atomic.Int64 // of admission ids

func (w *world) gateway(name string, r *stage.Region, tenant string) (*gateway, error) {
	g := &gateway{w: w, name: name, region: r, labels: map[string]string{"tenant": tenant}}
	for _, n := range r.Nodes {
		client, err := w.Gateway(name, n)
		if err != nil {
			return nil, err
		}
		g.ask = append(g.ask, client)
	}
	return g, nil
}

// newID names an admission.
func newID() string { return fmt.Sprintf("demo-%05d", serial.Add(1)) }

// admit asks for one permit, under a new id, and writes the answer down. It fails if no node decided.
func (g *gateway) admit(ctx context.Context) (api.Decision, error) {
	return g.admitAt(ctx, int(g.turn.Add(1))%len(g.ask), newID())
}

func (g *gateway) admitAt(ctx context.Context, node int, id string) (api.Decision, error) {
	d, err := api.Admit(ctx, g.ask[node], api.Admission{ID: id, Op: "spend", Labels: g.labels, Deadline: 5 * time.Second})
	if err != nil {
		return d, err
	}
	if !d.Unknown() {
		g.w.record.note(g.region.Name, id, d)
	}
	return d, nil
}

// check asks what would happen, and charges nothing.
func (g *gateway) check(ctx context.Context) (api.Decision, error) {
	return api.Admit(ctx, g.ask[0], api.Admission{Op: "check", Labels: g.labels})
}

// tally is what became of many requests.
type tally struct {
	admitted, refused int
	periods           map[string]int // admissions by the start of their period
	last              api.Decision   // the last refusal
}

// many asks n times, several at once.
func (g *gateway) many(ctx context.Context, n int) (tally, error) {
	t := tally{periods: map[string]int{}}
	var mu sync.Mutex
	var errs []error
	var wait sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range min(n, abreast) {
		wait.Go(func() {
			for left.Add(-1) >= 0 {
				d, err := g.admit(ctx)
				mu.Lock()
				switch {
				case err != nil:
					errs = append(errs, err)
				case d.Admitted():
					t.admitted++
					t.periods[periodOf(d)]++
				default:
					t.refused++
					t.last = d
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return t, errors.Join(errs...)
}

// periodOf is the start of the one period that a decision is about.
func periodOf(d api.Decision) string {
	if len(d.Budgets) == 0 || d.Budgets[0].Period == nil {
		return ""
	}
	return d.Budgets[0].Period.Start
}

// only is the one period of a tally, or false if there are several.
func (t tally) only(period string) bool {
	return t.admitted == t.periods[period]
}

// why is a refusal in words.
func why(d api.Decision) string { return fmt.Sprintf("%s: %s", d.Reason, d.Title) }
