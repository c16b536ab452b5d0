package simulations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"tranche/simulations/internal/fleet"
	"tranche/simulations/internal/world"
)

// Options says which runs are made. The seeds are Seed, Seed+1, …; a seed, a kind and a duration name a run to the byte.
type Options struct {
	Seed     uint64
	Runs     int           // 0: one, or, with Within, as many as fit
	Within   time.Duration // of real time: no run begins later; 0: no bound
	For      time.Duration // simulated, of faults in each run; 0: DefaultFor
	Kind     string        // see Kinds; empty: KindFaults
	Parallel int           // runs at once; 0: two
	Lines    int           // of the trace that a violation keeps; 0: DefaultLines
	Go       bool          // go on after a violation
	Trace    io.Writer     // hears every line, where one run is made at a time
	Progress func(Result)  // hears, about once a second, how far it is; nil: nobody does
}

// Defaults and bounds of Options.
const (
	DefaultFor     = fleet.DefaultFor
	DefaultLines   = 30
	KindFaults     = fleet.KindFaults
	KindCalm       = fleet.KindCalm
	mostViolations = 20

	defaultParallel = 2
)

// Expected is a named expected failure: a kind of run that today's services do not survive in full, and how it may end.
type Expected struct {
	Name   string   `json:"name"`
	What   string   `json:"what"`
	Why    string   `json:"why"`
	Ends   []string `json:"ends"`             // that are expected
	Breaks []int    `json:"breaks,omitempty"` // invariants that it may break
}

// ExpectedFailures are all kinds of runs that may fail, by name.
func ExpectedFailures() (list []Expected) {
	for _, e := range fleet.ExpectedFailures() {
		list = append(list, Expected{Name: e.Name, What: e.What, Why: e.Why, Ends: e.Ends, Breaks: e.Breaks})
	}
	return list
}

// Kinds are all that Options.Kind may be.
func Kinds() []string {
	kinds := []string{KindFaults, KindCalm}
	for _, e := range fleet.ExpectedFailures() {
		kinds = append(kinds, e.Name)
	}
	return kinds
}

// Result is what came of the runs so far.
type Result struct {
	Runs       int            `json:"runs"`
	Violations int            `json:"violations"`
	Seed       uint64         `json:"seed"`
	Kind       string         `json:"kind"`
	For        float64        `json:"for_seconds"`
	Simulated  float64        `json:"simulated_seconds"`
	Took       float64        `json:"took_seconds"`
	Speed      float64        `json:"times_real_time"` // on all cores that were used
	Decisions  int            `json:"decisions"`
	Admitted   int            `json:"admitted"`
	Commits    int            `json:"commits"`
	Revisions  int64          `json:"revisions"`
	Exhausted  int            `json:"exhausted_periods"` // in which every permit was spent
	Checked    map[int]int    `json:"checked"`           // by invariant: how often it was judged
	Faults     map[string]int `json:"faults"`            // that were done, by name
	Reasons    map[string]int `json:"reasons"`           // of decisions
	Ends       map[string]int `json:"ends"`              // of runs
	Notes      map[string]int `json:"notes"`             // what else was seen
	Found      []Violation    `json:"found,omitempty"`   // by seed, the first of them
}

// Violation is an invariant that did not hold in one run; invariant 0 is a run that did not come right again.
type Violation struct {
	Invariant int      `json:"invariant"`
	Seed      uint64   `json:"seed"`
	Kind      string   `json:"kind"`
	At        float64  `json:"at_seconds"`
	Detail    string   `json:"detail"`
	World     string   `json:"world"` // what the seed drew
	Trace     []string `json:"trace"` // the last lines that led there
	Replay    string   `json:"replay"`
}

// Run makes the runs, several at once, and stops at the first violation unless it is told to go on. An error is one of the
// options, or that of ctx; what was done until then is in the result.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := o.complete(); err != nil {
		return Result{}, err
	}
	r := &runner{o: o, began: time.Now(), total: Result{
		Seed: o.Seed, Kind: o.Kind, For: o.For.Seconds(), Checked: map[int]int{}, Faults: map[string]int{}, Reasons: map[string]int{}, Ends: map[string]int{}, Notes: map[string]int{},
	}}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.stop = stop
	var all sync.WaitGroup
	for range o.Parallel {
		all.Go(func() { r.work(ctx) })
	}
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	r.report(ended)
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.total.Found, func(a, b Violation) int { return int(min(1, max(-1, int64(a.Seed)-int64(b.Seed)))) })
	return r.snapshot(), r.err
}

// Check says what is wrong with the options, or nil.
func (o Options) Check() error { return o.complete() }

func (o *Options) complete() error {
	if o.Kind == "" {
		o.Kind = KindFaults
	}
	if !fleet.ValidKind(o.Kind) {
		return fmt.Errorf("there is no kind of run %q; use one of %v", o.Kind, Kinds())
	}
	if o.Runs < 0 || o.For < 0 || o.Within < 0 {
		return errors.New("runs, durations and bounds are not negative")
	}
	if o.Runs == 0 && o.Within == 0 {
		o.Runs = 1
	}
	if o.For == 0 {
		o.For = DefaultFor
	}
	if o.Lines == 0 {
		o.Lines = DefaultLines
	}
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	if o.Trace != nil {
		o.Parallel = 1
	}
	return nil
}

// runner hands out seeds and adds up.
type runner struct {
	o     Options
	began time.Time
	stop  context.CancelFunc

	mu    sync.Mutex
	next  int
	total Result
	err   error
}

// take is the next seed, or none.
func (r *runner) take() (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.o.Runs > 0 && r.next >= r.o.Runs || r.o.Within > 0 && time.Since(r.began) > r.o.Within {
		return 0, false
	}
	r.next++
	return r.o.Seed + uint64(r.next-1), true
}

func (r *runner) work(ctx context.Context) {
	for ctx.Err() == nil {
		seed, ok := r.take()
		if !ok {
			return
		}
		result, err := fleet.Run(ctx, fleet.Options{Seed: seed, For: r.o.For, Kind: r.o.Kind, Lines: r.o.Lines, Trace: r.o.Trace})
		r.add(result, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && r.total.Violations == 0 {
		r.err = ctx.Err()
	}
}

// add enters one run.
func (r *runner) add(run *fleet.Result, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		// A violation that another run found stops this one: that is no error, and must not hide it.
		if r.err == nil && r.total.Violations == 0 {
			r.err = fmt.Errorf("run: %w", err)
		}
		return
	}
	t := &r.total
	t.Runs++
	t.Simulated += run.Simulated.Seconds()
	t.Decisions, t.Admitted, t.Commits, t.Revisions = t.Decisions+run.Decisions, t.Admitted+run.Admitted, t.Commits+run.Commits, t.Revisions+run.Revisions
	t.Exhausted += run.Periods
	t.Ends[run.End]++
	addTo(t.Checked, run.Checked)
	addTo(t.Faults, run.Faults)
	addTo(t.Reasons, run.Reasons)
	addTo(t.Notes, run.Notes)
	if run.Violation == nil {
		return
	}
	t.Violations++
	if len(t.Found) < mostViolations {
		t.Found = append(t.Found, r.violation(run))
	}
	if !r.o.Go {
		r.stop()
	}
}

func addTo[K comparable](sum, more map[K]int) {
	for k, n := range more {
		sum[k] += n
	}
}

func (r *runner) violation(run *fleet.Result) Violation {
	v := Violation{
		Invariant: run.Violation.Invariant, Seed: run.Seed, Kind: run.Kind, At: run.Violation.At.Seconds(), Detail: run.Violation.Detail,
		World: run.Plan, Trace: textOf(run.Lines), Replay: fmt.Sprintf("tranche simulate --seed %d --for %s", run.Seed, r.o.For),
	}
	if run.Kind != KindFaults {
		v.Replay += " --kind " + run.Kind
	}
	v.Replay += " --trace -"
	return v
}

func textOf(lines []world.Line) (text []string) {
	for _, l := range lines {
		line := l.Append(nil)
		text = append(text, string(line[:len(line)-1]))
	}
	return text
}

// snapshot is the sum so far.
func (r *runner) snapshot() Result {
	t := r.total
	t.Took = time.Since(r.began).Seconds()
	t.Speed = t.Simulated / t.Took
	t.Checked, t.Faults, t.Reasons, t.Ends = maps.Clone(t.Checked), maps.Clone(t.Faults), maps.Clone(t.Reasons), maps.Clone(t.Ends)
	t.Notes = maps.Clone(t.Notes)
	t.Found = slices.Clone(t.Found)
	return t
}

// report tells about the progress until the work has ended.
func (r *runner) report(ended <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			if r.o.Progress == nil {
				continue
			}
			r.mu.Lock()
			now := r.snapshot()
			r.mu.Unlock()
			r.o.Progress(now)
		}
	}
}
