package regional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// slot is one of this process's places to write from. Its writer is replaced when its mark is gone: first that is recorded
// in the database, so that the loss outlives this process, then a writer without memory is registered.
type slot struct {
	node     *Node
	index    int
	name     string
	writer   Writer
	resuming Writer // of a clean stop, until it is resolved
	gone     string // the writer whose mark is gone, until that is recorded
	cause    error
}

// recordWithin bounds the try to record that history was lost, also when the node ends meanwhile.
const recordWithin = 5 * time.Second

// ready returns a writer, registered anew if need be.
func (s *slot) ready(ctx context.Context) (Writer, error) {
	if s.gone != "" {
		if err := s.record(ctx); err != nil {
			return nil, err
		}
	}
	if s.writer == nil {
		w, err := s.node.owner.NewWriter(ctx, s.name)
		if err != nil {
			return nil, fmt.Errorf("register writer %s: %w", s.name, err)
		}
		s.take(w)
	}
	return s.writer, nil
}

func (s *slot) take(w Writer) {
	s.writer = w
	n := s.node
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writers[s.index] = w
}

// lost ends a writer whose mark is not there. From here on this process admits nothing until somebody vouches for it anew;
// nobody does before the loss is recorded.
func (s *slot) lost(ctx context.Context, cause error) {
	if s.gone != "" || s.writer == nil {
		return
	}
	writer := s.writer.Mark().Writer
	if s.writer = nil; s.node.forgetMissing(writer) {
		return // another slot has said so already
	}
	s.node.voucher.lose()
	s.gone, s.cause = writer, cause
	if err := s.record(ctx); err != nil {
		s.node.log.Error("record that history was lost", "error", err)
	}
}

func (s *slot) record(ctx context.Context) error {
	n := s.node
	bounded, cancel := n.cfg.Runtime.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	lost, err := n.owner.Lose(bounded, s.gone, s.cause.Error())
	if err != nil {
		return err
	}
	if lost {
		n.log.Error("the database lost history: admit nothing until the region is a new incarnation", "error", s.cause)
		n.health.failed(n.now(), s.cause)
	} else {
		n.log.Info("register anew: the owner has started over since, or is empty", "writer", s.name)
	}
	s.gone, s.cause = "", nil
	n.voucher.recorded()
	n.kick()
	return nil
}

// look leaves a mark and sees whether the others go on, while nobody vouches for the node.
func (s *slot) look(ctx context.Context) (Look, error) {
	n := s.node
	w, err := s.ready(ctx)
	if err != nil {
		return Look{}, err
	}
	bounded, cancel := n.cfg.Runtime.WithTimeout(ctx, beginWithin)
	defer cancel()
	wrote := n.wrote(w)
	l, err := n.owner.Look(bounded, w)
	if errors.Is(err, ErrHistoryLost) {
		s.lost(ctx, err)
	}
	if err != nil {
		return Look{}, err
	}
	n.voucher.see(l.Lineage)
	if missed := lacks(l, wrote); len(missed) > 0 {
		return l, s.missed(ctx, missed)
	}
	if n.voucher.consider(s.index, len(n.slots), n.ownWriters(), l) {
		n.vouch(l.Lineage, l.Home, "others that write to the database go on")
	}
	return l, nil
}

// ownWriters are the ids of this process's writers.
func (n *Node) ownWriters() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []string
	for _, w := range n.writers {
		if w != nil {
			ids = append(ids, w.Mark().Writer)
		}
	}
	return ids
}

// shows says whether a call shows all of this process's writers: what one that is not among them wrote, the coordinator was
// not asked for, and the other nodes would not know to wait for it.
func (n *Node) shows(call allocation.SyncCall) bool {
	own := n.ownWriters()
	return len(own) == len(n.slots) && !slices.ContainsFunc(own, func(id string) bool {
		return !slices.ContainsFunc(call.Marks, func(m allocation.Mark) bool { return m.Writer == id })
	})
}

// vouch lets the node admit in a lineage, and its marks say so.
func (n *Node) vouch(lineage string, home allocation.Home, why string) {
	if !n.voucher.give(lineage, home) {
		return
	}
	n.log.Info("the database holds all that was committed", "known", why)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.writers {
		if w != nil {
			w.Vouch(lineage)
		}
	}
}

// kick lets every lane look, also those that nobody asks anything.
func (n *Node) kick() { n.waiting.kick() }
