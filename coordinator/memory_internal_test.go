package coordinator

import (
	"context"
	"testing"
	"time"

	"tranche/allocation"
)

// emptyStore holds nothing.
type emptyStore struct{ Store }

func (emptyStore) Range(context.Context, string) ([]Item, int64, error) { return nil, 1, nil }

// savedMemory is a state directory that is only read.
type savedMemory struct {
	Memory
	saved Remembered
}

func (m savedMemory) Load(context.Context) (Remembered, error) { return m.saved, nil }

// A process that ended before its first write arrived left nothing that could be missed. If it took that for lost history, all
// would be frozen for nothing. One that had left a mark misses it.
func TestFirstWriteThatNeverArrivedIsNotMissed(t *testing.T) {
	for count, lost := range map[int64]bool{0: false, 1: true} {
		m := savedMemory{saved: Remembered{
			Format: documentFormat, Writer: "w", At: time.Now(), Trusted: true, Left: allocation.Mark{Writer: "w", Count: count},
			Tried: []allocation.Mark{{Writer: "w", Count: count + 1, Value: "tried"}},
		}}
		c := NewCommitter(emptyStore{}, nil, WithMemory(m, func() (string, allocation.History) { return "", allocation.History{} }))
		found, err := c.recall(t.Context())
		if err != nil || found.held || (found.lost != "") != lost {
			t.Errorf("it had left mark %d: %+v, %v", count, found, err)
		}
	}
}
