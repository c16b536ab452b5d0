package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
)

// hitSteps bounds the search for labels that hit too many budgets. Where it cannot tell, the coordinator judges each
// budget when it is written.
const hitSteps = 200_000

// checkTogether refuses what only all budgets together do wrong, before the first is written: some request would hit more of
// them than one may, counting those that stand already. The coordinator judges one budget at a time, so that without
// this some would be written before another is refused.
func checkTogether(ctx context.Context, client *api.Client, declared []manifest.Budget, plans []applied) error {
	fresh := map[string]manifest.Budget{}
	for i, p := range plans {
		if p.Action != actionUnchanged {
			fresh[p.Budget] = declared[i]
		}
	}
	if len(fresh) < 2 {
		return nil // the coordinator has judged the only one
	}
	standing, err := allBudgets(ctx, client, false)
	if err != nil {
		return err
	}
	var all []allocation.Budget
	for _, b := range standing {
		if _, changes := fresh[b.Budget.Name]; !changes {
			all = append(all, b.Budget)
		}
	}
	for _, b := range fresh {
		all = append(all, b.Budget)
	}
	slices.SortFunc(all, func(a, b allocation.Budget) int { return strings.Compare(a.Name, b.Name) })
	most, labels, hit, _ := allocation.MostBudgetsHit(all, allocation.MaxBudgetsPerRequest, hitSteps)
	at := slices.IndexFunc(hit, func(name string) bool { return fresh[name].Name != "" })
	if most <= allocation.MaxBudgetsPerRequest || at < 0 {
		return nil
	}
	return usageError{of(fresh[hit[at]], fmt.Errorf("match: a request with %s would hit %d budgets (%s), of the files and of those that stand; narrow a match, a request may hit %d. Nothing was changed",
		labels, most, strings.Join(hit, ", "), allocation.MaxBudgetsPerRequest))}
}
