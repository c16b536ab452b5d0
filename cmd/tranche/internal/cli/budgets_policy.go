package cli

import (
	"fmt"
	"strings"

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
	raised := "none (default)"
	if o := b.Override; o != nil {
		raised = fmt.Sprintf("%s: of the limit %d %s are its raise, until %s, approved by %s", o.ID, o.Units, b.Unit, o.Until, o.By)
	}
	synthetic := "no (default)"
	if b.Synthetic {
		synthetic = "yes: drills may spend it"
	}
	rows := [][]any{{"instead_of", instead}, {"protected", protected}, {"override", raised}, {"synthetic", synthetic}}
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

func thresholdsWords(b allocation.Budget) string {
	var parts []string
	for _, percent := range b.Told() {
		parts = append(parts, fmt.Sprintf("%d %%", percent))
	}
	switch {
	case len(parts) == 0:
		return "none: a template"
	case len(b.Thresholds) == 0:
		return strings.Join(parts, ", ") + " (default)"
	}
	return strings.Join(parts, ", ")
}
