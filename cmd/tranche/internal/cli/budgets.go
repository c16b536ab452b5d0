package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) budgetsCommand() *cobra.Command {
	return parent("budgets", "Declare budgets, and see how they are shared", "  tranche budgets apply budgets/\n  tranche budgets shares acme/requests",
		a.applyCommand(), a.previewCommand(), a.getBudgetCommand(), a.listBudgetsCommand(), a.matchCommand(), a.sharesCommand(), a.shadowBudgetCommand(),
		a.importCommand(), a.deleteBudgetCommand(), a.compensateCommand(), a.closingsCommand())
}

// budgetPath is the path of a budget below a collection.
func budgetPath(collection, name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return collection + strings.Join(parts, "/")
}

func quoted(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

func readBudget(ctx context.Context, c *api.Client, name string) (coordinator.BudgetAnswer, error) {
	var b coordinator.BudgetAnswer
	_, err := c.Do(ctx, api.Call{Method: http.MethodGet, Path: budgetPath("/v1/budgets/", name)}, &b)
	return b, err
}

func (a *App) getBudgetCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "get NAME", Short: "Show one budget", Args: exactly("NAME"), Example: "  tranche budgets get acme/requests",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			b, err := readBudget(c.Context(), client, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(b)
			}
			a.showBudget(b)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showBudget(b coordinator.BudgetAnswer) {
	d := b.Budget
	rows := [][]any{
		{"budget", d.Name},
		{"unit", d.Unit},
		{"limit", fmt.Sprintf("%d per period%s", d.LimitOrZero(), perInstance(d))},
		{"counted", d.CountedBy()},
		{"window", d.Window.String()},
		{"match", asLabels(d.Match) + yes(len(d.Match) == 0, " (default)")},
		{"allocation", describePolicy(d.Allocation)},
		{"runs_alone_for", orDefault(d.RunsAloneFor, allocation.DefaultRunsAloneFor)},
	}
	if d.IsTemplate() {
		rows = append(rows,
			[]any{"missing_label", orDefault(d.MissingLabel, allocation.MissingLabelRefuse)},
			[]any{"max_instances", orDefault(d.MaxInstances, allocation.DefaultMaxInstances)})
	}
	rows = append(rows,
		[]any{"admission_id", orDefault(d.AdmissionID, allocation.AdmissionIDRequired)},
		[]any{"on_lapse", orDefault(d.OnLapse, allocation.OnLapseSpend)},
		[]any{"longest_reservation", orDefault(d.LongestReservation, allocation.DefaultReservation)},
		[]any{"on_exhausted", orDefault(d.OnExhausted, allocation.DefaultOnExhausted)})
	if d.MaxEvidenceAge == 0 {
		rows = append(rows, []any{"max_evidence_age", "any (default)"})
	} else {
		rows = append(rows,
			[]any{"max_evidence_age", d.MaxEvidenceAge.String()},
			[]any{"on_stale_evidence", orDefault(d.OnStaleEvidence, allocation.OnStaleRefuse)})
	}
	wait := "not at all (default)"
	if d.WaitForShare > 0 {
		wait = d.WaitForShare.String()
	}
	opening := "0 (default)"
	if d.OpeningSpent > 0 {
		opening = fmt.Sprintf("%d, in the first period only", d.OpeningSpent)
	}
	rows = append(rows, []any{"opening_spent", opening}, []any{"thresholds", thresholdsWords(d)})
	rows = append(rows, policyRows(d)...)
	rows = append(rows, enforcementRows(d)...)
	rows = append(rows,
		[]any{"wait_for_share", wait},
		[]any{"version", fmt.Sprintf("%d, changed %s", b.Version, b.Changed.UTC().Format("2006-01-02 15:04:05Z"))},
		[]any{"terms opened through", b.OpenedThrough.String()})
	a.table([]string{"field", "value"}, rows)
	a.printf("\n")
	a.permits(b)
}

// orDefault is a value as it counts, marked where it is the one that counts without being declared.
func orDefault[T comparable](value, standard T) string {
	return fmt.Sprint(value) + yes(value == standard, " (default)")
}

func perInstance(b allocation.Budget) string {
	if b.IsTemplate() {
		return ", for each instance"
	}
	return ""
}

// permits prints what each region gets of one period, and the warnings.
func (a *App) permits(b coordinator.BudgetAnswer) {
	var rows [][]any
	for _, region := range slices.Sorted(maps.Keys(b.Permits)) {
		rows = append(rows, []any{region, b.Permits[region]})
	}
	if inOneHome(b.Budget) {
		a.printf("%s; an instance is at home in one of: %s\n", permitsOf(&b), strings.Join(slices.Sorted(maps.Keys(b.Permits)), ", "))
		rows = nil
	}
	if len(rows) > 0 {
		a.table([]string{"region", "permits"}, rows)
	}
	for _, w := range b.Warnings {
		a.printf("warning: %s\n", w)
	}
}

func asLabels(m map[string]string) string {
	if len(m) == 0 {
		return "every request"
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, name+"="+m[name])
	}
	return strings.Join(parts, " ")
}

func describePolicy(p allocation.Policy) string {
	forwarded := ""
	if p.Forward {
		forwarded = ", forwarded"
	}
	switch {
	case p.Region != "":
		return "home in " + p.Region + forwarded
	case p.HashOf != "":
		return "home by hash of " + p.HashOf + forwarded
	case p.RegionFrom != "":
		return "home named by label " + p.RegionFrom + forwarded
	case p.Policy == allocation.PolicyDemand:
		return describeDemand(p)
	}
	return p.Policy + ": " + asParts(p.Weights)
}

// describeDemand says what bounds the parts of a demand budget, if anything does.
func describeDemand(p allocation.Policy) string {
	text := p.Policy
	if len(p.Min) > 0 {
		text += "; min " + asParts(p.Min)
	}
	if len(p.Max) > 0 {
		text += "; max " + asParts(p.Max)
	}
	return text + "; runway " + p.Runway().String()
}

func asParts(m map[string]int64) string {
	var parts []string
	for _, region := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", region, m[region]))
	}
	return strings.Join(parts, ", ")
}

func (a *App) listBudgetsCommand() *cobra.Command {
	var deleted bool
	c := &cobra.Command{
		Use: "list", Short: "List all budgets", Args: exactly(), Example: "  tranche budgets list --json",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			list, err := allBudgets(c.Context(), client, deleted)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(coordinator.BudgetsPage{Budgets: list})
			}
			if len(list) == 0 {
				a.printf("no budgets; declare one in a file and run `tranche budgets apply FILE`\n")
				return nil
			}
			var rows [][]any
			for _, b := range list {
				rows = append(rows, []any{
					b.Budget.Name + yes(b.Deleted, " (deleted)"), b.Budget.LimitOrZero(), b.Budget.Unit, b.Budget.CountedBy(), b.Budget.Window.String(),
					b.Version, describePolicy(b.Budget.Allocation),
				})
			}
			a.table([]string{"budget", "limit", "unit", "counted", "window", "version", "allocation"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&deleted, "deleted", false, "list deleted ones too")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func allBudgets(ctx context.Context, client *api.Client, deleted bool) ([]coordinator.BudgetAnswer, error) {
	list := []coordinator.BudgetAnswer{}
	after := ""
	for {
		query := url.Values{"limit": {"1000"}}
		if after != "" {
			query.Set("after", after)
		}
		if deleted {
			query.Set("deleted", "true")
		}
		var page coordinator.BudgetsPage
		if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/budgets", Query: query}, &page); err != nil {
			return nil, err
		}
		list = append(list, page.Budgets...)
		if page.Next == "" {
			return list, nil
		}
		after = page.Next
	}
}

func (a *App) sharesCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "shares NAME", Short: "Show what each region was granted, has returned, spent and reserved", Args: exactly("NAME"),
		Example: "  tranche budgets shares acme/requests",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var s coordinator.SharesAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: budgetPath("/v1/shares/", args[0])}, &s); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(s)
			}
			a.showShares(s, all)
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "show the terms ahead too")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showShares(s coordinator.SharesAnswer, all bool) {
	if len(s.Terms) == 0 {
		a.printf("no term of %s is open%s\n", s.Budget, yes(s.Deleted, ": it is deleted"))
	}
	shown := 0
	for _, t := range s.Terms {
		if shown > 0 && !all {
			break
		}
		shown++
		a.printf("period %s to %s%s, generation %s\n", t.Period.Start, t.Period.End, yes(!t.Running, " (ahead)"), t.Generation)
		a.printf("limit %d %s, unallocated %d, overcommitted %d\n", t.Limit, s.Unit, t.Unallocated, t.Overcommitted)
		if t.OpeningSpent > 0 {
			a.printf("opening spent %d: before the budget was declared\n", t.OpeningSpent)
		}
		var rows [][]any
		for _, r := range t.Regions {
			rows = append(rows, []any{
				r.Region, r.Granted, r.Returned, r.Target, r.Spent, r.Reserved, r.Spendable, a.ago(r.StatedAt) + yes(!r.InContact, ", not in contact"), cmp.Or(r.Incarnation, "-"),
			})
		}
		a.table([]string{"region", "granted", "returned", "target", "spent", "reserved", "spendable", "stated", "incarnation"}, rows)
	}
	if more := len(s.Terms) - shown; more > 0 {
		a.printf("%s open, through %s; --all shows them\n", plural(more, "more term is", "more terms are"), s.OpenedThrough)
	}
	if s.Template {
		a.printf("granted, returned and target are for each instance; spent and reserved are sums\n")
	}
}

func (a *App) deleteBudgetCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a budget: requests that only it matched are refused, its history stays", Args: exactly("NAME"),
		Long: `Delete a budget. As soon as a region hears of it, requests that only this budget matched are refused there with
no_budget (422), and requests that others match are charged to those alone. Regions give back what they have not
spent. The name and its history stay: made again, it is the next version.

To refuse what it matches with ceiling_reached instead, set its limit to 0.`,
		Example: "  tranche budgets delete acme/requests --dry-run",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			b, err := readBudget(c.Context(), client, args[0])
			if err != nil {
				return err
			}
			call := api.Call{Method: http.MethodDelete, Path: budgetPath("/v1/budgets/", args[0]), Header: http.Header{"If-Match": {quoted(b.Version)}}}
			if dry {
				call.Query = url.Values{"dry_run": {"true"}}
			}
			var after coordinator.BudgetAnswer
			if _, err := client.Do(c.Context(), call, &after); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(after)
			}
			a.printf("%s: %s, version %d\n", args[0], map[bool]string{true: "would be deleted", false: "deleted"}[dry], after.Version)
			a.printf("callers that no other budget matches hear no_budget (422) once their region knows; a limit of 0 would say ceiling_reached\n")
			return nil
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would happen")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// inOneHome says whether each instance of a template has a home of its own: the permits are then not each region's, but
// those of an instance in one of them.
func inOneHome(b allocation.Budget) bool {
	return b.IsTemplate() && (b.Allocation.HashOf != "" || b.Allocation.RegionFrom != "")
}

// permitsOf is one line of what each region gets.
func permitsOf(b *coordinator.BudgetAnswer) string {
	if inOneHome(b.Budget) {
		return fmt.Sprintf("%d for each instance, in its home region", b.Budget.LimitOrZero())
	}
	text := asParts(b.Permits) + perInstance(b.Budget)
	if b.Budget.Allocation.Policy == allocation.PolicyDemand {
		text += " at first; the rest as regions ask for it"
	}
	return text
}
