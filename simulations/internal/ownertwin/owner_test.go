package ownertwin

import (
	"context"
	"os"
	"os/exec"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/ownertest"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// speed is how many times faster than real time the suite for real stores runs here.
const speed = 20

// served is an owner of a world that runs on a goroutine of its own, for callers outside of it.
type served struct {
	owner   *Owner
	process *world.Process
}

func do(ctx context.Context, p *world.Process, name string, f func(ctx context.Context) error) error {
	var result error
	if err := p.Do(ctx, name, func(ctx context.Context) { result = f(ctx) }); err != nil {
		return err
	}
	return result
}

func ask[T any](ctx context.Context, p *world.Process, name string, f func(ctx context.Context) (T, error)) (value T, err error) {
	err = do(ctx, p, name, func(ctx context.Context) (err error) {
		value, err = f(ctx)
		return err
	})
	return value, err
}

func (s served) NewWriter(ctx context.Context, name string) (regional.Writer, error) {
	w, err := ask(ctx, s.process, "writer", func(ctx context.Context) (regional.Writer, error) { return s.owner.NewWriter(ctx, name) })
	if err != nil {
		return nil, err
	}
	return servedWriter{w.(*writer), s.process}, nil
}

func (s served) Load(ctx context.Context, after int64) (regional.Loaded, error) {
	return ask(ctx, s.process, "load", func(ctx context.Context) (regional.Loaded, error) { return s.owner.Load(ctx, after) })
}

func (s served) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	b, err := ask(ctx, s.process, "begin", func(ctx context.Context) (regional.Batch, error) {
		return s.owner.Begin(ctx, w.(servedWriter).writer, want)
	})
	if err != nil {
		return nil, err
	}
	return servedBatch{b.(*batch), s.process}, nil
}

func (s served) Peek(ctx context.Context, want regional.Want) (regional.Seen, error) {
	return ask(ctx, s.process, "peek", func(ctx context.Context) (regional.Seen, error) { return s.owner.Peek(ctx, want) })
}

func (s served) Turn(ctx context.Context, node string, lasts time.Duration) (bool, error) {
	return ask(ctx, s.process, "turn", func(ctx context.Context) (bool, error) { return s.owner.Turn(ctx, node, lasts) })
}

func (s served) Fullest(ctx context.Context, limit int) ([]allocation.Usage, error) {
	return ask(ctx, s.process, "fullest", func(ctx context.Context) ([]allocation.Usage, error) { return s.owner.Fullest(ctx, limit) })
}

func (s served) Statements(ctx context.Context, w regional.Writer, acknowledged map[int]int64) (allocation.SyncCall, error) {
	return ask(ctx, s.process, "statements", func(ctx context.Context) (allocation.SyncCall, error) {
		return s.owner.Statements(ctx, w.(servedWriter).writer, acknowledged)
	})
}

func (s served) Apply(ctx context.Context, w regional.Writer, answer allocation.SyncAnswer, observedAt int64) error {
	return do(ctx, s.process, "apply", func(ctx context.Context) error {
		return s.owner.Apply(ctx, w.(servedWriter).writer, answer, observedAt)
	})
}

func (s served) ResumeWriter(mark allocation.Mark) regional.Writer {
	var w regional.Writer
	_ = do(context.Background(), s.process, "resume", func(context.Context) error { w = s.owner.ResumeWriter(mark); return nil })
	return servedWriter{w.(*writer), s.process}
}

func (s served) Look(ctx context.Context, w regional.Writer) (regional.Look, error) {
	return ask(ctx, s.process, "look", func(ctx context.Context) (regional.Look, error) {
		return s.owner.Look(ctx, w.(servedWriter).writer)
	})
}

func (s served) StateHeld(ctx context.Context, w regional.Writer, from int) (call allocation.SyncCall, next int, err error) {
	err = do(ctx, s.process, "held", func(ctx context.Context) (err error) {
		call, next, err = s.owner.StateHeld(ctx, w.(servedWriter).writer, from)
		return err
	})
	return call, next, err
}

func (s served) Lift(ctx context.Context, w regional.Writer, was allocation.Reason) error {
	return do(ctx, s.process, "lift", func(ctx context.Context) error { return s.owner.Lift(ctx, w.(servedWriter).writer, was) })
}

func (s served) Lose(ctx context.Context, writer, detail string) (bool, error) {
	return ask(ctx, s.process, "lose", func(ctx context.Context) (bool, error) { return s.owner.Lose(ctx, writer, detail) })
}

func (s served) StartOver(ctx context.Context, call allocation.SyncCall, answer allocation.SyncAnswer) (regional.StartedOver, error) {
	return ask(ctx, s.process, "start over", func(ctx context.Context) (regional.StartedOver, error) {
		return s.owner.StartOver(ctx, call, answer)
	})
}

func (s served) Seal(ctx context.Context, incarnation string) (allocation.Seal, error) {
	return ask(ctx, s.process, "seal", func(ctx context.Context) (allocation.Seal, error) { return s.owner.Seal(ctx, incarnation) })
}

func (s served) HandOver(ctx context.Context, step regional.HandoverStep, asked regional.Handover, recorded allocation.Home) (regional.Handover, error) {
	return ask(ctx, s.process, "hand over", func(ctx context.Context) (regional.Handover, error) {
		return s.owner.HandOver(ctx, step, asked, recorded)
	})
}

func (s served) Close(ctx context.Context, w regional.Writer, upTo allocation.Instant, grace allocation.Duration) (allocation.Instant, error) {
	return ask(ctx, s.process, "close", func(ctx context.Context) (allocation.Instant, error) {
		return s.owner.Close(ctx, w.(servedWriter).writer, upTo, grace)
	})
}

func (s served) Tidy(ctx context.Context, w regional.Writer, retention allocation.Duration, monotonic func(int) allocation.Duration) (string, error) {
	return ask(ctx, s.process, "tidy", func(ctx context.Context) (string, error) {
		return s.owner.Tidy(ctx, w.(servedWriter).writer, retention, monotonic)
	})
}

func (s served) Lapsed(ctx context.Context, limit int) ([]allocation.IDKey, error) {
	return ask(ctx, s.process, "lapsed", func(ctx context.Context) ([]allocation.IDKey, error) { return s.owner.Lapsed(ctx, limit) })
}

func (s served) Reservations(ctx context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error) {
	return ask(ctx, s.process, "reservations", func(ctx context.Context) ([]allocation.Admission, error) {
		return s.owner.Reservations(ctx, after, limit)
	})
}

func (s served) Charged(ctx context.Context, q regional.ChargedQuery) (regional.Charged, error) {
	return ask(ctx, s.process, "charged", func(ctx context.Context) (regional.Charged, error) { return s.owner.Charged(ctx, q) })
}

func (s served) PutDocument(ctx context.Context, d allocation.Document) (bool, error) {
	return ask(ctx, s.process, "document", func(ctx context.Context) (bool, error) { return s.owner.PutDocument(ctx, d) })
}

func (s served) Export(ctx context.Context, after string, limit int) (regional.Account, error) {
	return ask(ctx, s.process, "export", func(ctx context.Context) (regional.Account, error) { return s.owner.Export(ctx, after, limit) })
}

type servedWriter struct {
	*writer
	process *world.Process
}

func (w servedWriter) Mark() (m allocation.Mark) {
	_ = do(context.Background(), w.process, "mark", func(context.Context) error { m = w.writer.Mark(); return nil })
	return m
}

func (w servedWriter) Vouch(lineage string) {
	_ = do(context.Background(), w.process, "vouch", func(context.Context) error { w.writer.Vouch(lineage); return nil })
}

func (w servedWriter) Resolve(ctx context.Context) (bool, error) {
	return ask(ctx, w.process, "resolve", w.writer.Resolve)
}

func (w servedWriter) End(ctx context.Context) error { return do(ctx, w.process, "end", w.writer.End) }

type servedBatch struct {
	*batch
	process *world.Process
}

// Commit is begun also with a context that has ended: that bounds only the wait.
func (b servedBatch) Commit(ctx context.Context, writes regional.Writes) error {
	return do(context.WithoutCancel(ctx), b.process, "commit", func(own context.Context) error {
		if ctx.Err() != nil {
			ended, cancel := context.WithCancel(own)
			cancel()
			own = ended
		}
		return b.batch.Commit(own, writes)
	})
}

func (b servedBatch) Abandon() {
	_ = do(context.Background(), b.process, "abandon", func(context.Context) error { b.batch.Abandon(); return nil })
}

func open(t *testing.T, idle bool) ownertest.Opened {
	w := world.New(world.Options{Seed: 1, Start: time.Now()})
	n := network.New(w)
	db := New(n, w, NewTruth(), "postgres", ownertest.Region)
	if !idle {
		db.LockTimeout = time.Hour
	}
	if rule := os.Getenv(breakVariable); rule != "" {
		reflect.ValueOf(&db.Breaks).Elem().FieldByName(rule).SetBool(true)
	}
	endpoint := NewEndpoint(db)
	one, two := w.Process("node-1"), w.Process("node-2")
	one.Serve()
	two.Serve()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx, speed) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.Close()
	})
	return ownertest.Opened{Owner: served{NewOwner(endpoint, one, ownertest.Region), one}, Other: served{NewOwner(endpoint, two, ownertest.Region), two}, Idle: idle}
}

// The twin must keep the contract that the store on Postgres keeps, or what is proven in simulation says nothing.
func TestConformance(t *testing.T) { ownertest.Run(t, open) }

// breakVariable names a rule for the twin to leave out, in a process of its own.
const breakVariable = "TRANCHE_TWIN_BREAK"

// A suite that has never been seen to fail proves nothing: each rule that the twin can leave out must be missed.
func TestSuiteBites(t *testing.T) {
	if os.Getenv(breakVariable) != "" {
		return
	}
	for rule, test := range map[string]string{
		"NoMark": "a_writer_whose_mark_is_gone", "NoSwitchLock": "close_waits_for_batches", "LookUpFirst": "a_lock_that_is_waited_for",
		"OpenTableOnly": "id_tables", "StaleShare": "a_row_is_read_after_the_wait", "NoShareLock": "a_grant_waits_for_rows_being_made",
		"CommitMismatched": "exactly_what_was_decided", "NoUsageLock": "a_row_is_read_after_the_wait", "NoIDConstraint": "one_id_twice",
		"AnyGeneration": "generations", "CloseByCaller": "close", "KeepHeld": "start_over",
		"HandedGoesOn": "hand_over", "ForgetEnded": "an_ended_writer_is_remembered",
	} {
		t.Run(rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestConformance$/^"+test+"$")
			c.Env = append(os.Environ(), breakVariable+"="+rule)
			if out, err := c.CombinedOutput(); err == nil {
				t.Errorf("%s passed without the rule:\n%s", test, out)
			}
		})
	}
	// UnloggedIDs, AcceptWarnings and MarkOutside show only when the server crashes, fails over, or is restored between two
	// calls: that is for the simulator's runs.
	if fields := reflect.TypeFor[Breaks]().NumField(); fields != 14+3 {
		t.Errorf("%d rules can be left out; name the test that misses each", fields)
	}
}
