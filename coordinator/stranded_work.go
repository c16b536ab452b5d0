package coordinator

import (
	"context"
	"fmt"

	"tranche/allocation"
)

// strandedWork is the background's part of all that is kept of stranded permits.
func (s *Service) strandedWork(ctx context.Context) error {
	if err := s.trackStranded(ctx); err != nil {
		return fmt.Errorf("record what is stranded: %w", err)
	}
	if err := s.noteReturned(ctx); err != nil {
		return fmt.Errorf("note what was written off and came back: %w", err)
	}
	if err := s.endCompensations(ctx); err != nil {
		return fmt.Errorf("end compensations: %w", err)
	}
	return nil
}

// sweepStranded is what is no longer kept.
func (s *Service) sweepStranded() (due []Item) {
	before := s.now().Add(-strandedRetention)
	now := s.instant()
	for i, d := range sortedWriteOffs(s.state.writeOffs) {
		over := d.value.Through <= now
		if over && (i >= maxWriteOffs || d.value.Made.Before(before)) {
			due = append(due, d.item)
		}
	}
	for i, d := range sortedCompensations(s.state.compensations) {
		over := d.value.State != CompensationActive
		if over && (i >= maxCompensations || d.value.Ended.Before(before)) {
			due = append(due, d.item)
		}
	}
	for _, d := range s.state.strandings {
		// A document whose entries have all ended long ago is not written any more, so it is removed here.
		keep := false
		for _, e := range d.value.Entries {
			keep = keep || e.Ended == nil || !e.Ended.Before(before)
		}
		if !keep {
			due = append(due, d.item)
		}
	}
	return append(due, s.state.sweepFormers()...)
}

// holderOf finds the one line that an operator means, by its budget, region and, where there are several, incarnation.
func (s *Service) holderOf(budget, region, incarnation string) (StrandedLine, error) {
	b := s.state.budgets[budget]
	if b == nil {
		return StrandedLine{}, notFound("budget", budget)
	}
	if r := s.state.regions[region]; r == nil || r.doc == nil && r.contact.At.IsZero() {
		return StrandedLine{}, invalid("region", fmt.Sprintf("there is no region %.70q", region), "list the regions to see their names")
	}
	var found []StrandedLine
	for _, line := range s.strandedOf(budget, s.now()) {
		if line.Region == region && (incarnation == "" || incarnation == line.Incarnation) {
			found = append(found, s.withRecord(line, s.now()))
		}
	}
	switch {
	case len(found) == 0:
		return StrandedLine{}, refused("look at `tranche stranded list`", "nothing of %s is stranded in %s%s", budget, region, ofIncarnation(incarnation))
	case len(found) > 1:
		return StrandedLine{}, invalid("incarnation", fmt.Sprintf("is missing: %d incarnations of %s hold permits of %s", len(found), region, budget), "name one as the report shows it")
	}
	return found[0], nil
}

func ofIncarnation(incarnation string) string {
	if incarnation == "" {
		return ""
	}
	return fmt.Sprintf(", incarnation %.70s", incarnation)
}

// heldThrough is the end of the last period that the line speaks of.
func (l StrandedLine) heldThrough() allocation.Instant {
	if l.Ahead != nil {
		return l.Ahead.Until
	}
	return l.Period.End
}
