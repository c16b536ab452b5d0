package mutants

import (
	"context"
	"strings"
	"time"

	"tranche/simulations/internal/fleet"
	"tranche/simulations/internal/world"
)

// Bounds of a hunt in the fleet.
const (
	huntFor     = 25 * time.Second // the safety phase of each run
	controlRuns = 4                // at least, of each world
	traceLines  = 25               // of the run that showed it, up to the violation
)

// arena is a small world for the fleet: what its seeds draw is narrowed so that some mutants bite soon.
type arena struct {
	name  string
	focus fleet.Focus
	long  time.Duration // 0: huntFor
	kind  string        // of the runs; empty: fleet.KindFaults
}

// fleetHunt runs the real services in an arena, from one seed after the other.
type fleetHunt struct {
	arena arena
	seams func() fleet.Seams // made anew for each run: a seam may remember what passed it
}

func (h fleetHunt) world() string { return "fleet: " + h.arena.name }

func (h fleetHunt) find(ctx context.Context, seed uint64, most int, counts func(int) bool) (f found, err error) {
	for f.runs < most {
		r, err := h.run(ctx, seed+uint64(f.runs), h.seams())
		if err != nil {
			return f, err
		}
		f.runs++
		if v := r.Violation; v != nil && counts(v.Invariant) {
			f.caught = true
			f.of(r)
			return f, nil
		}
	}
	return f, nil
}

func (h fleetHunt) control(ctx context.Context, seed uint64, far found) (f found, err error) {
	for f.runs < max(controlRuns, far.runs) {
		r, err := h.run(ctx, seed+uint64(f.runs), fleet.Seams{})
		if err != nil {
			return f, err
		}
		f.runs++
		if r.Violation != nil {
			f.of(r)
			return f, nil
		}
	}
	return f, nil
}

func (h fleetHunt) run(ctx context.Context, seed uint64, s fleet.Seams) (*fleet.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	long := h.arena.long
	if long == 0 {
		long = huntFor
	}
	focus := h.arena.focus
	return fleet.Run(ctx, fleet.Options{Seed: seed, For: long, Kind: h.arena.kind, Lines: traceLines, Seams: s, Focus: &focus})
}

// of takes what a run showed.
func (f *found) of(r *fleet.Result) {
	f.seed, f.invariant, f.violation = r.Seed, r.Violation.Invariant, r.Violation.Error()
	f.trace = told(r.Lines)
}

func told(lines []world.Line) (all []string) {
	for i := range lines {
		all = append(all, strings.TrimRight(string(lines[i].Append(nil)), "\n"))
	}
	return all
}

// inFleet makes a mutant that is hunted in the fleet.
func inFleet(name, breaks string, a arena, seams func() fleet.Seams, invariants ...int) Mutant {
	h := fleetHunt{arena: a, seams: seams}
	return Mutant{Name: name, Breaks: breaks, Invariants: invariants, Hunter: h.world(), hunt: h}
}
