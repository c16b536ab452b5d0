package cli

import (
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// Of a template a region may hold much more than what was seen. A bare 0 would say that nothing is lost for now.
func TestStrandedTellsUnseenInstances(t *testing.T) {
	text := said(func(a *App) {
		a.showStranded(coordinator.StrandedReport{
			Total: map[string]int64{"requests": 3},
			Lines: []coordinator.StrandedLine{
				{Region: "a", Budget: "b", Unit: "requests", Remainder: allocation.Remainder{Stranded: 3}, Ahead: &coordinator.StrandedAhead{Periods: 1, Stranded: 7}},
				{Region: "a", Budget: "b/{c}", Unit: "requests", Remainder: allocation.Remainder{Unseen: 5000}, Ahead: &coordinator.StrandedAhead{Periods: 2, Unseen: 100}},
			},
		})
	})
	wants(t, text, "  3  ", "7 in 1 period ", "0 + up to 5000 unseen", "0 + up to 100 unseen in 2 periods", "3 + up to 5000 unseen requests are stranded")
}
