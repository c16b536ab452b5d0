package allocation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MaxBudgetsPerRequest is how many budgets one request may hit.
const MaxBudgetsPerRequest = 8

// Hit is a budget that applies to a request, and its instance if it is a template.
type Hit struct {
	Budget   *Budget // of the index or list that was searched: not to be changed
	Instance string
	// Missing says that it has no instance, for lack of a label. Only of a budget in shadow or metered: it may refuse nobody.
	Missing *MissingLabel
}

// MissingLabel says why a request cannot be told a template's instance: Label
// is absent, or, if TooLong, its value makes the instance longer than MaxInstanceBytes.
type MissingLabel struct {
	Budget  string
	Label   string
	TooLong bool
}

// String says it in words.
func (m MissingLabel) String() string {
	if m.TooLong {
		return fmt.Sprintf("label %s is too long for budget %s: its labels have at most %d bytes when escaped",
			m.Label, m.Budget, MaxInstanceBytes)
	}
	return fmt.Sprintf("label %s is missing, which budget %s counts by", m.Label, m.Budget)
}

// String returns them by name, like "caller=any, tenant=acme"; "none" if there are none.
func (l Labels) String() string {
	if len(l) == 0 {
		return "none"
	}
	parts := make([]string, 0, len(l))
	for _, name := range slices.Sorted(maps.Keys(l)) {
		parts = append(parts, name+"="+l[name])
	}
	return strings.Join(parts, ", ")
}

// MatchBudgets returns the budgets that apply to a request with these labels,
// by name bytewise. If a template's label is missing it returns the first such
// budget by name; the request must then be refused. It looks at every budget:
// use a MatchIndex on the way of requests.
func MatchBudgets(budgets []Budget, l Labels) ([]Hit, *MissingLabel) {
	var m matched
	sorted := make([]*Budget, len(budgets))
	for i := range budgets {
		sorted[i] = &budgets[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Budget) int { return cmp.Compare(a.Name, b.Name) })
	for _, b := range sorted {
		instance, applies, label := b.Matches(l)
		m.look(b, l, instance, applies, label)
	}
	return m.result()
}

// MostBudgetsHit searches for labels that hit as many budgets at once as any
// can. It returns how many, such labels, and the budgets' names in order.
//
// It stops early in two cases. With more than enough found it is decided: the
// labels are proof that it is exceeded, though more may be possible. After
// steps (budgets looked at) it is not decided: most is a lower bound only. The
// problem is hard in general, but budgets of many tenants take about one look
// each. The limit on labels per request is not taken into account.
func MostBudgetsHit(budgets []Budget, enough, steps int) (most int, example Labels, names []string, decided bool) {
	s := hitSearch{budgets: budgets, enough: enough, steps: steps, chosen: Labels{}, best: Labels{}}
	var sure int
	var open []int
	for i, b := range budgets {
		if len(b.Match) == 0 {
			sure++
		} else {
			open = append(open, i)
		}
	}
	s.most = sure
	decided = s.search(sure, open) || s.most > enough
	for _, b := range budgets {
		if hitBy(b, s.best) {
			names = append(names, b.Name)
		}
	}
	for _, b := range budgets {
		// A template needs its labels, whatever their values.
		for _, label := range b.TemplateLabels() {
			if s.best[label] == "" && hitBy(b, s.best) {
				s.best[label] = "any"
			}
		}
	}
	slices.Sort(names)
	return s.most, s.best, names, decided
}

// hitSearch is a depth-first search with a bound: it gives labels their values
// one after the other. A label never needs to stay absent: a value keeps all
// budgets that do not ask for the label, and adds some.
type hitSearch struct {
	budgets       []Budget
	enough, steps int
	chosen        Labels // values given on the way to here
	most          int
	best          Labels
}

// search goes through all values of one label of the open budgets, those that
// neither contradict what is chosen nor are wholly matched by it; sure counts
// the latter. It returns false when it stopped early.
func (s *hitSearch) search(sure int, open []int) bool {
	if sure > s.most {
		s.most, s.best = sure, maps.Clone(s.chosen)
	}
	if s.most > s.enough {
		return false
	}
	if s.steps -= len(open); s.steps < 0 {
		return len(open) == 0
	}
	if len(open) == 0 || sure+len(open) <= s.most {
		return true
	}
	label := s.commonest(open)
	without, byValue := s.group(label, open)
	values := slices.SortedFunc(maps.Keys(byValue), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(byValue[b]), len(byValue[a])), cmp.Compare(a, b))
	})
	defer delete(s.chosen, label)
	for _, value := range values {
		if sure+len(without)+len(byValue[value]) <= s.most {
			break // the values that follow have no more budgets
		}
		s.chosen[label] = value
		now, still := sure, slices.Clone(without)
		for _, i := range byValue[value] {
			if hitBy(s.budgets[i], s.chosen) {
				now++
			} else {
				still = append(still, i)
			}
		}
		if !s.search(now, still) {
			return false
		}
	}
	return true
}

// commonest returns the label that most open budgets still ask for, so that one choice settles much.
func (s *hitSearch) commonest(open []int) string {
	asked := map[string]int{}
	for _, i := range open {
		for name := range s.budgets[i].Match {
			if _, given := s.chosen[name]; !given {
				asked[name]++
			}
		}
	}
	best := ""
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if best == "" || asked[name] > asked[best] {
			best = name
		}
	}
	return best
}

func (s *hitSearch) group(label string, open []int) (without []int, byValue map[string][]int) {
	byValue = map[string][]int{}
	for _, i := range open {
		if value, asks := s.budgets[i].Match[label]; asks {
			byValue[value] = append(byValue[value], i)
		} else {
			without = append(without, i)
		}
	}
	return without, byValue
}

// hitBy says whether labels have all that a budget's match asks for.
func hitBy(b Budget, labels Labels) bool {
	for name, want := range b.Match {
		if labels[name] != want {
			return false
		}
	}
	return true
}
