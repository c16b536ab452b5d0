package regional

import (
	"fmt"
	"sync"
	"testing"

	"tranche/allocation"
)

func refusedAt(minute int64, tenant string) refusedOf {
	return refusedOf{at: minute * refusedEvery, seriesOf: seriesOf{tenant: tenant}, priority: allocation.Interactive, reason: allocation.CeilingReached}
}

// Refusals are counted while counts are taken, and while their minutes end: if one is lost, or counted twice, what people are told
// of refusals is not what callers were told.
func TestRefusalsAreCountedOnce(t *testing.T) {
	const callers, each = 8, 5000
	var c refusedCounts
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range each {
				c.add(refusedAt(int64(n/500), fmt.Sprint("t", (i+n)%5)), refusedSum{1, 3})
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	var requests, units int64
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
		}
		for _, one := range c.take() {
			requests, units = requests+one.Requests, units+one.Units
		}
	}
	if requests != callers*each || units != 3*callers*each {
		t.Errorf("%d requests and %d units are counted, of %d and %d", requests, units, callers*each, 3*callers*each)
	}
}

// What is over is forgotten once it was taken, or a node would hold every minute that it ever saw.
func TestMinutesThatAreOverAreForgotten(t *testing.T) {
	var c refusedCounts
	for minute := range int64(100) {
		c.add(refusedAt(minute, "acme"), refusedSum{1, 1})
		c.add(refusedAt(minute, "acme"), refusedSum{1, 1})
		if got := c.take(); len(got) != 1 || got[0].Requests != 2 || got[0].At != minute*refusedEvery {
			t.Fatalf("minute %d: %+v", minute, got)
		}
	}
	if got := c.take(); len(got) != 0 {
		t.Errorf("told twice: %+v", got)
	}
	if n := len(*c.known.Load()); n > 2 {
		t.Errorf("%d counts are held", n)
	}
}

// A refusal like one before it takes no lock: under load nearly all are.
func TestNoLockForARefusal(t *testing.T) {
	var c refusedCounts
	c.add(refusedAt(1, "acme"), refusedSum{1, 1})
	c.mu.Lock()
	c.add(refusedAt(1, "acme"), refusedSum{1, 1}) // it would wait for ever
	c.mu.Unlock()
	if got := c.take(); len(got) != 1 || got[0].Requests != 2 {
		t.Errorf("%+v", got)
	}
}
