package coordinator

import "testing"

// What etcd keeps of old revisions must be bounded by the time in which they were written: of large ones 10,000 are more than
// it takes, and then no coordinator can write.
func TestCompactionFollowsTheTime(t *testing.T) {
	s := &Service{}
	for minute := range int64(20) {
		want := max(0, 100*(minute-compactSweeps))
		if got := s.compactTo(100 * minute); got != want {
			t.Errorf("minute %d: up to %d, want %d", minute, got, want)
		}
	}
	if got, want := s.compactTo(1_000_000), int64(1_000_000-compactKeep); got != want {
		t.Errorf("many small ones: up to %d, want %d", got, want)
	}
	for range compactSweeps {
		if got := s.compactTo(50); got > 50 {
			t.Errorf("etcd went back to 50, and is to forget what is before %d", got)
		}
	}
}
