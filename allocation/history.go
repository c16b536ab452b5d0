package allocation

import (
	"fmt"
	"slices"
)

// What a store holds can go back: a database is restored, cloned, or failed over to a replica that lacks commits; an etcd
// is restored from a snapshot. Positions, revisions and names do not tell. What tells is whether our own last write is
// still there, so whoever writes leaves a mark, and what is lost is lost for both sides of the protocol:
//
//	an owner lost history      a new incarnation, with nothing     history_incarnation.go
//	etcd lost history          a new history, frozen               this file, history_freeze.go, history_reconcile.go
//	nobody can tell            wait until somebody vouches         vouch.go
//
// The rule that all of this follows: what may be out, is out, until its own spender says otherwise under the history that
// counts now.

// MarkFinding is what a writer concludes from the mark that it finds where it left its own.
type MarkFinding int

// The findings. Only the first two let the writer go on.
const (
	MarkHeld      MarkFinding = iota // the store holds all that this writer ever wrote
	MarkCommitted                    // so it does, and the write whose answer was lost took effect
	MarkLost                         // anything else: the store lost history, whatever else looks right
)

// MarkMemory is what one writer remembers: what it last left for certain, and what it tried to leave since, if the answer
// to that was lost. The memory outlives the writer's connections, never its process, unless it was put into a file.
type MarkMemory struct {
	Left  Mark `json:"left"`
	Tried Mark `json:"tried,omitzero"` // zero: no write is open
}

// Judge compares the memory with what the store shows now, in the same transaction that is to write next. It asks for
// equality: a higher count of our own, which nobody else can have left, is as wrong as a lower one.
func (m MarkMemory) Judge(now Mark) MarkFinding {
	switch {
	case now == m.Left:
		return MarkHeld
	case m.Tried != (Mark{}) && now == m.Tried:
		return MarkCommitted
	}
	return MarkLost
}

// LostMarks is what a coordinator concludes: the marks that were stated before and that the owner does not hold any more.
// A writer that is named as ended left on its own. Others only ever rise, so a later count is no loss.
func LostMarks(before, now []Mark, ended []string) []Mark {
	var lost []Mark
	for _, b := range before {
		held := slices.ContainsFunc(now, func(m Mark) bool { return b.Holds(m) })
		if !held && !slices.Contains(ended, b.Writer) {
			lost = append(lost, b)
		}
	}
	return lost
}

// String is the number and the stamp, as reports print it.
func (h History) String() string { return fmt.Sprintf("%d·%s", h.Number, h.Stamp) }

// Descent is how the history that one side speaks under stands to the history of the other.
type Descent int

// The descents.
const (
	SameHistory  Descent = iota // the word counts
	OlderHistory                // nothing of it counts: it was said before the other side went on
	OtherHistory                // the speaker knows a line of descent that the listener never had: the listener lost history
)

// Hear compares the history that a message was said under with the listener's own. Numbers rise along every line of
// descent and stamps are random, so a higher number, or another stamp under the same one, is of a line that the listener
// does not descend from.
func (h History) Hear(said History) Descent {
	switch {
	case said == h:
		return SameHistory
	case said.Number < h.Number:
		return OlderHistory
	}
	return OtherHistory
}

// Heed is what an owner does with the history of an answer. It stores a newer one, and takes nothing else of that answer:
// what it then states is stated under the new history, and any grant that is still on its way from the old one is refused
// from this commit on (invariant 8). Everything else of an answer counts only if take is true.
//
// An answer of another line with the same number is not stored: the owner's next call names the history that it has, and
// that tells the coordinator.
func (h History) Heed(said History) (stored History, take bool) {
	if said.Number > h.Number {
		return said, false
	}
	return h, said == h
}
