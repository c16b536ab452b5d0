package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"tranche/regional/postgres/baseline"
	"tranche/regional/postgres/cluster"
)

// Options say what is measured, and for how long.
type Options struct {
	Out, Err io.Writer
	JSON     bool
	Version  string
	// Cases are by name; none: those for users.
	Cases []string
	// All adds the further cases.
	All bool
	// Each is how long one arm is measured in one round.
	Each time.Duration
	// Rounds are how often the arms of a case take turns. A ratio is the median over them.
	Rounds int
	// Rate is that of the open loop, a second; 0: half of what the closed loop reached.
	Rate float64
	// Random ids are of UUID version 4, not 7.
	Random bool
	// Profiles is a folder for the processor's profile of each case; empty: none.
	Profiles string
	// Terminal says that progress may be written over itself.
	Terminal bool
}

// settings are those of the Postgres that is started, beside those of package cluster: what a small server of this size
// would have. The baselines run on the same one.
var settings = map[string]string{
	"shared_buffers": "512MB", "max_wal_size": "4GB", "min_wal_size": "2GB", "checkpoint_timeout": "15min",
}

// Segments of the write-ahead log, of 16 MB, that there are before anything is measured: about as many as the arms of one case fill,
// and fewer than min_wal_size keeps.
const (
	segmentsPerSecond = 20
	mostSegments      = 120
)

func (o *Options) segments() int {
	return min(mostSegments, int(segmentsPerSecond*o.Each.Seconds()*float64(o.Rounds)))
}

// bench is one run.
type bench struct {
	Options
	cluster *cluster.Cluster
	worlds  int
	shown   int // bytes of progress on the line
}

// errBooks says that what clients were told is not what the database holds.
var errBooks = errors.New("the books of a case do not agree")

// Run measures, and prints what came of it.
func Run(ctx context.Context, o Options) error {
	b := &bench{Options: o}
	chosen, err := b.chosen()
	if err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{Settings: settings})
	if err != nil {
		return err
	}
	b.cluster = c
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = c.Stop(end) // everything is measured; the folder goes with it
	}()
	report, err := b.measure(ctx, chosen)
	b.clear()
	if err != nil {
		return err
	}
	if err := b.print(report); err != nil {
		return err
	}
	if !report.Agree() {
		return errBooks
	}
	return nil
}

func (b *bench) measure(ctx context.Context, chosen []kase) (*Report, error) {
	r := &Report{
		Format: 1, At: time.Now().UTC().Truncate(time.Second), Version: b.Version,
		Machine: Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Settings: settings},
		Each:    b.Each.String(), Rounds: b.Rounds,
	}
	look, err := baseline.Look(ctx, b.cluster.URL("postgres"))
	if err != nil {
		return nil, err
	}
	if r.Machine.Postgres, err = look.Version(ctx); err == nil {
		err = look.Recycle(ctx, b.segments())
	}
	look.Close(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range chosen {
		result, err := b.profiled(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("case %s: %w", k.Name, err)
		}
		r.Cases = append(r.Cases, *result)
	}
	return r, nil
}

// profiled runs a case, with a profile if one is wanted.
func (b *bench) profiled(ctx context.Context, k kase) (*Case, error) {
	if b.Profiles != "" {
		if err := os.MkdirAll(b.Profiles, 0o755); err != nil {
			return nil, fmt.Errorf("make the folder of profiles: %w", err)
		}
		f, err := os.Create(b.Profiles + "/" + k.Name + ".cpu.pprof")
		if err != nil {
			return nil, fmt.Errorf("write a profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, fmt.Errorf("write a profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	result := &Case{Name: k.Name, What: k.What}
	if err := k.run(ctx, b, result); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return result, nil
}

// arm is one thing that is measured beside others.
type arm struct {
	name, what string
	run        func(ctx context.Context, d time.Duration) (tally, error)
}

// alternate measures the arms in rounds, every other one in the opposite order, and answers each arm's rounds.
func (b *bench) alternate(ctx context.Context, result *Case, arms ...arm) (map[string]*series, error) {
	all := map[string]*series{}
	for _, a := range arms {
		all[a.name] = &series{arm: a}
	}
	for round := range b.Rounds {
		order := slices.Clone(arms)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, a := range order {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			b.progress("%s, round %d of %d: %s …", result.Name, round+1, b.Rounds, a.name)
			used := processorTime(b.cluster.PID())
			t, err := a.run(ctx, b.Each)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.name, err)
			}
			t.cpu = processorTime(b.cluster.PID()) - used
			all[a.name].rounds = append(all[a.name].rounds, t)
			b.told("%s, round %d of %d: %s: %s a second, p50 %s, p99 %s", result.Name, round+1, b.Rounds, a.name,
				whole(t.rate()), short(t.latency.quantile(0.5)), short(t.latency.quantile(0.99)))
		}
	}
	for _, a := range arms {
		result.Measured = append(result.Measured, all[a.name].measured())
	}
	return all, nil
}

// progress shows what is being done, on a terminal on a line of its own that is written over.
func (b *bench) progress(format string, args ...any) {
	if !b.Terminal {
		return
	}
	text := fmt.Sprintf(format, args...)
	fmt.Fprint(b.Err, "\r"+text+strings.Repeat(" ", max(0, b.shown-len(text))))
	b.shown = len(text)
}

// told shows what has been done.
func (b *bench) told(format string, args ...any) {
	b.clear()
	fmt.Fprintf(b.Err, format+"\n", args...)
}

func (b *bench) clear() {
	if b.shown > 0 {
		fmt.Fprint(b.Err, "\r"+strings.Repeat(" ", b.shown)+"\r")
		b.shown = 0
	}
}
