package drill

import (
	"fmt"
	"strings"
)

// The capabilities of the budgets that Budgets declares.
const (
	Expendable = "drill-export"
	Precious   = "drill-checkout"
)

// Budgets is a manifest of what a drill needs: a synthetic tenant with an expendable capability and an essential one.
func Budgets(tenant string, regions []string) string {
	weights := make([]string, len(regions))
	for i, r := range regions {
		weights[i] = r + ": 1"
	}
	const budget = `budget: %[1]s/%[2]s
unit: requests
limit: %[3]d%[4]s
window: {every: 1h}
match: {tenant: %[1]s, capability: %[2]s}
synthetic: true
allocation: {policy: fixed, weights: {%[5]s}}
`
	split := strings.Join(weights, ", ")
	return fmt.Sprintf("# What a drill exhausts: it has a ladder, and protected permits.\n"+budget, tenant, Expendable, 300, "\nprotected: 30\nladder: standard", split) +
		fmt.Sprintf("---\n# What must not suffer meanwhile.\n"+budget, tenant, Precious, 20_000, "", split)
}
