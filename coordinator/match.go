package coordinator

import (
	"fmt"

	"tranche/allocation"
)

// MatchAnswer says which budgets a request with some labels would hit now.
type MatchAnswer struct {
	*Evidence
	Budgets  []MatchedBudget `json:"budgets"`
	Problems []string        `json:"problems,omitempty"`
	// Nearest are the budgets that do not apply, and would if the fewest labels were different; at most nearestShown.
	Nearest []allocation.Miss `json:"nearest,omitempty"`
}

// nearestShown bounds the nearest misses of an answer.
const nearestShown = 3

// MatchedBudget is one of them.
type MatchedBudget struct {
	Budget   string              `json:"budget"`
	Instance string              `json:"instance,omitempty"`
	Unit     string              `json:"unit"`
	Limit    int64               `json:"limit"`
	Window   allocation.Window   `json:"window"`
	Term     *allocation.Instant `json:"term,omitempty"` // the running one; absent: none is open
	Home     string              `json:"home,omitempty"` // the one region that may spend it, by the running term
	Version  int64               `json:"version"`

	Enforcement string `json:"enforcement"` // as declared: enforce, shadow or meter
}

// match answers as the regions' nodes would: homes are those of the running term, by the policy and the regions that it
// names, and not by what is declared and registered now.
func (s *Service) match(l allocation.Labels) (MatchAnswer, error) {
	if err := l.Validate(); err != nil {
		return MatchAnswer{}, err
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	var all []allocation.Budget
	for _, name := range s.state.names {
		if d := s.state.budgets[name]; !d.value.Deleted {
			all = append(all, d.value.Budget.WithDefaults())
		}
	}
	l = s.state.routes().Complete(l)
	hits, missing := allocation.MatchBudgets(all, l)
	a := MatchAnswer{Evidence: s.evidence(), Budgets: []MatchedBudget{}, Nearest: allocation.NearestMisses(all, l, nearestShown)}
	for _, h := range hits {
		m, problem := s.matched(h, l)
		a.Budgets = append(a.Budgets, m)
		if problem != "" {
			a.Problems = append(a.Problems, problem)
		}
	}
	if missing != nil {
		a.Problems = append(a.Problems, missing.String()+"; such a request is refused")
	}
	if len(hits) > allocation.MaxBudgetsPerRequest {
		a.Problems = append(a.Problems, "these are more budgets than a request may hit; it is refused with too_many_budgets")
	}
	return a, nil
}

func (s *Service) matched(h allocation.Hit, l allocation.Labels) (m MatchedBudget, problem string) {
	b := h.Budget
	m = MatchedBudget{
		Budget: b.Name, Instance: h.Instance, Unit: b.Unit, Limit: b.LimitOrZero(), Window: b.Window, Version: s.state.budgets[b.Name].value.Version,
		Enforcement: b.Enforcement,
	}
	term := s.state.runningTerm(b.Name, s.instant())
	if term == nil {
		return m, fmt.Sprintf("no term of %s holds the present moment: its home is not known, and such a request is refused with no_allocation", b.Name)
	}
	start := term.Periods.Start()
	b.Allocation, m.Term = term.Policy, &start
	home, found := b.Home(h.Instance, l, term.Regions)
	if !found {
		return m, fmt.Sprintf("no region of the running term of %s is the home of these labels: such a request is refused with not_home", b.Name)
	}
	m.Home = home
	return m, ""
}

// runningTerm is the ledger of the budget's running period; nil if none is open.
func (s *state) runningTerm(budget string, now allocation.Instant) *allocation.Ledger {
	for _, l := range s.opened(budget, now) {
		if _, running := l.value.Periods.Find(now); running {
			return &l.value
		}
	}
	return nil
}
