package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"tranche/coordinator"
)

// Two leaders at once would do background work twice; a leadership that is never handed over, none at all.
func testLeadership(t *testing.T, s coordinator.Store) {
	const candidates = 3
	type term struct {
		candidate int
		end       context.CancelFunc
	}
	var working atomic.Int32
	terms, ended := make(chan term), make(chan error, candidates)
	for i := range candidates {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			ended <- s.Lead(ctx, "one", func(ctx context.Context) error {
				if n := working.Add(1); n != 1 {
					t.Errorf("%d leaders at once", n)
				}
				defer working.Add(-1)
				terms <- term{i, cancel}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
	}
	led := map[int]bool{}
	for range candidates {
		now := receive(t, terms)
		if led[now.candidate] {
			t.Fatalf("candidate %d leads again", now.candidate)
		}
		led[now.candidate] = true
		now.end()
		if err := receive(t, ended); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// Work that returns must give the leadership up and be called again; another name is another leadership.
func testLeadershipGivenUp(t *testing.T, s coordinator.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs, other, ended := make(chan int), make(chan int), make(chan error, 2)
	go func() {
		n := 0
		ended <- s.Lead(ctx, "returns", func(context.Context) error {
			n++
			runs <- n
			if n == 1 {
				return errors.New("on its own")
			}
			<-ctx.Done()
			return nil
		})
	}()
	go func() {
		ended <- s.Lead(ctx, "other", func(ctx context.Context) error {
			other <- 1
			<-ctx.Done()
			return nil
		})
	}()
	receive(t, other)
	for want := 1; want <= 2; want++ {
		if n := receive(t, runs); n != want {
			t.Fatalf("run %d, want %d", n, want)
		}
	}
	cancel()
	for range 2 {
		if err := receive(t, ended); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// An operator must see at least one healthy member and who leads.
func testMembers(t *testing.T, s coordinator.Store) {
	ctx, cancel := deadline(t)
	defer cancel()
	members, err := s.Members(ctx)
	if err != nil {
		t.Fatal(err)
	}
	leaders := 0
	for _, m := range members {
		if !m.Healthy || m.Name == "" {
			t.Errorf("%+v", m)
		}
		if m.Leader {
			leaders++
		}
	}
	if leaders != 1 {
		t.Fatalf("%d leaders among %+v", leaders, members)
	}
}
