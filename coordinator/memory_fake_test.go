package coordinator_test

import (
	"context"
	"sync"

	"tranche/coordinator"
)

// memory is a state directory: it outlives the replica that uses it.
type memory struct {
	mu    sync.Mutex
	saved coordinator.Remembered
	used  bool
}

func (m *memory) Load(context.Context) (coordinator.Remembered, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saved, nil
}

func (m *memory) Save(_ context.Context, r coordinator.Remembered) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saved = r
	return nil
}

// writer is whom it remembers as the last to write.
func (m *memory) writer() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.saved.Writer
}

// freeMemory is that of a replica that was stopped, or a new one.
func (w *world) freeMemory() *memory {
	for _, m := range w.memories {
		if !m.used {
			m.used = true
			return m
		}
	}
	m := &memory{used: true}
	w.memories = append(w.memories, m)
	return m
}
