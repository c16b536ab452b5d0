package mutants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// drillFor is how long a drill lasts, in simulated time.
const drillFor = 10 * time.Second

// drill is a world with one store that goes back to what it held before, again and again, under writers that go on, and
// with one checker: whoever writes must find what it last left there (invariant 8). The fleet cannot show that yet: what
// follows after a restore is not wired, so that other things break there first.
type drill struct {
	name string
	play func(d *drillWorld, mutant any)
}

// drillWorld is one run of a drill.
type drillWorld struct {
	w      *world.World
	net    *network.Net
	judged int
}

// broke is a violation in a drill.
type broke struct {
	invariant int
	detail    string
}

func (b *broke) Error() string { return fmt.Sprintf("invariant %d: %s", b.invariant, b.detail) }

func (d *drillWorld) must(holds bool, invariant int, format string, args ...any) {
	if d.judged++; !holds {
		d.w.Fail(&broke{invariant, fmt.Sprintf(format, args...)})
	}
}

// live starts a process again, a moment after it ended.
func (d *drillWorld) live(name string, main func(ctx context.Context, p *world.Process)) {
	p := d.w.Process(name)
	again := func() {
		if !p.Up() {
			p.Start(func(ctx context.Context) { main(ctx, p) })
		}
	}
	p.OnEnd(func() { d.w.After(time.Duration(p.Random().IntN(int(200*time.Millisecond))), again) })
	again()
}

// drillHunt makes drills, from one seed after the other.
type drillHunt struct {
	drill  drill
	mutant any // of which each run gets what it is made of anew; nil: none
}

func (h drillHunt) world() string { return "drill: " + h.drill.name }

func (h drillHunt) find(ctx context.Context, seed uint64, most int, counts func(int) bool) (f found, err error) {
	return h.runs(ctx, seed, most, h.mutant, counts)
}

func (h drillHunt) control(ctx context.Context, seed uint64, far found) (found, error) {
	return h.runs(ctx, seed, max(controlRuns, far.runs), nil, func(int) bool { return true })
}

func (h drillHunt) runs(ctx context.Context, seed uint64, most int, mutant any, counts func(int) bool) (f found, err error) {
	for f.runs < most && ctx.Err() == nil {
		f.runs++
		b, lines, err := h.run(seed+uint64(f.runs-1), mutant)
		if err != nil {
			return f, err
		}
		if b != nil && counts(b.invariant) {
			f.caught, f.seed, f.invariant, f.violation, f.trace = true, seed+uint64(f.runs-1), b.invariant, b.Error(), lines
			return f, nil
		}
	}
	return f, ctx.Err()
}

func (h drillHunt) run(seed uint64, mutant any) (*broke, []string, error) {
	w := world.New(world.Options{Seed: seed, Ring: traceLines})
	defer w.Close()
	d := &drillWorld{w: w, net: network.New(w)}
	h.drill.play(d, mutant)
	err := w.Run(drillFor)
	var b *broke
	switch {
	case errors.As(err, &b):
		return b, told(w.Lines()), nil
	case err != nil:
		return nil, nil, fmt.Errorf("drill %s, seed %d: %w", h.drill.name, seed, err)
	case d.judged == 0:
		return nil, nil, fmt.Errorf("drill %s, seed %d: nothing was judged", h.drill.name, seed)
	}
	return nil, nil, nil
}

// inDrill makes a mutant that is hunted in a drill.
func inDrill(name, breaks string, d drill, mutant any, invariants ...int) Mutant {
	h := drillHunt{drill: d, mutant: mutant}
	return Mutant{Name: name, Breaks: breaks, Invariants: invariants, Hunter: h.world(), hunt: h}
}

// drillMutants are those that only show when a store goes back between two calls of one writer.
func drillMutants() []Mutant {
	return []Mutant{
		inDrill("compare-revision-only", "a transaction compares mod revisions, and not what was read", etcdBack, compareRevisions, 8),
		inDrill("coordinator-mark-outside", "a coordinator compares its mark before the transaction, not in it", etcdBack, markBefore, 8),
		inDrill("coordinator-writes-without-mark", "a coordinator does not compare its mark at all", etcdBack, withoutMark, 8),
		inDrill("wait-for-what-is-gone", "a coordinator waits to see what it wrote, also if etcd went back to before that", seesWhatItWrote, hearsNothing, 0),
		inDrill("node-mark-outside", "a node compares its mark before the transaction, not in it", postgresBack, breakMarkOutside, 8),
		inDrill("node-writes-without-mark", "a node does not compare its mark at all", postgresBack, breakNoMark, 8),
	}
}
