package regional

import (
	"errors"
	"fmt"

	"tranche/allocation"
)

// A handover is a planned move of an owner to another database, with nothing lost. What stops it stands in the owner's row:
//
//	admits ──Stop──▶ stopped ──Hand──▶ handed: never admits again
//	   ▲                │
//	   └────Resume──────┘
//
// A stopped owner commits nothing at all, so a copy of it can be compared with it, row by row. The copy has the stop as
// well, and admits nothing either, until Resume finds that the coordinator has recorded it as the home. The coordinator
// records that only after Hand: of the two databases at most one can ever admit.
type Handover struct {
	ID   string          `json:"id,omitempty"`  // names the stop; empty: the owner is not being handed over
	From allocation.Home `json:"from,omitzero"` // the database that was stopped; a copy shows another home than its own
	To   allocation.Home `json:"to,omitzero"`   // that takes over; zero: it was stopped, and can resume
}

// HandoverStep is one step of a handover. Each may be repeated.
type HandoverStep int

// The steps. Stop makes the handover's ID the stop's name, unless the owner is stopped already. Hand lets it never admit
// again, for another database to take over. Resume ends the stop: of an owner that was not handed, or of its copy.
const (
	HandoverStop HandoverStep = iota
	HandoverHand
	HandoverResume
)

// ErrHandedOver says that the owner is being handed over to another database: nothing was committed, and nothing is before
// it resumes.
var ErrHandedOver = errors.New("the owner is being handed over to another database")

// Next is what a step makes of a handover, in the database `here`. Recorded is the home that the coordinator has recorded:
// no other database is handed over, and no other one resumes.
func (h Handover) Next(step HandoverStep, asked Handover, recorded, here allocation.Home) (Handover, error) {
	switch {
	case here != recorded:
		return h, fmt.Errorf("this database is not the recorded home of the region: %w", allocation.ErrContradicted)
	case step == HandoverStop && h.ID == "":
		return Handover{ID: asked.ID, From: here}, nil
	case step == HandoverStop:
		return h, nil
	case step == HandoverResume && h.ID == "":
		return h, nil
	case h.ID != asked.ID || h.ID == "":
		return h, fmt.Errorf("it is stopped for the handover %q, not %q: %w", h.ID, asked.ID, allocation.ErrContradicted)
	case step == HandoverHand && (asked.To == here || asked.To == allocation.Home{}):
		return h, fmt.Errorf("it cannot be handed over to itself: %w", allocation.ErrContradicted)
	case step == HandoverHand:
		return Handover{ID: h.ID, From: here, To: asked.To}, nil
	case h.To != allocation.Home{} && h.From == here:
		return h, fmt.Errorf("it was handed over for good: %w", ErrHandedOver)
	}
	return Handover{}, nil
}

// Stopped says why an owner that is being handed over admits nothing.
func (h Handover) Stopped(before allocation.Reason, detail string) (allocation.Reason, string) {
	if h.ID == "" || before != "" {
		return before, detail
	}
	return allocation.Starting, ErrHandedOver.Error()
}

// handingOver says whether the owner is being handed over, as last read.
func (s *syncState) handingOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded.Handover.ID != ""
}

// closed refuses calls that an owner which is being handed over does not decide: also those that settle.
func (ln *lane) closed(batch []*call) {
	for _, c := range batch {
		d := ln.node.cannot(c.request, allocation.Starting)
		if d.Reason == allocation.Starting {
			d.Detail = ErrHandedOver.Error()
		}
		c.answer(d)
	}
}
