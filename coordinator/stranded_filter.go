package coordinator

import (
	"fmt"
	"slices"
	"strings"
)

// StrandedFilter selects lines of a report. The zero value selects all.
type StrandedFilter struct {
	Budget  string            `json:"budget,omitempty"` // a name, or the beginning of names and a *
	Region  string            `json:"region,omitempty"`
	Match   map[string]string `json:"match,omitempty"`   // budgets that declare these labels in their match
	History bool              `json:"history,omitempty"` // also what is not stranded any more
}

func (f StrandedFilter) orNil() *StrandedFilter {
	if f.Budget == "" && f.Region == "" && len(f.Match) == 0 && !f.History {
		return nil
	}
	return &f
}

func (f StrandedFilter) selects(b *doc[BudgetDocument]) bool {
	if b == nil {
		return f.Budget == "" && len(f.Match) == 0
	}
	for label, value := range f.Match {
		if b.value.Budget.Match[label] != value {
			return false
		}
	}
	return f.selectsName(b.value.Budget.Name)
}

func (f StrandedFilter) selectsName(name string) bool {
	if begin, any := strings.CutSuffix(f.Budget, "*"); any {
		return strings.HasPrefix(name, begin)
	}
	return f.Budget == "" || f.Budget == name
}

// The query parameters of a filter.
const (
	byBudget    = "budget"
	byRegion    = "region"
	byMatch     = "match"
	withHistory = "history"
)

// strandedFilter reads a filter. A budget or region that nobody knows is a mistake: an empty report would say that all is
// well.
func (s *Service) strandedFilter(c call) (StrandedFilter, error) {
	q := c.URL.Query()
	f := StrandedFilter{Budget: q.Get(byBudget), Region: q.Get(byRegion)}
	var err error
	if f.History, err = c.flag(withHistory); err != nil {
		return f, err
	}
	if f.Match, err = selector(q.Get(byMatch)); err != nil {
		return f, err
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if f.Budget != "" && !slices.ContainsFunc(s.state.names, f.selectsName) {
		return f, invalid(byBudget, fmt.Sprintf("there is no budget %.200q", f.Budget), "name one as `tranche budgets list` shows it, or the beginning of names and a *")
	}
	if f.Region != "" && s.state.regions[f.Region] == nil {
		return f, invalid(byRegion, fmt.Sprintf("there is no region %.70q", f.Region), "list the regions to see their names")
	}
	return f, nil
}

// selector reads LABEL=VALUE, several with commas.
func selector(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	out := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		label, value, found := strings.Cut(part, "=")
		if !found || label == "" || value == "" {
			return nil, invalid(byMatch, fmt.Sprintf("%.100q is not LABEL=VALUE", part), "give labels as budgets declare them in match, several with commas: tenant=acme,route=/v1/chat")
		}
		if _, twice := out[label]; twice {
			return nil, invalid(byMatch, fmt.Sprintf("names %.70q twice", label), "give each label once")
		}
		out[label] = value
	}
	return out, nil
}
