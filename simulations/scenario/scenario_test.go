package scenario

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden tables anew")

// fact is what a scenario must show; if it does not, the scenario no longer teaches what its comment says.
type fact struct {
	says  string
	holds func(ours, static, home, row, later Summary) bool
}

var facts = map[string][]fact{
	"steady": {
		{"nothing is refused", func(ours, _, _, _, _ Summary) bool { return ours.Refused == 0 && ours.OfPossible == 1 }},
		{"equal parts do not fit demand of 3 to 2 to 1", func(ours, static, _, _, _ Summary) bool {
			return static.Utilisation < ours.Utilisation-0.05
		}},
		{"a home makes callers wait", func(ours, _, home, _, _ Summary) bool { return ours.P99Micros == 0 && home.P99Micros == 205_000 }},
	},
	"follow-the-sun": {
		{"weights that follow the sun admit a fifth more than equal parts", func(ours, static, _, _, _ Summary) bool {
			return ours.OfPossible > 0.94 && static.OfPossible < 0.78
		}},
	},
	"follow-the-demand": {
		{"what is asked for is where it is needed, without a schedule", func(ours, static, _, _, _ Summary) bool {
			return ours.OfPossible > 0.99 && static.OfPossible < 0.78
		}},
	},
	"flash-crowd": {
		{"the move helps", func(ours, static, _, _, _ Summary) bool { return ours.Admitted > static.Admitted }},
		{"later counters go over the limit", func(_, _, _, _, later Summary) bool { return later.Over > 10_000 }},
		{"the row is overloaded", func(_, _, _, row, _ Summary) bool {
			return row.RefusedBy["overloaded"] > 0 && row.P99Micros > 1_000_000
		}},
	},
	"worst-moment": {
		{"what is stranded is refused elsewhere, not handed out twice", func(ours, _, _, _, _ Summary) bool {
			return ours.StrandedMost > 50_000 && ours.RefusedBy["capacity_stranded"] > 50_000
		}},
		{"the home refuses all that is cut off", func(_, _, home, _, _ Summary) bool { return home.Regions[1].RefusedBy[Unreachable] > 80_000 }},
		{"later counters go over the limit", func(_, _, _, _, later Summary) bool { return later.Over > 10_000 }},
	},
	"flapping-link": {
		{"nothing is refused", func(ours, _, _, _, _ Summary) bool { return ours.Refused == 0 && ours.StrandedSeconds > 0 }},
		{"the home loses a third of an hour", func(_, _, home, _, _ Summary) bool { return home.RefusedBy[Unreachable] > 20_000 }},
	},
	"coordinator-loss": {
		{"regions end when their terms do", func(ours, _, _, _, _ Summary) bool {
			return ours.RefusedBy["no_allocation"] > 0 && ours.Refused == ours.RefusedBy["no_allocation"]
		}},
		{"the row is gone at once", func(ours, _, _, row, _ Summary) bool { return row.Admitted < ours.Admitted*2/3 }},
	},
	"regional-database-loss": {
		{"what the lost database held stays out", func(ours, _, _, _, _ Summary) bool {
			return ours.Regions[2].StrandedMost > 15_000 && ours.Regions[2].RefusedBy["region_share_spent"] > 0
		}},
		{"the home's loss is everybody's", func(_, _, home, _, _ Summary) bool { return home.Regions[2].RefusedBy["database_unavailable"] > 0 }},
	},
	"nearly-used-up": {
		{"all of it is spent", func(ours, _, _, _, _ Summary) bool { return ours.OfPossible == 1 }},
		{"refusals say where the rest is", func(ours, _, _, _, _ Summary) bool {
			return ours.RefusedBy["capacity_stranded"] > 0 && ours.RefusedBy["region_share_spent"] > 0
		}},
		{"later counters go over the limit", func(_, _, _, _, later Summary) bool { return later.Over > later.Capacity/50 }},
	},
	"lowered-limit": {
		{"only what was handed out before is spent above the lowered limit", func(ours, _, _, _, _ Summary) bool { return ours.Lowered > 0 }},
	},
	"from-a-trace": {
		{"the move helps", func(ours, static, _, _, _ Summary) bool { return ours.Admitted > static.Admitted*5/4 }},
	},
}

// Every scenario that is shipped runs, shows what its comment says, and never admits above its limit.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../scenarios/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, file := range files {
		s, err := Load(file)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), s, Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			checkReport(t, r)
			for _, b := range s.Budgets {
				of := map[string]Summary{}
				for _, d := range r.Designs {
					of[d.Name], _ = r.Summary(d.Name, b.Name)
				}
				for _, f := range facts[s.Name] {
					if !f.holds(of[NameTranche], of[NameStatic], of[NameHome], of[NameRow], of[NameLater]) {
						t.Errorf("%s: %s does not show", b.Name, f.says)
					}
				}
			}
			if facts[s.Name] == nil || s.LookFor == "" {
				t.Error("it says nothing to look for, or no test holds it")
			}
			golden(t, s.Name, r)
		})
	}
}

// checkReport holds what must be true of every report.
func checkReport(t *testing.T, r Report) {
	t.Helper()
	for _, s := range r.Summaries {
		if s.Demanded != s.Admitted+s.Refused {
			t.Errorf("%s, %s: demand of %d is not %d admitted and %d refused", s.Design, s.Budget, s.Demanded, s.Admitted, s.Refused)
		}
		if hard := s.Design != NameLater && s.Design != NameStatic && s.Design != NameHome; hard && s.Over != 0 {
			t.Errorf("%s, %s: %d above the limit", s.Design, s.Budget, s.Over)
		}
		ours, _ := r.Summary(NameTranche, s.Budget)
		if s.Demanded != ours.Demanded || s.Requests != ours.Requests {
			t.Errorf("%s, %s: demand of %d in %d requests, and Tranche's is %d in %d", s.Design, s.Budget, s.Demanded, s.Requests, ours.Demanded, ours.Requests)
		}
	}
}

func golden(t *testing.T, name string, r Report) {
	t.Helper()
	var table bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(table.String(), "\n") {
		if len([]rune(line)) > tableWidth {
			t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
		}
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, table.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, table.Bytes()) {
		t.Errorf("the table changed; look at it, and write it anew with -update:\n%s", table.String())
	}
}
