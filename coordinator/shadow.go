package coordinator

import (
	"fmt"

	"tranche/allocation"
)

// actReason is the query parameter that says why a budget is loosened.
const actReason = "reason"

// maxShadowReason bounds it, in bytes.
const maxShadowReason = 500

// reason is why the caller acts, for the audit; empty if it says nothing.
func (c call) reason() (string, error) {
	text := c.URL.Query().Get(actReason)
	if len(text) > maxShadowReason {
		return "", invalid(actReason, fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("use at most %d", maxShadowReason))
	}
	return text, nil
}

// checkLoosened holds back a change that stops to enforce a budget for requests for which it is enforced: it needs a
// reason, and an end by itself. A smaller part of a budget in shadow needs the reason only, since an end would enforce all
// of it. What it passes is an act of its own name.
func (s *Service) checkLoosened(who actor, plan *budgetPlan, cur *doc[BudgetDocument]) error {
	if cur == nil || cur.value.Deleted || plan.next.Deleted {
		return nil
	}
	b := plan.next.Budget
	field, loosens := b.Loosens(cur.value.Budget)
	if !loosens {
		return nil
	}
	name := b.Name
	fix := fmt.Sprintf("use `tranche budgets shadow %s --for 1h --reason TEXT`", name)
	if who.reason == "" {
		return invalid(field, "would stop to enforce the budget, without a reason", fix)
	}
	if now := s.instant(); field != "enforce_for" && (b.EnforcementUntil <= now || b.EnforcementUntil > now+allocation.Instant(allocation.MaxShadowAgain)) {
		return invalid("enforcement_until", fmt.Sprintf("must end within %s, since the budget is enforced now", allocation.MaxShadowAgain), fix)
	}
	plan.act = "budget.shadow"
	plan.answer.Warnings = append(plan.answer.Warnings, loosened(b))
	return nil
}

func loosened(b allocation.Budget) string {
	until := "until it is changed again"
	if b.EnforcementUntil != 0 {
		until = "until " + b.EnforcementUntil.String()
	}
	return fmt.Sprintf("it lets requests through above its limit %s; they are not charged above it", until)
}
