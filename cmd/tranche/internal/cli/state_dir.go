package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"tranche/coordinator"
)

// stateDir is a coordinator's memory in a folder: two files that are written in turns, so that one of them is always
// whole. It is locked while the process runs: two processes that remembered one mark would each take the other's for lost
// history.
type stateDir struct {
	files    [2]*os.File
	lock     *os.File
	sequence int64
}

type savedState struct {
	Sequence int64                  `json:"sequence"`
	State    coordinator.Remembered `json:"state"`
}

func openStateDir(dir string) (*stateDir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	s := &stateDir{}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	if err := lockFile(s.lock); err != nil {
		_ = s.lock.Close()
		return nil, fmt.Errorf("another coordinator uses the state directory %s; give each its own --state-dir: %w", dir, err)
	}
	for i := range s.files {
		if s.files[i], err = os.OpenFile(filepath.Join(dir, fmt.Sprintf("marks-%d.json", i)), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("open the state directory: %w", err), s.Close())
		}
	}
	return s, errors.Join(syncDir(dir))
}

// syncDir makes the names of new files durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the state directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("sync the state directory: %w", err)
	}
	return nil
}

// Close gives the folder free.
func (s *stateDir) Close() error {
	err := s.lock.Close()
	for _, f := range s.files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Load implements coordinator.Memory. A file that was torn by a crash is older news: the other one is whole.
func (s *stateDir) Load(context.Context) (coordinator.Remembered, error) {
	var newest savedState
	for _, f := range s.files {
		data, err := os.ReadFile(f.Name())
		if err != nil {
			return coordinator.Remembered{}, fmt.Errorf("read the state directory: %w", err)
		}
		var saved savedState
		if json.Unmarshal(data, &saved) == nil && saved.Sequence > newest.Sequence {
			newest = saved
		}
	}
	s.sequence = newest.Sequence
	return newest.State, nil
}

// Save implements coordinator.Memory.
func (s *stateDir) Save(_ context.Context, r coordinator.Remembered) error {
	data, err := json.Marshal(savedState{Sequence: s.sequence + 1, State: r})
	if err != nil {
		return fmt.Errorf("write the state as JSON: %w", err)
	}
	f := s.files[(s.sequence+1)%2]
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the state directory: %w", err)
	}
	s.sequence++
	return nil
}
