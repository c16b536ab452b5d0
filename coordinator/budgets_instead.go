package coordinator

import (
	"fmt"

	"tranche/allocation"
)

// insteadWarnings says why an override has no effect: both budgets are then charged, which is the stricter reading.
func (s *Service) insteadWarnings(b allocation.Budget) []string {
	if b.InsteadOf == "" {
		return nil
	}
	d := s.state.budgets[b.InsteadOf]
	problem := ""
	switch {
	case d == nil || d.value.Deleted:
		problem = "is not declared"
	case b.Enforcement != "" && b.Enforcement != allocation.Enforce:
		return []string{fmt.Sprintf("instead_of: %s is charged too while this budget is not enforced", b.InsteadOf)}
	case d.value.Budget.Unit != b.Unit:
		problem = "counts " + d.value.Budget.Unit
	case !b.Displaces(&d.value.Budget):
		problem = "asks for labels that this match does not have, or for as many: an override asks for all of them and for more"
	default:
		return nil
	}
	return []string{fmt.Sprintf("instead_of has no effect: %s %s; both are charged where both apply", b.InsteadOf, problem)}
}
