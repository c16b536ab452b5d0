package cli

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/coordinator"
)

const routesLong = `The routes table says which capability an endpoint is for, so that a gateway may send method and path only,
and a URL that moves keeps its budgets. Every node has it; a request that names a capability itself keeps that one.`

func (a *App) routesCommand() *cobra.Command {
	c := parent("routes", "Say which endpoint is which capability", "  tranche routes apply routes.yaml",
		a.routesApplyCommand(), a.routesListCommand(), a.routesMatchCommand())
	c.Long = routesLong
	return c
}

func (a *App) routesApplyCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "apply FILE", Short: "Replace the routes table by a file's", Args: exactly("FILE"),
		Long: routesLong + `

The file is the whole table: an endpoint that it does not name any more has no capability from then on. - is standard input.`,
		Example: `  tranche routes apply --dry-run routes.yaml
  tranche routes apply routes.yaml

A file:
  routes:
    - {method: POST, path: /v1/chat, capability: model}
    - {path: "/v1/users/{id}", capability: profile}
    - {path: /v1/exports/*, capability: export}`,
		RunE: func(c *cobra.Command, args []string) error {
			t, err := manifest.LoadRoutes(a.in, args[0])
			if err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.applyRoutes(c.Context(), client, t, dry)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show the difference, change nothing")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) applyRoutes(ctx context.Context, client *api.Client, t allocation.Routes, dry bool) error {
	if t.Routes == nil {
		t.Routes = []allocation.Route{}
	}
	path := "/v1/routes"
	if dry {
		path += "?dry_run=true"
	}
	var answer coordinator.RoutesAnswer
	if _, err := client.Do(ctx, api.Call{Method: http.MethodPut, Path: path, Body: t, Reads: dry}, &answer); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(answer)
	}
	for _, r := range answer.Added {
		a.printf("+ %s\n", routeText(r))
	}
	for _, r := range answer.Removed {
		a.printf("- %s\n", routeText(r))
	}
	switch {
	case len(answer.Added)+len(answer.Removed) == 0:
		a.printf("unchanged, version %d\n", answer.Version)
	case dry:
		a.printf("nothing was changed\n")
	default:
		a.printf("version %d of the table; each node has it with its region's next sync\n", answer.Version)
	}
	return nil
}

func routeText(r allocation.Route) string {
	return strings.TrimSpace(r.Method+" "+r.Path) + "  " + r.Capability
}

func (a *App) routesListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the routes table", Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var answer coordinator.RoutesAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/routes", Reads: true}, &answer); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(answer)
			}
			if len(answer.Routes) == 0 {
				a.printf("no routes; `tranche routes apply FILE` declares them\n")
				return nil
			}
			var rows [][]any
			for _, r := range answer.Routes {
				rows = append(rows, []any{cmp.Or(r.Method, "any"), r.Path, r.Capability})
			}
			a.table([]string{"method", "path", "capability"}, rows)
			a.printf("\nversion %d, by %s\n", answer.Version, answer.By)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) routesMatchCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "match METHOD PATH", Short: "Say which capability an endpoint is", Args: exactly("METHOD", "PATH"),
		Example: "  tranche routes match POST /v1/chat",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var m coordinator.RouteMatch
			body := map[string]string{"method": args[0], "path": args[1]}
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodPost, Path: "/v1/routes/match", Body: body, Reads: true}, &m); err != nil {
				return err
			}
			switch {
			case a.json:
				return a.printJSON(m)
			case m.Route == nil:
				a.printf("no line fits %s %s: such a request has only the capability that it names itself\n", args[0], args[1])
			default:
				a.printf("%s  (by the line %s)\n", m.Route.Capability, strings.TrimSpace(m.Route.Method+" "+m.Route.Path))
			}
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}
