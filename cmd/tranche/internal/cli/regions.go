package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) regionsCommand() *cobra.Command {
	return parent("regions", "Register regions, and take them in and out", "  tranche regions register us-east --token-file us-east.token\n  tranche regions drain us-east",
		a.registerCommand(), a.renewCommand(), a.listRegionsCommand(),
		a.drainCommand("drain", "Let a region give back what it holds and take no more", "drains: it gives back what it has not spent, and its weight goes to the others"),
		a.drainCommand("resume", "Let a drained region take part again", "takes part again"),
		a.removeCommand(), a.sealCommand(), a.handoverCommand(), a.adoptFailoverCommand())
}

func (a *App) registerCommand() *cobra.Command {
	var file string
	var database ownerDatabase
	var dry bool
	c := &cobra.Command{
		Use: "register REGION", Short: "Register a region and make its token", Args: exactly("REGION"),
		Long: `Register a region and make its token, which is shown once. A node of the region is started with it.

With --postgres-url a region is registered again that etcd lost, while all is frozen: its database says which incarnation it
is, and it goes on from what it holds. Without it such a region would begin anew, with nothing.`,
		Example: "  tranche regions register us-east --token-file us-east.token\n  tranche node --region-token-file us-east.token …",
		RunE: func(c *cobra.Command, args []string) error {
			q := coordinator.RegisterRequest{Region: args[0]}
			if database.given() {
				var err error
				if q.Owner, err = a.knownOwner(c, args[0], database); err != nil {
					return err
				}
			}
			call := api.Call{Method: http.MethodPost, Path: "/v1/regions", Body: q}
			if dry {
				return a.previewMembers(c, call)
			}
			return a.regionToken(c, call, "registered", file)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show what it would do, change nothing")
	c.Flags().StringVar(&file, "token-file", "", "`FILE` to write the token to (mode 0600) instead of printing it")
	database.flags(c, "postgres-url", "`URL` of the database of a region that etcd lost")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) renewCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "token REGION", Short: "Make a region a new token; the old one ends", Args: exactly("REGION"),
		Example: "  tranche regions token us-east --token-file us-east.token",
		RunE: func(c *cobra.Command, args []string) error {
			return a.regionToken(c, api.Call{Method: http.MethodPost, Path: "/v1/regions/" + url.PathEscape(args[0]) + "/token"}, "has a new token", file)
		},
	}
	c.Flags().StringVar(&file, "token-file", "", "`FILE` to write the token to (mode 0600) instead of printing it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) regionToken(c *cobra.Command, call api.Call, verb, file string) error {
	client, _, err := a.coordinator(c)
	if err != nil {
		return err
	}
	var r coordinator.RegionAnswer
	if _, err := client.Do(c.Context(), call, &r); err != nil {
		return err
	}
	if file != "" {
		if err := writeSecret(file, r.Token); err != nil {
			return fmt.Errorf("region %s %s, but its token could not be written: %w; make another with `tranche regions token %s`", r.Region, verb, err, r.Region)
		}
		r.Token = ""
	}
	if a.json {
		return a.printJSON(r)
	}
	a.printf("region %s %s\n", r.Region, verb)
	if file != "" {
		a.printf("its token is in %s; start its nodes with: tranche node --region-token-file %s …\n", file, file)
		return nil
	}
	a.printf("token (it is shown only now): %s\n", r.Token)
	return nil
}

func (a *App) listRegionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the regions and how they stand", Args: exactly(), Example: "  tranche regions list",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var list coordinator.RegionsList
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			if len(list.Regions) == 0 {
				a.printf("no region is registered; register one: tranche regions register us-east\n")
				return nil
			}
			a.regionsTable(list.Regions)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) regionsTable(regions []coordinator.RegionAnswer) {
	var rows [][]any
	for _, r := range regions {
		rows = append(rows, []any{r.Region, regionState(r), a.ago(r.LastContact), runwayOf(r), len(r.Nodes), r.OpenReservations, r.Waiting})
	}
	a.table([]string{"region", "state", "last contact", "runway", "nodes", "reservations", "waiting"}, rows)
}

func regionState(r coordinator.RegionAnswer) string {
	switch {
	case r.Incarnation == "" && r.Sealing != "":
		return "ended"
	case r.Incarnation == "":
		return "has not called yet"
	case r.Handover != nil:
		return "being handed over"
	case r.Contradiction != nil:
		return "contradicted"
	case r.Stopped != "":
		return "stopped: " + r.Stopped
	case !r.InContact:
		return "not in contact" + yes(r.Draining, ", draining")
	case r.Draining:
		return "draining"
	}
	return "in contact"
}

func runwayOf(r coordinator.RegionAnswer) string {
	switch {
	case r.Incarnation == "":
		return "-"
	case r.RunwaySeconds == nil:
		return "unbounded"
	}
	return span(time.Duration(*r.RunwaySeconds) * time.Second)
}

func (a *App) drainCommand(verb, short, said string) *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: verb + " REGION", Short: short, Args: exactly("REGION"), Example: "  tranche regions " + verb + " us-east",
		RunE: func(c *cobra.Command, args []string) error {
			call := api.Call{Method: http.MethodPost, Path: "/v1/regions/" + url.PathEscape(args[0]) + "/" + verb}
			if dry {
				return a.previewMembers(c, call)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var r coordinator.RegionAnswer
			if _, err := client.Do(c.Context(), call, &r); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			a.printf("region %s %s; `tranche regions list` shows how far it is\n", r.Region, said)
			return nil
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show which budgets change, and what may still be spent; change nothing")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}
