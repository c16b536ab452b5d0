package coordinator

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// A turn that is lost, because whoever waited for it has gone, would stop every change of a budget for ever; one that is
// given to two at once would bring the conflicts back that the line is there to avoid.
func TestTurns(t *testing.T) {
	var all turns
	inside, done := 0, 0
	var wait sync.WaitGroup
	if err := all.take(t.Context(), Real{}); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		wait.Go(func() {
			err := all.take(ctx, Real{})
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			defer all.pass()
			if inside++; inside != 1 { // the race detector looks, too
				t.Errorf("%d at once", inside)
			}
			done++
			inside--
		})
		if i%3 == 0 {
			wait.Go(cancel)
		} else {
			defer cancel()
		}
	}
	all.pass()
	wait.Wait()
	if done < 133 || all.taken || len(all.line) != 0 {
		t.Errorf("%d had a turn; taken %v, %d wait", done, all.taken, len(all.line))
	}
}

// An act that waits while the replica ends must hear so, as must one that comes later.
func TestTurnsStop(t *testing.T) {
	var all turns
	if err := all.take(t.Context(), Real{}); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := all.take(t.Context(), Real{}); !errors.Is(err, ErrStopped) {
				t.Error(err)
			}
		})
	}
	all.stop()
	wait.Wait()
	all.pass()
	if err := all.take(t.Context(), Real{}); !errors.Is(err, ErrStopped) || len(all.line) != 0 {
		t.Errorf("%v, %d wait", err, len(all.line))
	}
}
