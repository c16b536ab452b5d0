package regional

import (
	"context"
	"testing"
	"time"
)

// waited is how long a lane waited each time before it began; the clock goes on by that.
type waited struct {
	queue
	at    time.Time
	waits []time.Duration
}

func newWaited() *waited {
	w := &waited{at: time.Unix(0, 0)}
	w.queue = queue{some: Real{}.NewSignal(), now: func() time.Time { return w.at }, within: w.over}
	return w
}

func (w *waited) over(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	w.waits = append(w.waits, d)
	w.at = w.at.Add(d)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

func (w *waited) fill(n int) {
	for range n {
		w.push(&call{deadline: w.at.Add(time.Minute)})
	}
}

// Two lanes that spend from one budget wait for each other in the database: with a few requests each, every one of them
// pays for a transaction that could have had many more.
func TestLanesDoNotBeginWithLessThanOthersHave(t *testing.T) {
	const takes = 8 * time.Millisecond
	for name, c := range map[string]struct {
		flying, waiting int
		holds           bool
	}{
		"nobody else is at work":         {flying: 0, waiting: 1},
		"much less than the other has":   {flying: 100, waiting: 40, holds: true},
		"one less":                       {flying: 100, waiting: 99, holds: true},
		"as many as the other has":       {flying: 100, waiting: 100},
		"one, beside one":                {flying: 1, waiting: 1},
		"more than the other has":        {flying: 3, waiting: 50},
		"nothing yet to be fair against": {flying: 0, waiting: 300},
	} {
		w, seen := newWaited(), 0
		w.began(c.flying)
		w.ended(c.flying, takes)
		if c.flying > 0 {
			w.began(c.flying)
		}
		w.fill(c.waiting)
		if got := w.wait(t.Context(), nil, MaxBatchRequests, &seen); len(got) != c.waiting {
			t.Errorf("%s: a lane took %d of %d", name, len(got), c.waiting)
		}
		switch {
		case !c.holds && len(w.waits) > 0:
			t.Errorf("%s: a lane held back for %v", name, w.waits)
		case c.holds && (len(w.waits) != 1 || w.waits[0] < takes || w.waits[0] > 2*takes):
			t.Errorf("%s: a lane held back for %v, where a batch takes %s", name, w.waits, takes)
		}
	}
}

// A lane whose transaction hangs must not keep the others from work, however slow batches were before.
func TestNoLaneHoldsBackForLong(t *testing.T) {
	w, seen := newWaited(), 0
	for range 10 {
		w.began(100)
		w.ended(100, 10*time.Second)
	}
	w.began(100)
	w.fill(10)
	w.at = w.at.Add(holdMost / 4) // they have waited for so long already
	if got := w.wait(t.Context(), nil, MaxBatchRequests, &seen); len(got) != 10 {
		t.Errorf("a lane took %d of 10", len(got))
	}
	if len(w.waits) != 1 || w.waits[0] != holdMost-holdMost/4 {
		t.Errorf("a lane held back for %v, want %s", w.waits, holdMost-holdMost/4)
	}
}

// A lane that holds back is woken when enough has come, and not by each request on the way.
func TestEnoughWakesALane(t *testing.T) {
	w := newWaited()
	w.began(10)
	woken := func() bool {
		select {
		case <-w.some.(channelSignal):
			return true
		default:
			return false
		}
	}
	for i := 1; i <= 12; i++ {
		w.fill(1)
		if got, want := woken(), i == 1 || i >= 10; got != want {
			t.Errorf("after %d requests beside 10: woken is %v", i, got)
		}
	}
	w.ended(10, time.Millisecond)
	if w.fill(1); !woken() {
		t.Error("nobody is at work, and a request wakes nobody")
	}
}
