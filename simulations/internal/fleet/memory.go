package fleet

import (
	"context"

	"tranche/coordinator"
)

// stateFile is the state directory of one simulated coordinator. What was saved is there whenever the process starts again.
type stateFile struct{ saved coordinator.Remembered }

func (f *stateFile) Load(context.Context) (coordinator.Remembered, error) { return f.saved, nil }

func (f *stateFile) Save(_ context.Context, r coordinator.Remembered) error {
	f.saved = r
	return nil
}
