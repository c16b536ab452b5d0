package coordinator_test

import (
	"context"
	"errors"
	"testing"

	"tranche/coordinator"
)

// Whatever becomes of an answer, the caller must hear the truth: the change is there once, at the revision that it was
// told, and a write that arrives late finds the fence.
func TestLostAnswers(t *testing.T) {
	etcd := openEtcd(t)
	for name, test := range map[string]struct {
		faults   map[int]fault // by number of the write; 1 is the change
		arriveAt int           // the delayed write arrives just before this one
		landed   int           // how many delayed writes took effect
	}{
		"before the effect":                     {faults: map[int]fault{1: lostBefore}},
		"after the effect":                      {faults: map[int]fault{1: lostAfter}},
		"fence lost before":                     {faults: map[int]fault{1: lostBefore, 2: lostBefore, 3: lostBefore}},
		"fence lost after":                      {faults: map[int]fault{1: lostBefore, 2: lostAfter}},
		"again lost":                            {faults: map[int]fault{1: lostBefore, 3: lostAfter}},
		"late, before the fence":                {faults: map[int]fault{1: late}, arriveAt: 2, landed: 1},
		"late, after the fence":                 {faults: map[int]fault{1: late}, arriveAt: 3},
		"late, after all":                       {faults: map[int]fault{1: late}},
		"late, fence late, both after another":  {faults: map[int]fault{1: late, 2: late}},
		"late, fence late, before the second":   {faults: map[int]fault{1: late, 2: late}, arriveAt: 3, landed: 1},
		"late, fence lost after, in between it": {faults: map[int]fault{1: late, 2: lostAfter}, arriveAt: 3},
	} {
		t.Run(name, func(t *testing.T) {
			store := &faultyStore{Store: etcd}
			landed := 0
			store.decide = func(n int, _ coordinator.Txn) fault {
				if n == test.arriveAt {
					landed += store.arrive(t)
				}
				return test.faults[n]
			}
			c, stop := running(t, store)
			first := coordinator.Item{Key: document(name)}
			revision, err := c.Commit(t.Context(), replace(first, "1"))
			if err != nil {
				t.Fatal(err)
			}
			got := read(t, store, first.Key)
			if string(got.Value) != "1" || got.Revision != revision {
				t.Fatalf("%+v, told revision %d", got, revision)
			}
			// The writer goes on as if nothing had been.
			next, err := c.Commit(t.Context(), replace(got, "2"))
			if err != nil {
				t.Fatal(err)
			}
			landed += store.arrive(t)
			if got := read(t, store, first.Key); string(got.Value) != "2" || got.Revision != next {
				t.Fatalf("%+v, told revision %d", got, next)
			}
			if err := stop(); err != nil || landed != test.landed {
				t.Fatalf("%d delayed writes took effect, want %d; %v", landed, test.landed, err)
			}
		})
	}
}

// A caller that cannot wait hears that the outcome is unknown, and its change is not tried again once it was fenced:
// it may have decided anew meanwhile.
func TestCallerLeavesWhileUnknown(t *testing.T) {
	store := &faultyStore{Store: openEtcd(t)}
	away, asked := make(chan struct{}), make(chan struct{}, 100)
	store.decide = func(n int, _ coordinator.Txn) fault {
		select {
		case <-away:
			return none
		default:
			asked <- struct{}{}
			return lostBefore
		}
	}
	c, _ := running(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		<-asked // the change and its fence were lost: it is unknown
		cancel()
	}()
	left := coordinator.Item{Key: document("left")}
	if _, err := c.Commit(ctx, replace(left, "1")); !errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	waiting, leave := context.WithCancel(t.Context())
	leave()
	if _, err := c.Commit(waiting, replace(left, "1")); !errors.Is(err, context.Canceled) || errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Fatalf("one that was never tried: %v", err)
	}
	close(away)
	if _, err := c.Commit(t.Context(), replace(coordinator.Item{Key: document("next")}, "1")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, store, left.Key); got.Revision != 0 {
		t.Fatalf("%+v was written for nobody", got)
	}
}

// A coordinator that stops while etcd is away must end, and say that it does not know.
func TestStopWhileUnknown(t *testing.T) {
	store := &faultyStore{Store: openEtcd(t)}
	asked := make(chan struct{}, 100)
	store.decide = func(int, coordinator.Txn) fault { asked <- struct{}{}; return lostBefore }
	c, stop := running(t, store)
	end := make(chan error, 1)
	go func() {
		_, err := c.Commit(t.Context(), replace(coordinator.Item{Key: document("a")}, "1"))
		end <- err
	}()
	<-asked
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-end; !errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if _, err := c.Commit(t.Context(), coordinator.Change{}); !errors.Is(err, coordinator.ErrStopped) {
		t.Fatal(err)
	}
}
