package coordinator

import (
	"fmt"
	"slices"

	"tranche/allocation"
)

// remedies are what would resolve the line. Nothing else would: no time that passes moves a permit of a period that runs.
// Sealing is the incarnation of the region that was ended to be sealed: of those that were replaced, only its database proves
// anything.
func (l *StrandedLine) remedies(sealing string) (out []StrandedRemedy) {
	lost := l.Cause == CauseLostHistory
	switch l.Cause {
	case CauseUnreachable:
		out = append(out, StrandedRemedy{How: ResolvedReturned, Text: fmt.Sprintf("region %s calls again: its statement says what it spent, and the line goes", l.Region)})
	case CauseFrozen:
		out = append(out, StrandedRemedy{How: ResolvedReturned, Text: fmt.Sprintf("region %s states under the new history what it holds", l.Region)})
	}
	if !lost || sealing == l.Incarnation {
		out = append(out, StrandedRemedy{How: ResolvedSealed, Text: "a seal, read from the recorded home of this incarnation: its remainder is granted again"})
	}
	end := l.Period.End
	if l.Ahead != nil {
		end = l.Ahead.Until
	}
	switch {
	case end == allocation.Never:
	case l.Ahead != nil:
		out = append(out, StrandedRemedy{How: ResolvedPeriodEnd, At: &end, Text: fmt.Sprintf(
			"the running period ends at %s, and the last that it holds at %s; what was not spent by then is lost to everybody", l.Period.End, end)})
	default:
		out = append(out, StrandedRemedy{How: ResolvedPeriodEnd, At: &end, Text: fmt.Sprintf("the period ends at %s; what was not spent by then is lost to everybody", end)})
	}
	if lost && l.WrittenOff == nil {
		out = append(out, StrandedRemedy{How: ResolvedWrittenOff, Text: "a write-off: it counts as spent, and is no longer reported as stranded; nobody gets it"})
	}
	return out
}

// StrandedNext says what would free what the lines tell of: a region that is silent frees it with its next call, and no call
// does where an incarnation is lost.
func StrandedNext(lines []StrandedLine) string {
	counts := func(l StrandedLine) bool {
		return l.WrittenOff == nil && (l.Stranded > 0 || l.Unseen > 0 || l.Ahead != nil)
	}
	silent := slices.ContainsFunc(lines, func(l StrandedLine) bool { return counts(l) && l.Cause != CauseLostHistory })
	lost := slices.ContainsFunc(lines, func(l StrandedLine) bool { return counts(l) && l.Cause == CauseLostHistory })
	const noCall = "no call frees them: they end with their periods, or by a seal of a database that was ended to be sealed, or are written off"
	switch {
	case lost && silent:
		return "those of silent regions are free again when the region calls; of those with lost history, " + noCall
	case lost:
		return "their incarnations are lost, and " + noCall
	}
	if !silent {
		return "nothing of them waits for a call: what they held is spent, reserved or written off"
	}
	return "they are free again when the region calls; until then only that region can spend them"
}
