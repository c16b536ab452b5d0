package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// kase is one case of the benchmark.
type kase struct {
	Name, What string
	users      bool // measured without --all
	run        func(ctx context.Context, b *bench, result *Case) error
}

func cases() []kase {
	return []kase{
		{"hot", "one budget that all callers spend from", true, hot},
		{"many", "1,000 budgets, some asked much more often than others, beside one", true, many},
		{"http", "one budget over HTTP, one by one and in batches, beside a handler that decides nothing", true, overTheWire},
		{"overload", "twice as many requests as can be decided", true, overload},
		{"mixed", "twice as many requests of all priorities as can be decided", false, mixed},
		{"callers", "one budget, by 1 to 1,024 callers", false, callers},
		{"three", "three budgets a request, beside one", false, three},
		{"clients", "one budget over HTTP, from two client processes, beside clients in the node's process", false, clientsApart},
		{"nodes", "two nodes over one database, beside one", false, twoNodes},
		{"template", "a template with 1,000,000 callers, beside 1,000", false, template},
		{"settle", "reserve and then settle, beside a spend", false, reserveSettle},
		{"replay", "ids that were admitted before", false, replays},
		{"exhausted", "a budget without permits, over HTTP, beside a handler that decides nothing", false, exhausted},
		{"rollover", "the end of a period of 1,000 budgets under load", false, rollover},
		{"cold", "from the start of a node to its first admission", false, cold},
		{"changes", "10 changes of budgets a second meanwhile", false, changes},
		{"grpc", "one budget over Envoy's rate limit service, beside a service that decides nothing", false, rateLimits},
		{"switch", "id tables switched and emptied meanwhile", false, switching},
		{"dump", "a dump meanwhile: a snapshot that stays open", false, dump},
		{"updates", "one budget for long: its tables do not grow", false, updates},
		{"scoped", "5,000 scoped budgets with tenant overrides: warm, cold, during updates, over the end of a period", false, scoped},
	}
}

// Line is a case, for a list.
type Line struct {
	Name string `json:"name"`
	What string `json:"what"`
	All  bool   `json:"all"` // only with --all, or by name
}

// List is the cases that there are.
func List() (lines []Line) {
	for _, k := range cases() {
		lines = append(lines, Line{k.Name, k.What, !k.users})
	}
	return lines
}

// Known says what is wrong with the names of cases.
func Known(names []string) error {
	var known []string
	for _, k := range cases() {
		known = append(known, k.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("there is no case %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// chosen is the cases that are to be measured.
func (b *bench) chosen() (list []kase, err error) {
	if err := Known(b.Cases); err != nil {
		return nil, err
	}
	for _, k := range cases() {
		if len(b.Cases) > 0 && slices.Contains(b.Cases, k.Name) || len(b.Cases) == 0 && (k.users || b.All) {
			list = append(list, k)
		}
	}
	return list, nil
}

// firm is a budget of a tenant of its own.
func firm(i int) string { return "firm-" + strconv.Itoa(i) }

// plenty is a limit that no case reaches.
const plenty = 1 << 50

func budget(name string, limit int64, match string) string {
	return budgetOf(name, limit, `{"once":{"from":"2020-01-01T00:00:00Z"}}`, match)
}

func budgetOf(name string, limit int64, window, match string) string {
	return fmt.Sprintf(`{"budget":%q,"unit":"requests","limit":%d,"window":%s,"match":%s,"allocation":{"policy":"fixed","weights":{%q:1}}}`,
		name, limit, window, match, region)
}
