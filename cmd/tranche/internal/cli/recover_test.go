package cli

import (
	"slices"
	"strings"
	"testing"

	"tranche/coordinator"
)

func strandedLine(region, budget, cause string, units int64) coordinator.StrandedLine {
	l := coordinator.StrandedLine{Region: region, Incarnation: "of-" + budget, Budget: budget, Unit: "requests", Cause: cause}
	l.Stranded = units
	return l
}

// What is written off counts as spent: told again, an operator would compensate it, or write it off, twice.
func TestRecoverLeavesOutWhatIsWrittenOff(t *testing.T) {
	written := strandedLine("us-east", "ended", coordinator.CauseLostHistory, 100)
	written.WrittenOff = &coordinator.WriteOff{}
	silent := strandedLine("us-east", "silent", coordinator.CauseUnreachable, 7)
	silentWritten := strandedLine("us-east", "silent-ended", coordinator.CauseUnreachable, 50)
	silentWritten.WrittenOff = &coordinator.WriteOff{}
	r := coordinator.StrandedReport{Lines: []coordinator.StrandedLine{
		written, strandedLine("us-east", "a", coordinator.CauseLostHistory, 1), strandedLine("us-east", "b", coordinator.CauseLostHistory, 2),
		strandedLine("us-east", "c", coordinator.CauseLostHistory, 3), strandedLine("us-east", "d", coordinator.CauseLostHistory, 4), silent, silentWritten,
	}}
	found := diagnose(coordinator.Status{
		Regions:     []coordinator.RegionAnswer{{Region: "us-east", Incarnation: "now"}},
		LostChanges: []coordinator.LostChange{{Budget: "a", Version: 3, Had: 2}},
	}, coordinator.HistoryAnswer{}, r, anyLine)
	text := ""
	for _, f := range found {
		text += f.What + "\n" + f.Means + "\n" + f.Do + "\n" + strings.Join(f.Commands, "\n") + "\n"
	}
	for _, want := range []string{
		"hold permits: 10 requests", "write-off --budget a ", "write-off --budget b ", "write-off --budget c ", "each of 4 budgets", "nobody else may. 7 requests stranded",
		"compensate silent --region us-east", "a: version 3, and etcd had 2",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	for _, never := range []string{"ended", "compensate a ", "write-off --budget d "} {
		if strings.Contains(text, never) {
			t.Errorf("it says %q:\n%s", never, text)
		}
	}
	if found := diagnose(coordinator.Status{}, coordinator.HistoryAnswer{}, coordinator.StrandedReport{Lines: []coordinator.StrandedLine{written}}, anyLine); len(found) > 0 {
		t.Errorf("all is written off, and it says %+v", found)
	}
}

func anyLine(coordinator.StrandedLine) string { return "" }

// A command that would be refused sends an operator the wrong way: of what cannot be compensated, and without the incarnation
// where the region has two.
func TestRecoverNamesCommandsThatWork(t *testing.T) {
	lost := strandedLine("us-east", "both", coordinator.CauseLostHistory, 5)
	lost.Incarnation = "before"
	r := coordinator.StrandedReport{Lines: []coordinator.StrandedLine{
		strandedLine("us-east", "refused", coordinator.CauseUnreachable, 7), strandedLine("us-east", "both", coordinator.CauseUnreachable, 6), lost,
		strandedLine("us-east", "one", coordinator.CauseUnreachable, 3),
	}}
	f := silentRegion(coordinator.RegionAnswer{Region: "us-east", Incarnation: "now"}, r, func(l coordinator.StrandedLine) string {
		if l.Budget == "refused" {
			return "the limit of refused is 0"
		}
		return ""
	})
	want := []string{"tranche budgets compensate both --region us-east --incarnation of-both", "tranche budgets compensate one --region us-east"}
	if got := f.Commands[2:]; !slices.Equal(got, want) {
		t.Errorf("it names %q, not %q", got, want)
	}
	if !strings.HasSuffix(f.Do, "; not that of refused (the limit of refused is 0)") {
		t.Errorf("it says not why one is left out: %q", f.Do)
	}
}

// An operator who looks for a raise that is not named must be told why there is none, in one line, however many there are.
func TestRecoverSaysWhyNoRaiseIsNamed(t *testing.T) {
	template, raised := strandedLine("us-east", "a", coordinator.CauseUnreachable, 1), strandedLine("us-east", "b", coordinator.CauseUnreachable, 2)
	template.Template, raised.Compensated = true, &coordinator.Compensation{}
	r := coordinator.StrandedReport{Lines: []coordinator.StrandedLine{template, raised}}
	for _, budget := range []string{"c", "d"} {
		more := strandedLine("us-east", budget, coordinator.CauseUnreachable, 3)
		more.Template = true
		r.Lines = append(r.Lines, more)
	}
	// None of these is asked about: there is nobody to ask.
	f := silentRegion(coordinator.RegionAnswer{Region: "us-east", Incarnation: "now"}, r, (&App{}).notCompensable(t.Context(), nil))
	const why = "a template: change its limit, which is per instance"
	if want := "; not that of a (" + why + "), b (it is compensated already), c (" + why + "), nor of 1 more"; !strings.HasSuffix(f.Do, want) || len(f.Commands) != 2 {
		t.Errorf("it says %q, and names %q", f.Do, f.Commands)
	}
}
