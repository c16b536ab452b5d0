package fleet

import (
	"context"

	"tranche/coordinator"
	"tranche/regional"
)

// stateFile is the state directory of one simulated coordinator. What was saved is there whenever the process starts again.
type stateFile struct{ saved coordinator.Remembered }

func (f *stateFile) Load(context.Context) (coordinator.Remembered, error) { return f.saved, nil }

func (f *stateFile) Save(_ context.Context, r coordinator.Remembered) error {
	f.saved = r
	return nil
}

// memory is what a node's machine keeps between a clean stop and the next start. A crash of the process does not touch it,
// and takes nothing with it that was kept.
type memory struct{ kept *regional.Remembered }

// Take implements regional.Memory.
func (m *memory) Take() (*regional.Remembered, error) {
	kept := m.kept
	m.kept = nil
	return kept, nil
}

// Keep implements regional.Memory.
func (m *memory) Keep(r regional.Remembered) error {
	m.kept = &r
	return nil
}
