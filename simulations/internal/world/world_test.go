package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The services will declare this; if it stopped compiling they could not run here.
type runtimeOfServices interface {
	Now() time.Time
	Go(name string, f func())
	Sleep(ctx context.Context, d time.Duration)
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	NewSignal() interface {
		Notify()
		Wait(ctx context.Context)
	}
	Jitter(d time.Duration) time.Duration
}

var _ runtimeOfServices = (*Process)(nil)

func newWorld(t *testing.T, o Options) *World {
	t.Helper()
	w := New(o)
	t.Cleanup(w.Close)
	return w
}

func run(t *testing.T, w *World, d time.Duration) {
	t.Helper()
	if err := w.Run(d); err != nil {
		t.Fatal(err)
	}
}

// play is a small world with waits of every kind, crashes, pauses and wrong clocks.
func play(t *testing.T, seed uint64) []byte {
	var out bytes.Buffer
	w := newWorld(t, Options{Seed: seed, Trace: &out, Switches: true})
	var all []*Process
	for i := range 5 {
		p := w.Process(fmt.Sprintf("p%d", i))
		all = append(all, p)
		p.Drift(int64(p.Random().IntN(2000) - 1000))
		p.Start(func(ctx context.Context) { playMain(p, ctx) })
	}
	w.Go("faults", func() {
		ctx, faults := context.Background(), w.Random("faults")
		for range 50 {
			w.Outside().Sleep(ctx, time.Duration(faults.IntN(int(time.Second))))
			p := all[faults.IntN(len(all))]
			switch faults.IntN(5) {
			case 0:
				if p.Crash(); !p.Up() {
					p.Start(func(ctx context.Context) { playMain(p, ctx) })
				}
			case 1:
				p.Pause()
			case 2:
				p.Resume()
			case 3:
				p.Jump(time.Duration(faults.IntN(int(time.Hour))) - time.Hour/2)
			case 4:
				p.Stop()
			}
		}
		for _, p := range all {
			p.Resume()
			p.Stop()
		}
	})
	run(t, w, time.Hour)
	return out.Bytes()
}

func playMain(p *Process, ctx context.Context) {
	w, s, lock := p.World(), p.NewSignal(), p.World().NewLock()
	for i := range 3 {
		p.Go(fmt.Sprint("worker-", i), func() {
			for ctx.Err() == nil {
				bounded, cancel := p.WithTimeout(ctx, time.Duration(p.Random().IntN(int(100*time.Millisecond))))
				derived, end := context.WithCancel(bounded)
				s.Wait(derived)
				if lock.Take(ctx) == nil {
					w.Trace("worked", fmt.Sprint(p.Now().UTC().Format(time.RFC3339Nano), bounded.Err()))
					w.Point()
					lock.Give()
				}
				end()
				cancel()
			}
		})
	}
	for ctx.Err() == nil {
		p.Sleep(ctx, time.Duration(p.Random().IntN(int(50*time.Millisecond))))
		s.Notify()
	}
}

// If two runs of one seed differed in one byte, a violation could not be replayed.
func TestSameSeedSameTrace(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(8) {
		first := play(t, seed)
		before := runtime.GOMAXPROCS(1 + int(seed)%2)
		second := play(t, seed)
		runtime.GOMAXPROCS(before)
		if !bytes.Equal(first, second) {
			t.Fatalf("seed %d: two runs differ", seed)
		}
		if other, ok := seen[string(first)]; ok {
			t.Fatalf("seeds %d and %d: the same trace", seed, other)
		}
		seen[string(first)] = seed
		if len(first)%LineWidth != 0 || len(first) < 100*LineWidth {
			t.Fatalf("a trace of %d bytes", len(first))
		}
		for line := range bytes.Lines(first) {
			if len(line) != LineWidth {
				t.Fatalf("a line of %d bytes: %q", len(line), line)
			}
		}
	}
}

// A context of the simulated time must be indistinguishable from a real one, also through what was derived from it.
func TestWithTimeout(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	p.Start(func(ctx context.Context) {
		began := p.Now()
		outer, cancelOuter := p.WithTimeout(ctx, time.Second)
		defer cancelOuter()
		inner, cancelInner := p.WithTimeout(outer, time.Hour)
		defer cancelInner()
		derived, end := context.WithCancel(inner)
		defer end()
		more, cancelMore := p.WithTimeout(derived, time.Hour)
		defer cancelMore()
		if deadline, ok := more.Deadline(); !ok || deadline.Sub(began) != time.Second {
			t.Errorf("deadline %v", deadline.Sub(began))
		}
		p.Sleep(more, time.Minute)
		if passed := p.Now().Sub(began); passed != time.Second {
			t.Errorf("slept %s", passed)
		}
		for i, c := range []context.Context{outer, inner, derived, more} {
			if c.Err() != context.DeadlineExceeded {
				t.Errorf("context %d: %v", i, c.Err())
			}
		}
		free, cancelFree := p.WithTimeout(context.WithoutCancel(more), time.Second)
		if free.Err() != nil {
			t.Error(free.Err())
		}
		cancelFree()
		if free.Err() != context.Canceled {
			t.Error(free.Err())
		}
	})
	run(t, w, time.Hour)
}

// A cancel of package context, which the world does not see, must end a wait at once.
func TestCancelOfOthers(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	p.Start(func(ctx context.Context) {
		derived, cancel := context.WithCancel(ctx)
		timed, stop := p.WithTimeout(derived, time.Hour)
		defer stop()
		p.Go("other", func() { p.Sleep(ctx, time.Second); cancel() })
		p.Sleep(timed, time.Minute)
		if timed.Err() != context.Canceled || w.Elapsed() != time.Second {
			t.Errorf("%v after %s", timed.Err(), w.Elapsed())
		}
	})
	run(t, w, time.Hour)
}

// A signal that is lost stops a service for ever; one that wakes twice makes it do work twice.
func TestSignal(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	p.Start(func(ctx context.Context) {
		s := p.NewSignal()
		s.Notify()
		s.Notify()
		s.Wait(ctx)
		bounded, cancel := p.WithTimeout(ctx, time.Second)
		defer cancel()
		if s.Wait(bounded); bounded.Err() == nil {
			t.Error("one wait too many returned")
		}
		woken := 0
		for range 2 {
			p.Go("waiter", func() { s.Wait(ctx); woken++ })
		}
		p.Sleep(ctx, time.Second)
		s.Notify()
		if p.Sleep(ctx, time.Second); woken != 1 {
			t.Errorf("%d woken", woken)
		}
		s.Notify()
	})
	run(t, w, time.Hour)
}

// Whatever a crashed process defers must not happen, and must not hang.
func TestCrash(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	deferred, after := 0, 0
	p.Start(func(ctx context.Context) {
		for range 3 {
			p.Go("task", func() {
				defer func() {
					deferred++
					for { // a loop that only a real end of the process ends
						p.Sleep(ctx, time.Second)
						after++
					}
				}()
				p.Sleep(ctx, time.Hour)
				after++
			})
		}
		p.Go("suicide", func() {
			p.Sleep(ctx, time.Minute)
			defer func() { p.Now(); after++ }()
			p.Crash()
			after++
		})
		p.Sleep(ctx, time.Hour)
		after++
	})
	ended := 0
	p.OnEnd(func() { ended++ })
	run(t, w, time.Hour)
	if deferred != 3 || after != 0 || ended != 1 || p.Up() {
		t.Fatalf("%d deferred, %d after, ended %d times, up %v", deferred, after, ended, p.Up())
	}
	again := false
	p.Start(func(context.Context) { again = true })
	run(t, w, time.Hour)
	if !again || p.Up() || p.Lives() != 2 {
		t.Fatal("it did not start again")
	}
}

// A paused process must miss what happens, and then go on.
func TestPause(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	var ticks []time.Duration
	p.Start(func(ctx context.Context) {
		for range 3 {
			p.Sleep(ctx, time.Second)
			ticks = append(ticks, w.Elapsed())
		}
	})
	w.After(1500*time.Millisecond, p.Pause)
	w.After(10*time.Second, p.Resume)
	run(t, w, time.Hour)
	if fmt.Sprint(ticks) != "[1s 10s 11s]" {
		t.Fatal(ticks)
	}
}

// A clock that jumps changes what it shows, not how long things take.
func TestClock(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	p.Start(func(ctx context.Context) {
		p.Drift(1000)
		began := p.Now()
		p.Sleep(ctx, 1000*time.Second)
		p.Jump(-time.Hour)
		passed := p.Now().Sub(began)
		if off := (passed - 1000*time.Second).Abs(); off > 10*time.Millisecond {
			t.Errorf("%s passed by the clock", passed)
		}
		if off := w.Elapsed() - 999*time.Second; off.Abs() > 10*time.Millisecond {
			t.Errorf("%s passed in the world", w.Elapsed())
		}
		if wall := p.Now().Round(0).Sub(began.Round(0)); wall > 0 {
			t.Errorf("the clock did not go back: %s", wall)
		}
		if p.Right(); p.Off() != 0 {
			t.Error(p.Off())
		}
	})
	run(t, w, time.Hour)
}

// Without the place where each task waits, nobody could find out why a world stands still.
func TestDeadlock(t *testing.T) {
	w := newWorld(t, Options{Seed: 3})
	p := w.Process("p")
	p.Start(func(ctx context.Context) { waitForNobody(p, ctx) })
	err := w.Run(time.Hour)
	var deadlock *Deadlock
	if !errors.As(err, &deadlock) || len(deadlock.Tasks) != 1 || deadlock.Tasks[0].Process != "p" {
		t.Fatal(err)
	}
	if !strings.Contains(err.Error(), "waitForNobody") || !strings.Contains(err.Error(), "world_test.go") || !strings.Contains(err.Error(), "a signal") {
		t.Fatal(err)
	}
}

func waitForNobody(p *Process, ctx context.Context) { p.NewSignal().Wait(ctx) }

// A panic of a service is a finding, not the end of the simulator.
func TestPanic(t *testing.T) {
	w := newWorld(t, Options{})
	p := w.Process("p")
	p.Start(func(context.Context) { panic("oh") })
	if err := w.Run(time.Hour); err == nil || !strings.Contains(err.Error(), "panic: oh") {
		t.Fatal(err)
	}
}

// What is timed at the speed of the machine would make long runs impossible.
func BenchmarkPoints(b *testing.B) {
	w := New(Options{Seed: 1, Ring: -1})
	defer w.Close()
	for i := range 70 {
		p := w.Process(fmt.Sprint("p", i))
		p.Start(func(ctx context.Context) {
			for {
				p.Sleep(ctx, time.Duration(p.Random().IntN(int(time.Millisecond))))
			}
		})
	}
	b.ResetTimer()
	for w.Stats().Points < uint64(b.N) {
		if err := w.Run(100 * time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(w.Stats().Points)/b.Elapsed().Seconds(), "points/s")
}
