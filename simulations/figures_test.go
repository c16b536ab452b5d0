package simulations

import (
	"testing"
)

// The figures that the documentation gives, smaller: if one is missed, permits lie idle while requests are refused, or a
// region is given what another one holds.
func TestFigures(t *testing.T) {
	f, err := MeasureFigures(t.Context(), FiguresOptions{Seed: 3, Limits: []int64{300}, Callers: 60})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Missed {
		t.Error(m)
	}
	for _, d := range f.Demand {
		t.Logf("%+v", d)
	}
	for _, c := range f.Callers {
		t.Logf("%+v", c)
	}
	last := f.Demand[3]
	if last.Static > 0.34 || last.Utilisation < 2*last.Static {
		t.Errorf("all in one region: %+v", last)
	}
}

// The judges must be able to fail.
func TestFiguresAreJudged(t *testing.T) {
	var f Figures
	f.judge(DemandFigure{Limit: 10_000, Admitted: 10_001, Utilisation: 0.98, WritesPer100: 6})
	f.judgeCallers(CallersFigure{Callers: 10, Exact: 9, Elsewhere: 2, Sent: 1, LedgerWrites: 1, Stranded: []string{"us"}})
	if len(f.Missed) != 7 {
		t.Errorf("%d missed: %v", len(f.Missed), f.Missed)
	}
}
