package regional

import (
	"testing"

	"tranche/allocation"
)

// If this failed a region would say that it has stated all, when a replica that was behind had entered nothing of it: what
// it holds would be granted once more after the thaw.
func TestAFreezeGoesOnOnlyByWhatWasEntered(t *testing.T) {
	history := allocation.History{Number: 2, Stamp: "b"}
	call := allocation.SyncCall{History: history, Incarnation: "life-1"}
	asks := allocation.SyncAnswer{Frozen: true, History: history}
	entered := asks
	entered.Restated = true

	var f freeze
	for i, step := range []struct {
		answer allocation.SyncAnswer
		next   int
	}{
		{asks, 0},    // it hears of the freeze, and begins
		{asks, 0},    // a replica that heard of the freeze only meanwhile
		{entered, 9}, // the shards below 9 stand in the ledgers
		{asks, 9},
	} {
		f.stating = max(f.next, 9)
		if more := f.heard(call, step.answer); f.next != step.next || !more {
			t.Errorf("answer %d: it goes on with shard %d, at once: %v", i, f.next, more)
		}
	}
}
