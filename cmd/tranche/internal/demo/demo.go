// Package demo is the walk through what Tranche promises, on real processes: an etcd inside a coordinator, two regions
// with a Postgres and two nodes each, gateways that keep their own record, and links that are cut.
//
//	gateways ──▶ us-east-1, us-east-2 ──▶ Postgres          each node, the coordinator: a process of its own
//	                │ link (can be cut)
//	                ▼
//	             coordinator ──▶ etcd
//	                ▲
//	                │ link (can be cut)
//	gateways ──▶ eu-west-1, eu-west-2 ──▶ Postgres
//
// Beside the walk there are scenarios: short stories of one thing each, on a deployment of their own.
//
// Nothing is simulated but the partition, which is a proxy that breaks connections. Every step is checked; the first that
// is not as promised ends the demo with an error. At the end nothing is left: no process, no folder.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"tranche/cmd/tranche/internal/stage"
)

// The two regions and what they get of each budget.
const (
	regionA = "us-east"
	regionB = "eu-west"
	limit   = 100
	shareA  = 60
	shareB  = 40
)

// The windows are short so that the walk is. Everything else is as in production.
const (
	windowSeconds = 15              // of the budget of most steps
	burstSeconds  = 5               // of the budget of the boundary
	unreachable   = 2 * time.Second // the coordinator's --report-unreachable-after; by default 10 s
	walkAtMost    = 5 * time.Minute // then something hangs
	conditionWait = 15 * time.Second
)

// Options say how to walk.
type Options struct {
	Out, Err io.Writer
	JSON     bool
	Keep     bool
	Scenario string // one of Scenarios; empty: the walk through everything
}

// Run walks through all steps. It returns an error at the first that is not as promised.
func Run(ctx context.Context, o Options) (err error) {
	tale, err := find(o.Scenario)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // else it would kill us before we have cleaned up; now the write fails
	defer signal.Stop(broken)
	t := &teller{out: heard{o.Out, stop}, err: heard{o.Err, stop}, json: o.JSON, started: time.Now()}
	walk, cancel := context.WithTimeoutCause(ctx, walkAtMost, errors.New("the demo took too long"))
	defer cancel()
	for _, line := range tale.intro {
		t.say("%s", line)
	}
	w, err := start(walk, t, tale.stage)
	defer func() {
		if left := w.Stop(); left != nil {
			err = errors.Join(err, left)
		}
	}()
	if err != nil {
		return explain(walk, w, err)
	}
	totals, err := tale.walk(w, walk)
	if err != nil {
		return explain(walk, w, err)
	}
	seconds := t.seconds()
	if o.Keep {
		w.keep(ctx)
	}
	if t.json {
		t.object("done", verdict{
			Scenario: o.Scenario, Limit: totals.limit, Spent: totals.spent, Overspent: totals.overspent, CounterPerRegion: totals.naive, Steps: t.number, Seconds: seconds,
		})
		return nil
	}
	t.say("\nDone in %.1f s: %d steps as promised, %d permits spent of %d, overspent by %d.", seconds, t.number, totals.spent, totals.limit, totals.overspent)
	return nil
}

// errUnheard ends a demo that nobody watches any more: tranche demo | head.
var errUnheard = errors.New("nobody reads its output any more")

// heard is an output whose end ends the demo.
type heard struct {
	to  io.Writer
	end context.CancelCauseFunc
}

func (h heard) Write(p []byte) (int, error) {
	n, err := h.to.Write(p)
	if err != nil {
		h.end(fmt.Errorf("%w: %w", errUnheard, err))
	}
	return n, err
}

// verdict is the last line for programs.
type verdict struct {
	Scenario         string  `json:"scenario,omitempty"`
	Limit            int64   `json:"limit"`
	Spent            int64   `json:"spent"`
	Overspent        int64   `json:"overspent"`
	CounterPerRegion int64   `json:"counter_per_region,omitempty"` // of the walk: what the same requests would have cost with one
	Steps            int     `json:"steps"`
	Seconds          float64 `json:"seconds"`
}

// explain adds what a process that should run has said last.
func explain(ctx context.Context, w *world, err error) error {
	if cause := context.Cause(ctx); cause != nil && (errors.Is(err, context.Canceled) || errors.Is(cause, errUnheard)) {
		return fmt.Errorf("the demo was ended: %w", cause)
	}
	return errors.Join(err, w.Failure())
}

// steps are the walk.
func (w *world) steps(ctx context.Context) (totals, error) {
	for _, group := range []func(context.Context) error{w.grant, w.spendAll, w.strand, w.boundary, w.crash} {
		if err := group(ctx); err != nil {
			return totals{}, err
		}
	}
	return w.verify(ctx)
}

// until polls for a condition; what says what was awaited.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	return stage.Until(ctx, conditionWait, what, holds)
}

// untilTime waits for a moment of the clock.
func untilTime(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
