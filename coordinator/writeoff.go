package coordinator

import (
	"context"
	"fmt"
	"strings"

	"tranche/allocation"
)

// WriteOffRequest names what is to be counted as spent for good.
type WriteOffRequest struct {
	Budget      string `json:"budget"`
	Region      string `json:"region"`
	Incarnation string `json:"incarnation,omitempty"` // needed where several hold permits
	Reason      string `json:"reason"`
	By          string `json:"by"`
}

// WriteOffAnswer is a write-off, or, with DryRun, what it would be.
type WriteOffAnswer struct {
	WriteOff
	DryRun bool     `json:"dry_run,omitempty"`
	Notes  []string `json:"notes"`
}

// WriteOffsList is all that are kept, the latest first.
type WriteOffsList struct {
	*Evidence
	WriteOffs []WriteOff `json:"write_offs"`
}

const maxReason = 500

// checkReason refuses an act that nobody answers for. A preview needs neither.
func checkReason(reason, by string, dry bool) error {
	for _, f := range []struct{ field, value, fix string }{
		{"reason", reason, "say why, for whoever reads the audit"}, {"by", by, "name the person who answers for it"},
	} {
		if strings.TrimSpace(f.value) == "" && !dry {
			return invalid(f.field, "is missing", f.fix)
		}
		if err := checkReasonLength(f.field, f.value); err != nil {
			return err
		}
	}
	return nil
}

// checkWhy refuses an act that says not why; who it was is the token's name.
func checkWhy(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return invalid("reason", "is missing", "say why, for whoever reads the audit")
	}
	return checkReasonLength("reason", reason)
}

func checkReasonLength(field, value string) error {
	if len(value) > maxReason {
		return invalid(field, fmt.Sprintf("has %d bytes", len(value)), fmt.Sprintf("use at most %d", maxReason))
	}
	return nil
}

// writeOff leaves the mark. No ledger changes: what was granted stays granted, and nobody else gets it.
func (s *Service) writeOff(ctx context.Context, who actor, q WriteOffRequest, dry bool) (WriteOffAnswer, error) {
	if err := checkReason(q.Reason, q.By, dry); err != nil {
		return WriteOffAnswer{}, err
	}
	who.reason = q.Reason
	var answer WriteOffAnswer
	err := s.act(ctx, func() (Change, error) {
		line, err := s.holderOf(q.Budget, q.Region, q.Incarnation)
		if err != nil {
			return Change{}, err
		}
		h := allocation.Holder{Region: line.Region, Incarnation: line.Incarnation}
		if w := line.WrittenOff; w != nil && w.Through >= line.heldThrough() {
			return Change{}, problem(409, CodeExists, fmt.Sprintf("it was written off already, by %s: %s", w.By, w.Reason), "nothing is left to do; later terms can be written off when they are opened")
		}
		w := WriteOff{
			Format: documentFormat, ID: fmt.Sprintf("%d-%s", s.now().UnixMilli(), s.random.hex(4)), Budget: line.Budget, Unit: line.Unit,
			Region: line.Region, Incarnation: line.Incarnation, Period: line.Period, Now: line.Remainder, Ahead: line.Ahead, Through: line.heldThrough(),
			Reason: q.Reason, By: q.By, Token: who.name, Made: s.now().UTC(), SpentStated: s.spentStated(h, line.Budget), SpentFrom: s.firstTerm(line.Budget),
		}
		answer = WriteOffAnswer{WriteOff: w, DryRun: dry, Notes: writeOffNotes(w, line.Cause)}
		if dry {
			answer.ID = ""
			return Change{}, nil
		}
		if len(s.state.writeOffs) >= 2*maxWriteOffs {
			return Change{}, refused("wait until the terms of older ones are over", "%d write-offs are kept already", len(s.state.writeOffs))
		}
		key := writeOffPrefix + w.ID
		return Change{Reads: []Item{{Key: key}}, Puts: []Item{put(key, w), s.auditLine(who, "stranded.write_off", w.Budget, nil, w)}}, nil
	})
	return answer, err
}

func writeOffNotes(w WriteOff, cause string) []string {
	notes := []string{
		"no counter moves and nobody else gets these permits: they are reported as written off, and no longer as stranded",
		fmt.Sprintf("if region %s comes back, they are still its own, and what it states to have spent is recorded", w.Region),
	}
	if cause == CauseLostHistory {
		notes[1] = fmt.Sprintf("incarnation %s was replaced. A database of it that still runs may spend them until it hears of that; it is refused when it calls, and what it states to have spent goes into the records of its terms", w.Incarnation)
	}
	if w.Through != allocation.Never && cause != CauseLostHistory { // that one is granted nothing more
		notes = append(notes, fmt.Sprintf("it covers the periods until %s; terms that are opened later are not written off", w.Through))
	}
	if w.Now.Reserved > 0 {
		notes = append(notes, fmt.Sprintf("%d that are reserved by requests under way stay exposed", w.Now.Reserved))
	}
	return notes
}

func (s *Service) listWriteOffs() WriteOffsList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := WriteOffsList{Evidence: s.evidence(), WriteOffs: []WriteOff{}}
	for _, d := range sortedWriteOffs(s.state.writeOffs) {
		list.WriteOffs = append(list.WriteOffs, d.value)
	}
	return list
}

// noteReturned enters into write-offs that their region came back, and, one look later, when its first calls have stated
// it, what it had spent meanwhile. The time of the first look may be one of a clock that was far ahead.
func (s *Service) noteReturned(ctx context.Context) error {
	now := s.now()
	s.state.mu.Lock()
	var due []string
	for _, d := range sortedWriteOffs(s.state.writeOffs) {
		w := d.value
		if !w.Recorded && s.canBeAsked(w.holder(), now) && (w.Returned == nil || now.Sub(*w.Returned).Abs() >= strandedEvery) {
			due = append(due, w.ID)
		}
	}
	s.state.mu.Unlock()
	_, err := eachOf(ctx, s, due, func(id string) (Change, error) {
		d := s.state.writeOffs[id]
		if d == nil {
			return Change{}, nil
		}
		next := d.value
		if next.Returned == nil {
			at := now.UTC()
			next.Returned = &at
			return Change{Reads: []Item{d.item}, Puts: []Item{put(d.item.Key, next)}}, nil
		}
		next.Recorded, next.LateSpent = true, max(0, s.saidSpent(next.holder(), next.Budget, next.SpentFrom, next.Through)-next.SpentStated)
		return Change{Reads: []Item{d.item}, Puts: []Item{put(d.item.Key, next), s.auditLine(background, "stranded.returned", next.Budget, d.value, next)}}, nil
	})
	return err
}
