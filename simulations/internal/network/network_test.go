package network

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tranche/allocation"
	"tranche/simulations/internal/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pairOf runs a client against a server that counts what it served.
func pairOf(t *testing.T, seed uint64, client func(ctx context.Context, n *Net, c, s *world.Process)) {
	t.Helper()
	w := world.New(world.Options{Seed: seed})
	defer w.Close()
	n := New(w)
	c, s := w.Process("client"), w.Process("server")
	s.Serve()
	c.Start(func(ctx context.Context) { client(ctx, n, c, s) })
	if err := w.Run(time.Hour); err != nil {
		t.Fatal(err)
	}
}

func call(ctx context.Context, n *Net, c, s *world.Process, kind Kind, served *int) error {
	_, err := Call(ctx, n, c, s, kind, "count", func(context.Context) int { *served++; return *served })
	return err
}

// Each fault must do what it is named after, or the simulator would claim to have shown what it never tried.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		kind   Kind
		faults func(there, back *Conditions)
		served int
		err    error
	}{
		"none":          {Exchange, func(_, _ *Conditions) {}, 1, nil},
		"cut":           {Exchange, func(there, _ *Conditions) { there.Cut = true }, 0, context.DeadlineExceeded},
		"cut back only": {Exchange, func(_, back *Conditions) { back.Cut = true }, 1, context.DeadlineExceeded},
		"lost":          {Exchange, func(there, _ *Conditions) { there.Lose = 1 }, 0, context.DeadlineExceeded},
		"answer lost":   {Exchange, func(_, back *Conditions) { back.Lose = 1 }, 1, context.DeadlineExceeded},
		"repeated":      {Exchange, func(there, _ *Conditions) { there.Repeat = 1 }, 2, nil},
		"not repeated":  {Connection, func(there, _ *Conditions) { there.Repeat = 1 }, 1, nil},
		"late":          {Exchange, func(there, _ *Conditions) { there.Late, there.LateMost = 1, 100*time.Hour }, 0, context.DeadlineExceeded},
		// A connection that is silent is given up: nobody waits for ever.
		"silent":      {Connection, func(there, _ *Conditions) { there.Late, there.LateMost = 1, 100*time.Hour }, 0, ErrBroken},
		"silent back": {Connection, func(_, back *Conditions) { back.Cut = true }, 1, ErrBroken},
		"gone":        {Connection, func(there, _ *Conditions) { there.Lose = 1 }, 0, ErrBroken},
	} {
		t.Run(name, func(t *testing.T) {
			served := 0
			pairOf(t, 1, func(ctx context.Context, n *Net, c, s *world.Process) {
				test.faults(n.Link("client", "server"), n.Link("server", "client"))
				bounded, cancel := c.WithTimeout(ctx, time.Minute)
				defer cancel()
				if err := call(bounded, n, c, s, test.kind, &served); !errors.Is(err, test.err) {
					t.Errorf("%v, want %v", err, test.err)
				}
				c.Sleep(ctx, time.Minute)
			})
			if served != test.served {
				t.Errorf("served %d times, want %d", served, test.served)
			}
		})
	}
}

// A request arrives also after its caller has crashed or has stopped waiting: that is the write that lands late.
func TestArrivesAfterTheCaller(t *testing.T) {
	served := 0
	w := world.New(world.Options{})
	defer w.Close()
	n := New(w)
	n.Default.Least, n.Default.Most = time.Second, time.Second
	c, s := w.Process("client"), w.Process("server")
	s.Serve()
	c.Start(func(ctx context.Context) { _ = call(ctx, n, c, s, Connection, &served) })
	w.After(500*time.Millisecond, c.Crash)
	if err := w.Run(time.Minute); err != nil || served != 1 {
		t.Fatal(served, err)
	}
}

// A server that is down refuses; one that crashes breaks what it was serving.
func TestServerDown(t *testing.T) {
	pairOf(t, 1, func(ctx context.Context, n *Net, c, s *world.Process) {
		served := 0
		c.Go("crash", func() { c.Sleep(ctx, time.Second); s.Crash() })
		_, err := Call(ctx, n, c, s, Exchange, "slow", func(ctx context.Context) int { s.Sleep(ctx, time.Hour); served++; return 0 })
		if !errors.Is(err, ErrBroken) || served != 0 {
			t.Error(served, err)
		}
		if err := call(ctx, n, c, s, Exchange, &served); !errors.Is(err, ErrRefused) || served != 0 {
			t.Error(served, err)
		}
	})
}

// A region must try the next replica, and must not share memory with the one that answers.
func TestCoordinator(t *testing.T) {
	pairOf(t, 1, func(ctx context.Context, n *Net, c, s *world.Process) {
		down := c.World().Process("down")
		sync := func(_ context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			if len(call.Ended) == 0 {
				return allocation.SyncAnswer{}, errors.New("no")
			}
			call.Ended[0] = "changed"
			return allocation.SyncAnswer{Deployment: call.Deployment}, nil
		}
		at := NewCoordinator(n, c, Replica{down, sync}, Replica{s, sync})
		sent := allocation.SyncCall{Deployment: "d", Ended: []string{"kept"}}
		if _, err := at.Sync(ctx, sent); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		if answer, err := at.Sync(ctx, sent); err != nil || answer.Deployment != "d" || sent.Ended[0] != "kept" {
			t.Error(fmt.Sprint(answer, err, sent.Ended))
		}
		if _, err := at.Sync(ctx, allocation.SyncCall{}); err == nil {
			t.Error("the error was lost")
		}
	})
}

// Behind a load balancer a region speaks to one replica after the other, also while all of them answer.
func TestBalanced(t *testing.T) {
	pairOf(t, 1, func(ctx context.Context, n *Net, c, s *world.Process) {
		var asked []int
		replica := func(number int) Replica {
			return Replica{s, func(context.Context, allocation.SyncCall) (allocation.SyncAnswer, error) {
				asked = append(asked, number)
				return allocation.SyncAnswer{}, nil
			}}
		}
		at := NewCoordinator(n, c, replica(0), replica(1))
		at.Balanced = true
		n.Far("client", "server", time.Second)
		before := c.World().Elapsed()
		for range 3 {
			if _, err := at.Sync(ctx, allocation.SyncCall{}); err != nil {
				t.Error(err)
			}
		}
		if fmt.Sprint(asked) != "[0 1 0]" {
			t.Errorf("asked were %v", asked)
		}
		if took := c.World().Elapsed() - before; took < 3*time.Second || took > 6*time.Second {
			t.Errorf("3 calls over links of 0.5 to 1 s took %s", took)
		}
	})
}
