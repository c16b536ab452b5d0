package regional

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tranche/allocation"
)

// Memory keeps a node's marks from a clean stop to the next start. It is used once: Take removes what it returns, for
// good, before anything is written with it. A memory that were used twice, or brought back with a backup of the machine,
// would tell what is long over.
type Memory interface {
	// Take returns nil if nothing is kept.
	Take() (*Remembered, error)
	Keep(r Remembered) error
}

// Remembered is what a node leaves for its next start.
type Remembered struct {
	Format  int               `json:"format"`
	Region  string            `json:"region"`
	Node    string            `json:"node"`
	At      time.Time         `json:"at"`
	Vouched string            `json:"vouched"` // the lineage in which the node was vouched for
	Home    allocation.Home   `json:"home"`
	Marks   []allocation.Mark `json:"marks"` // by slot, the last one the keeper's
}

const memoryFormat = 1

// memoryLasts is how old a memory may be: writers that are silent for much longer are taken for ended, and their marks go.
const memoryLasts = 7 * 24 * time.Hour

// FileMemory keeps the memory in a file of a folder that outlives the process and belongs to this node alone.
type FileMemory struct{ Path string }

// Take reads the file and removes it.
func (f FileMemory) Take() (*Remembered, error) {
	text, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's marks: %w", err)
	}
	if err := os.Remove(f.Path); err != nil {
		return nil, fmt.Errorf("remove the node's marks: %w", err)
	}
	if err := syncFolder(filepath.Dir(f.Path)); err != nil {
		return nil, err
	}
	var r Remembered
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read the node's marks in %s: %w", f.Path, err)
	}
	return &r, nil
}

// Keep writes the file whole, or not at all.
func (f FileMemory) Keep(r Remembered) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the node's marks: %w", err)
	}
	temporary := f.Path + ".new"
	if err := writeSynced(temporary, text); err != nil {
		return fmt.Errorf("write the node's marks: %w", err)
	}
	if err := os.Rename(temporary, f.Path); err != nil {
		return fmt.Errorf("write the node's marks: %w", err)
	}
	return syncFolder(filepath.Dir(f.Path))
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the folder of the node's marks: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync the folder of the node's marks: %w", err)
	}
	return nil
}

// recall takes the memory of a clean stop, if there is one that fits. What is wrong with it costs the memory, no more.
func (n *Node) recall() {
	if n.cfg.Memory == nil {
		return
	}
	r, err := n.cfg.Memory.Take()
	switch {
	case err != nil:
		n.log.Warn("start without memory", "error", err)
	case r == nil:
	case r.Format != memoryFormat || r.Region != n.cfg.Region || r.Node != n.cfg.Name || len(r.Marks) != len(n.slots) || n.now().Sub(r.At) > memoryLasts:
		n.log.Info("start without memory: the one that was kept is of another node, of other settings, or too old", "at", r.At)
	default:
		n.remembered = r
	}
}

// resume goes on with the writers of a clean stop, once the database answers. A mark that is not there is lost history.
func (n *Node) resume(ctx context.Context) error {
	r := n.remembered
	if r == nil {
		return nil
	}
	for i, s := range n.slots {
		if s.writer != nil || s.gone != "" {
			continue
		}
		if s.resuming == nil {
			s.resuming = n.owner.ResumeWriter(r.Marks[i])
		}
		_, err := s.resuming.Resolve(ctx)
		switch {
		case errors.Is(err, ErrHistoryLost):
			n.voucher.lose()
			s.gone, s.cause = r.Marks[i].Writer, err
		case err != nil:
			return fmt.Errorf("go on with writer %s: %w", r.Marks[i].Writer, err)
		default:
			s.take(s.resuming)
		}
		s.resuming = nil
	}
	n.remembered = nil
	for _, s := range n.slots {
		if s.gone != "" {
			return nil
		}
	}
	n.voucher.remember(r.Vouched, r.Home)
	for _, s := range n.slots {
		s.writer.Vouch(r.Vouched)
	}
	n.log.Info("go on with the marks of the last stop", "at", r.At)
	return nil
}

// keepOrEnd keeps the marks for the next start, or ends the writers. Both only if every one is known: of a mark that may or
// may not be there nothing is learnt.
func (n *Node) keepOrEnd(ctx context.Context) {
	var marks []allocation.Mark
	for _, s := range n.slots {
		if s.writer == nil {
			continue
		}
		if _, err := s.writer.Resolve(ctx); err != nil {
			n.log.Debug("end writer", "error", err)
			if errors.Is(err, ErrHistoryLost) { // nobody else may know
				s.lost(ctx, err)
			}
			return
		}
		marks = append(marks, s.writer.Mark())
	}
	vouched, home := n.voucher.given()
	if n.cfg.Memory != nil && vouched != "" && len(marks) == len(n.slots) {
		err := n.cfg.Memory.Keep(Remembered{
			Format: memoryFormat, Region: n.cfg.Region, Node: n.cfg.Name, At: n.now(), Vouched: vouched, Home: home, Marks: marks,
		})
		if err == nil {
			return
		}
		n.log.Warn("stop without memory", "error", err)
	}
	for _, s := range n.slots {
		if s.writer == nil {
			continue
		}
		if err := s.writer.End(ctx); err != nil {
			n.log.Debug("end writer", "error", err)
			return
		}
	}
}
