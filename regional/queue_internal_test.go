package regional

import (
	"testing"
	"time"
)

// A queue that is longer than its lanes can work off within a deadline makes all of its callers late, those that could have
// been served too.
func TestLongQueueRefusesInTime(t *testing.T) {
	now := time.Unix(0, 0)
	q := queue{some: Real{}.NewSignal(), now: func() time.Time { return now }}
	push := func(n int) (taken int) {
		for range n {
			if q.push(&call{deadline: now.Add(time.Second)}) {
				taken++
			}
		}
		return taken
	}
	if taken := push(3 * MaxBatchRequests); taken != 3*MaxBatchRequests {
		t.Fatalf("%d were taken before anything is known of the lanes", taken)
	}
	for range 4 { // 6,000 a second
		now = now.Add(100 * time.Millisecond)
		q.take(nil, 600)
	}
	// A quarter of a second is for 1,500; 600 wait.
	if taken := push(MaxBatchRequests - 600); taken != MaxBatchRequests-600 {
		t.Errorf("%d were taken, of what one batch takes", taken)
	}
	if taken := push(MaxBatchRequests); taken < 490 || taken > 510 {
		t.Errorf("%d more were taken, want 500", taken)
	}
	q.take(nil, queueMost)
	if taken := push(3 * MaxBatchRequests); taken != 3*MaxBatchRequests {
		t.Errorf("%d were taken once the lanes had emptied the queue", taken)
	}
}
