package regional

import (
	"context"
	"fmt"
	"slices"

	"tranche/allocation"
)

// A slot finds its own mark gone when it comes to its database again. One whose connection hangs does not come for long, and what
// it knows this process knows: so each look at the database compares the marks of the other slots too, and says for them what is
// lost. Otherwise the rest of the process would be vouched for meanwhile, by a coordinator that was not told of what they wrote.

// wrote are the marks that this process's other slots know to be committed.
func (n *Node) wrote(own Writer) (marks []allocation.Mark) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.writers {
		if w != nil && w != own && !n.missing[w.Mark().Writer] {
			marks = append(marks, w.Mark())
		}
	}
	return marks
}

// lacks are those of the marks that a look at the database does not find, nor later ones of the same writer.
func lacks(l Look, wrote []allocation.Mark) []allocation.Mark {
	return slices.DeleteFunc(wrote, func(m allocation.Mark) bool {
		return slices.ContainsFunc(l.Marks, func(found WriterMark) bool {
			return found.Writer == m.Writer && (found.Count > m.Count || found.Mark == m)
		})
	})
}

// missed records that history was lost, on the word of other slots.
func (s *slot) missed(ctx context.Context, marks []allocation.Mark) error {
	n := s.node
	n.voucher.lose()
	defer n.voucher.recorded()
	bounded, cancel := n.cfg.Runtime.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	for _, m := range marks {
		lost, err := n.owner.Lose(bounded, m.Writer, fmt.Sprintf("writer %s: this process wrote %d by another connection, and that is gone", m.Writer, m.Count))
		if err != nil {
			return fmt.Errorf("record that history was lost: %w", err)
		}
		if lost {
			n.log.Error("the database lost history: admit nothing until the region is a new incarnation", "writer", m.Writer, "wrote", m.Count)
		}
		n.mu.Lock()
		n.missing[m.Writer] = true
		n.mu.Unlock()
	}
	n.kick()
	return nil
}

// forgetMissing says whether it was recorded that the mark of a writer is gone, and forgets it: the writer is used no more.
func (n *Node) forgetMissing(writer string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer delete(n.missing, writer)
	return n.missing[writer]
}
