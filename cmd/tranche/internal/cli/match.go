package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) matchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "match LABEL=VALUE…", Short: "Show which budgets a request with these labels would hit", Args: atLeastOne("LABEL=VALUE"),
		Long: `Show which budgets a request with these labels would hit, whatever it costs. Nothing is charged.

The coordinator knows the budgets; with --node a node says what it knows of them, and what its region may
still spend in the running period.`,
		Example: "  tranche budgets match tenant=acme route=/v1/chat\n  tranche budgets match tenant=acme --node http://127.0.0.1:7080",
		RunE: func(c *cobra.Command, args []string) error {
			labels, err := pairs("label", args)
			if err != nil {
				return err
			}
			if c.Flags().Changed("node") {
				client, err := a.node(c)
				if err != nil {
					return err
				}
				return a.nodeMatch(c.Context(), client, labels)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.match(c.Context(), client, labels)
		},
	}
	a.withNode(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) match(ctx context.Context, client *api.Client, labels map[string]string) error {
	var m coordinator.MatchAnswer
	if _, err := client.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/budgets/match", Body: map[string]any{"labels": labels}, Reads: true}, &m); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	if len(m.Budgets) == 0 && len(m.Problems) == 0 {
		a.printf("no budget applies; such a request is refused with no_budget\n")
	}
	var rows [][]any
	for _, b := range m.Budgets {
		rows = append(rows, []any{b.Budget, b.Instance, b.Limit, b.Unit, b.Window.String(), b.Home})
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "instance", "limit", "unit", "window", "home"}, rows)
	}
	for _, p := range m.Problems {
		a.printf("problem: %s\n", p)
	}
	for _, n := range m.Nearest {
		var lacks []string
		for _, w := range n.Lacks {
			lacks = append(lacks, fmt.Sprintf("%s=%s, and the request has %s", w.Label, w.Want, cmp.Or(w.Has, "no "+w.Label)))
		}
		a.printf("not hit: %s, which wants %s\n", n.Budget, strings.Join(lacks, "; "))
	}
	return nil
}

// nodeMatched is what a node answers: the fields that are printed.
type nodeMatched struct {
	Region  string `json:"region"`
	Budgets []struct {
		Budget    string      `json:"budget"`
		Instance  string      `json:"instance"`
		Unit      string      `json:"unit"`
		Reason    string      `json:"reason"`
		Home      string      `json:"home"`
		Period    *api.Period `json:"period"`
		Limit     int64       `json:"limit"`
		Share     *int64      `json:"share"` // nil: the owner could not be asked
		Remaining *int64      `json:"remaining"`

		Enforcement string `json:"enforcement"`
	} `json:"budgets"`
	Refusal *struct {
		Reason string `json:"reason"`
		Detail string `json:"detail"`
	} `json:"refusal"`
}

func (a *App) nodeMatch(ctx context.Context, client *api.Client, labels map[string]string) error {
	var raw json.RawMessage
	if _, err := client.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/match", Body: map[string]any{"labels": labels}, Reads: true}, &raw); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(raw)
	}
	var m nodeMatched
	if err := json.Unmarshal(raw, &m); err != nil {
		return fmt.Errorf("read the answer of the node at %s: %w; are both of the same version?", client.Address(), err)
	}
	a.showNodeMatch(m)
	return nil
}

func (a *App) showNodeMatch(m nodeMatched) {
	if m.Refusal != nil {
		a.printf("such a request is refused in %s: %s: %s\n", m.Region, m.Refusal.Reason, m.Refusal.Detail)
		return
	}
	told := func(n *int64) any {
		if n == nil {
			return "-"
		}
		return *n
	}
	var rows [][]any
	for _, b := range m.Budgets {
		period := "-"
		if b.Period != nil {
			period = b.Period.Start
		}
		rows = append(rows, []any{b.Budget + yes(b.Instance != "", " ["+b.Instance+"]"), b.Reason + yes(b.Enforcement == "shadow" || b.Enforcement == "meter", " ("+b.Enforcement+")"), told(b.Remaining), told(b.Share), b.Limit, b.Unit, period, b.Home})
	}
	a.printf("in region %s:\n", m.Region)
	a.table([]string{"budget", "", "left here", "share", "limit", "unit", "period", "home"}, rows)
}
