package coordinator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// checkBudget is the validation at the door that needs more than the budget itself: its past, the regions, the others.
// The warning is for people.
func (s *Service) checkBudget(name string, b allocation.Budget, cur *doc[BudgetDocument]) (warning string, err error) {
	var found allocation.Problems
	add := func(field, problem, fix string) {
		found = append(found, allocation.FieldError{Field: field, Problem: problem, Fix: fix})
	}
	if b.Name != name {
		add("budget", fmt.Sprintf("is %q, but the address names %q", b.Name, name), "use one name")
	}
	s.checkRegions(b, add)
	checkOpening(b, cur, add)
	if cur != nil {
		s.checkPast(b, cur.value, add)
	}
	if cur == nil || cur.value.Deleted || !maps.Equal(cur.value.Budget.Match, b.Match) {
		warning = s.checkHits(b, add)
	}
	if len(found) > 0 {
		return "", found
	}
	return warning, nil
}

type addProblem func(field, problem, fix string)

func (s *Service) checkRegions(b allocation.Budget, add addProblem) {
	registered := s.state.members().Regions
	fix := "register the region first, or correct its name"
	known := "no such region; registered are " + strings.Join(registered, ", ")
	if len(registered) == 0 {
		known = "no such region; none is registered yet"
	}
	for _, named := range []struct {
		field string
		units map[string]int64
	}{{"weights", b.Allocation.Weights}, {"min", b.Allocation.Min}, {"max", b.Allocation.Max}} {
		for _, region := range slices.Sorted(maps.Keys(named.units)) {
			if !slices.Contains(registered, region) {
				add("allocation."+named.field+"."+region, known, fix)
			}
		}
	}
	if r := b.Allocation.Region; r != "" && !slices.Contains(registered, r) {
		add("allocation.region", fmt.Sprintf("%s: %s", r, known), fix)
	}
}

// checkPast refuses what a name cannot become: its permits were counted in one unit, and a period that was opened once
// is never opened again.
func (s *Service) checkPast(b allocation.Budget, cur BudgetDocument, add addProblem) {
	if b.Unit != cur.Budget.Unit && !cur.Lost {
		add("unit", fmt.Sprintf("is %s, and this name counts %s", b.Unit, cur.Budget.Unit), "give another unit another name")
	}
	if cur.OpenedThrough == allocation.Never && b.Window.Once == nil {
		add("window", "would never count: this name has one period without an end, and it is opened", "give the other window another name")
	}
	if o := b.Window.Once; o != nil && o.Until != 0 && cur.OpenedThrough > o.From && o.Until <= cur.OpenedThrough && !b.Window.Equal(cur.Budget.Window) {
		add("window.once.until", fmt.Sprintf("terms are opened up to %s already: this period would never begin", cur.OpenedThrough),
			"choose a later end, or another name")
	}
}

// checkOpening refuses what was spent before, unless the budget is declared now, for the first time: what was opened is never
// opened again. A declaration that is kept in a file may keep the field.
func checkOpening(b allocation.Budget, cur *doc[BudgetDocument], add addProblem) {
	switch {
	case cur == nil && b.OpeningSpent > b.LimitOrZero():
		add("opening_spent", fmt.Sprintf("is %d, and the limit is %d", b.OpeningSpent, b.LimitOrZero()), "use at most the limit: then nothing is left in the first period")
	case cur == nil || b.OpeningSpent == 0:
	case cur.value.Lost:
		add("opening_spent", "this budget was declared before, and etcd lost that: the regions have stated what its first period began with, and it counts",
			"leave it out")
	case b.OpeningSpent != cur.value.Budget.OpeningSpent:
		add("opening_spent", fmt.Sprintf("is %d, and it was %d when the budget was declared: it counts in the first period only, which was opened then", b.OpeningSpent, cur.value.Budget.OpeningSpent),
			"leave it as it was, or out; lower the limit until the running period ends")
	}
}

// checkHits refuses a budget with which some request would hit more than may be. Only budgets that can apply to a request
// together with this one are looked at. Where the bounded search cannot tell, it warns.
func (s *Service) checkHits(b allocation.Budget, add addProblem) (warning string) {
	together := []allocation.Budget{b}
	for _, name := range s.state.hits.with(b.Match) {
		if name != b.Name {
			together = append(together, s.state.budgets[name].value.Budget)
		}
	}
	if len(together) <= allocation.MaxBudgetsPerRequest {
		return ""
	}
	// The same answer on every replica and in every run.
	slices.SortFunc(together, func(x, y allocation.Budget) int { return cmp.Compare(x.Name, y.Name) })
	most, labels, hit, decided := allocation.MostBudgetsHit(together, allocation.MaxBudgetsPerRequest, matchSteps)
	switch {
	case most > allocation.MaxBudgetsPerRequest:
		add("match", fmt.Sprintf("a request with %s would hit %d budgets: %s", asText(labels), most, strings.Join(hit, ", ")),
			fmt.Sprintf("narrow a match; a request may hit %d", allocation.MaxBudgetsPerRequest))
	case !decided:
		return fmt.Sprintf("it is undecided whether some request hits more than %d budgets; one that does is refused with too_many_budgets",
			allocation.MaxBudgetsPerRequest)
	}
	return ""
}

const (
	// leastAlone is the least runs_alone_for that is not warned of.
	leastAlone = allocation.Minute
	// leastTurns is how many held sync calls runs_alone_for has to span at least: each may be late or lost.
	leastTurns = 10
)

// timeWarnings warns of a budget that refuses by its times: before or after its only period, or now and then since regions
// cannot fetch its terms in time.
func (s *Service) timeWarnings(b allocation.Budget) (warnings []string) {
	now := s.instant()
	if o := b.Window.Once; o != nil {
		switch {
		case now < o.From:
			warnings = append(warnings, fmt.Sprintf("its window begins at %s: no request is admitted in it before", o.From))
		case o.Until != 0 && now >= o.Until:
			warnings = append(warnings, fmt.Sprintf("its window is over since %s: no request is admitted in it any more", o.Until))
		}
		return warnings // its only term is open from the beginning, whatever runs_alone_for is
	}
	turn := allocation.Duration(s.config.ReportUnreachableAfter / 3 / time.Second)
	if least, alone := max(leastAlone, leastTurns*turn), b.WithDefaults().RunsAloneFor; alone < least && b.Window.Horizon(alone) < least {
		warnings = append(warnings, fmt.Sprintf("runs_alone_for is %s: healthy regions will refuse with no_allocation now and then; use at least %s", alone, least))
	}
	return warnings
}

// keptWarnings warns of what a lowered limit does not take back: a region keeps its protected part free beside what it spent,
// so that a recall takes it from nobody essential.
func keptWarnings(old, b allocation.Budget) []string {
	if b.Protected == 0 || old.Limit == nil || b.LimitOrZero() >= old.LimitOrZero() || b.LimitOrZero() == 0 {
		return nil
	}
	return []string{fmt.Sprintf("of what is out now, essential traffic may still spend the protected %d, to the end of the running period, also above the new limit; to stop that too, lower `protected` with it", b.Protected)}
}

func asText(l allocation.Labels) string {
	if len(l) == 0 {
		return "any labels"
	}
	return l.String()
}

// FieldChange is one field that a change touches; a side that has no such field is left out.
type FieldChange struct {
	Field string `json:"field"`
	Old   any    `json:"old,omitempty"`
	New   any    `json:"new,omitempty"`
}

// difference lists the fields of the declaration, with their defaults, that a change touches.
func difference(cur *doc[BudgetDocument], next BudgetDocument) []FieldChange {
	old := map[string]any{}
	if cur != nil && !cur.value.Deleted {
		flatten("", cur.value.Budget.WithDefaults(), old)
	}
	new := map[string]any{}
	flatten("", next.Budget.WithDefaults(), new)
	fields := slices.Collect(maps.Keys(old))
	for field := range new {
		if _, both := old[field]; !both {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	var out []FieldChange
	for _, field := range fields {
		if old[field] != new[field] {
			out = append(out, FieldChange{Field: field, Old: old[field], New: new[field]})
		}
	}
	return out
}

// flatten writes the leaves of a document by their paths. Leaves are texts, numbers and booleans.
func flatten(path string, v any, out map[string]any) {
	var tree any
	d := json.NewDecoder(bytes.NewReader(encode(v)))
	d.UseNumber() // a limit of 2^53 stays what it is
	if d.Decode(&tree) != nil {
		return
	}
	flattenTree(path, tree, out)
}

func flattenTree(path string, v any, out map[string]any) {
	object, ok := v.(map[string]any)
	if !ok {
		out[path] = v
		return
	}
	for name, value := range object {
		flattenTree(strings.TrimPrefix(path+"."+name, "."), value, out)
	}
}
