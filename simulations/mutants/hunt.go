package mutants

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// DefaultMaxRuns bounds the runs of one hunt.
const DefaultMaxRuns = 300

// Options says what is hunted.
type Options struct {
	Only     []string     // names; empty: all
	Seed     uint64       // of the first run; hunts without a seed go through everything
	MaxRuns  int          // of one hunt; 0: DefaultMaxRuns
	Workers  int          // hunts at once; 0: one per processor
	Progress func(Caught) // hears of every mutant as soon as its hunt is over; nil: nobody does
}

// Caught is how the hunt for one mutant ended.
type Caught struct {
	Name      string        `json:"mutant"`
	Breaks    string        `json:"breaks"`
	Hunter    string        `json:"hunter"`
	Caught    bool          `json:"caught"`
	Invariant int           `json:"invariant,omitempty"`
	Violation string        `json:"violation,omitempty"`
	Seed      uint64        `json:"seed"`             // of the run that showed it; hunts that go through everything have none
	Runs      int           `json:"runs,omitempty"`   // with that one
	States    int           `json:"states,omitempty"` // of a walk
	Trace     []string      `json:"trace,omitempty"`  // what led there
	Took      time.Duration `json:"took_ns"`
}

// String is one line.
func (c Caught) String() string {
	far := fmt.Sprintf("%d runs", c.Runs)
	if c.States > 0 {
		far = fmt.Sprintf("%d states", c.States)
	}
	if !c.Caught {
		return fmt.Sprintf("%-32s NOT CAUGHT   %-14s %6.1fs  %s", c.Name, far, c.Took.Seconds(), c.Hunter)
	}
	return fmt.Sprintf("%-32s invariant %-2d %-14s %6.1fs  seed %-4d %s", c.Name, c.Invariant, far, c.Took.Seconds(), c.Seed, c.Hunter)
}

// Control is the hunt in one world without a mutant: it must find nothing.
type Control struct {
	World     string        `json:"world"`
	Violation string        `json:"violation,omitempty"`
	Invariant int           `json:"invariant,omitempty"`
	Seed      uint64        `json:"seed"`
	Runs      int           `json:"runs,omitempty"`
	States    int           `json:"states,omitempty"`
	Trace     []string      `json:"trace,omitempty"`
	Took      time.Duration `json:"took_ns"`
}

// Result is how all hunts ended.
type Result struct {
	Seed     uint64        `json:"seed"`
	Mutants  []Caught      `json:"mutants"`
	Controls []Control     `json:"controls"`
	Missed   int           `json:"missed"`       // mutants that were not caught
	Alarms   int           `json:"false_alarms"` // controls that found something
	Took     time.Duration `json:"took_ns"`
}

// Good says that every mutant was caught, and that nothing was found without one.
func (r Result) Good() bool { return r.Missed == 0 && r.Alarms == 0 }

// Hunt hunts mutants, and then makes the control of every world in which it did. An error says that it could not be done:
// a name that is unknown, a context that has ended, a world that broke down.
func Hunt(ctx context.Context, o Options) (Result, error) {
	began := time.Now()
	chosen, err := choose(o.Only)
	if err != nil {
		return Result{}, err
	}
	if o.MaxRuns <= 0 {
		o.MaxRuns = DefaultMaxRuns
	}
	r := Result{Seed: o.Seed, Mutants: make([]Caught, len(chosen))}
	var mu sync.Mutex
	far := map[string]found{} // by world: as far as any hunt went in it
	hunts := map[string]hunt{}
	err = each(ctx, o.Workers, len(chosen), func(i int) error {
		m, began := chosen[i], time.Now()
		f, err := m.hunt.find(ctx, o.Seed, o.MaxRuns, func(n int) bool { return slices.Contains(m.Invariants, n) })
		if err != nil {
			return fmt.Errorf("hunt %s: %w", m.Name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		r.Mutants[i] = Caught{
			Name: m.Name, Breaks: m.Breaks, Hunter: m.Hunter, Caught: f.caught, Invariant: f.invariant, Violation: f.violation,
			Seed: f.seed, Runs: f.runs, States: f.states, Trace: f.trace, Took: time.Since(began),
		}
		w := m.hunt.world()
		far[w], hunts[w] = further(far[w], f), m.hunt
		if o.Progress != nil {
			o.Progress(r.Mutants[i])
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	var worlds []string
	for w := range hunts {
		worlds = append(worlds, w)
	}
	slices.Sort(worlds)
	r.Controls = make([]Control, len(worlds))
	err = each(ctx, o.Workers, len(worlds), func(i int) error {
		w, began := worlds[i], time.Now()
		f, err := hunts[w].control(ctx, o.Seed, far[w])
		if err != nil {
			return fmt.Errorf("hunt in %s without a mutant: %w", w, err)
		}
		r.Controls[i] = Control{
			World: w, Violation: f.violation, Invariant: f.invariant, Seed: f.seed, Runs: f.runs, States: f.states, Trace: f.trace, Took: time.Since(began),
		}
		return nil
	})
	for i := range r.Mutants {
		if !r.Mutants[i].Caught {
			r.Missed++
		}
	}
	for i := range r.Controls {
		if r.Controls[i].Violation != "" {
			r.Alarms++
		}
	}
	r.Took = time.Since(began)
	return r, err
}

// further is as far as either went.
func further(a, b found) found {
	a.runs, a.states = max(a.runs, b.runs), max(a.states, b.states)
	return a
}

func choose(only []string) ([]Mutant, error) {
	all := All()
	if len(only) == 0 {
		return all, nil
	}
	var chosen []Mutant
	for _, name := range only {
		at := slices.IndexFunc(all, func(m Mutant) bool { return m.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no mutant %q; the nearest: %s", name, strings.Join(near(name, all), ", "))
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// near lists the mutants that share a word with a name, or all.
func near(name string, all []Mutant) []string {
	var some, every []string
	for _, m := range all {
		every = append(every, m.Name)
		if slices.ContainsFunc(strings.Split(name, "-"), func(word string) bool { return len(word) > 3 && strings.Contains(m.Name, word) }) {
			some = append(some, m.Name)
		}
	}
	if len(some) > 0 {
		return some
	}
	return every
}

// each does n things, several at a time, until one fails.
func each(ctx context.Context, workers, n int, do func(i int) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var mu sync.Mutex
	var failed error
	next := 0
	pull := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = ctx.Err()
		}
		if failed != nil || next == n {
			return 0, false
		}
		next++
		return next - 1, true
	}
	var all sync.WaitGroup
	for range min(workers, n) {
		all.Go(func() {
			for i, ok := pull(); ok; i, ok = pull() {
				if err := do(i); err != nil {
					mu.Lock()
					if failed == nil {
						failed = err
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return failed
}
