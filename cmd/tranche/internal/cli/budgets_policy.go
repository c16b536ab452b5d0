package cli

import (
	"fmt"

	"tranche/allocation"
)

// policyRows say what a budget refuses first.
func policyRows(b allocation.Budget) [][]any {
	protected := "0 (default)"
	if b.Protected > 0 {
		protected = fmt.Sprintf("%d %s%s, for essential traffic", b.Protected, b.Unit, perInstance(b))
	}
	instead := "no other (default)"
	if b.InsteadOf != "" {
		instead = b.InsteadOf
	}
	rows := [][]any{{"instead_of", instead}, {"protected", protected}}
	switch l := b.Ladder; {
	case l == nil:
		return append(rows, []any{"ladder", "none (default)"})
	case l.Preset != "":
		return append(rows, []any{"ladder", l.Preset})
	}
	for _, of := range []struct {
		priority allocation.Priority
		rungs    *allocation.Rungs
	}{{allocation.Essential, b.Ladder.Essential}, {allocation.Interactive, b.Ladder.Interactive}, {allocation.Batch, b.Ladder.Batch}} {
		if of.rungs != nil {
			rows = append(rows, []any{"ladder." + string(of.priority), of.rungs.String()})
		}
	}
	return rows
}
