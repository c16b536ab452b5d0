package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

const adoptLong = `Declare that another database is a region's owner, although the recorded one called lately. It previews unless it is told
--yes.

It declares two things, which Tranche cannot find out:
  lossless  nothing that the old primary acknowledged is missing in the new one
  fenced    the old primary can never commit again

The marks must be in place all the same: a database that lacks one that was stated begins anew, whatever is declared. Without
this command the new database is taken by itself once the old one has been silent for --report-unreachable-after, or for 4 s
where all nodes that were known have gone over to it.`

func (a *App) adoptFailoverCommand() *cobra.Command {
	var how acts
	var database ownerDatabase
	c := &cobra.Command{
		Use: "adopt-failover REGION [--postgres-url URL]", Short: "Declare that a promoted database is the region's, without waiting", Args: exactly("REGION"), Long: adoptLong,
		Example: "  tranche regions adopt-failover us-east\n  tranche regions adopt-failover us-east --yes --reason 'failover by Patroni, old primary is off' --by Ada",
		RunE: func(c *cobra.Command, args []string) error {
			if err := how.check(c.CommandPath()); err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.adoptFailover(c.Context(), client, args[0], database, how)
		},
	}
	database.flags(c, "postgres-url", "`URL` of the promoted database; without it, the one whose calls are refused as a second database")
	how.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// adopted is what is declared.
type adopted struct {
	Region   string          `json:"region"`
	From     allocation.Home `json:"from"`
	To       allocation.Home `json:"to"`
	Declared []string        `json:"declared"`
	DryRun   bool            `json:"dry_run,omitempty"`
}

var declaredByAdoption = []string{"nothing that the old primary acknowledged is missing in the new one", "the old primary can never commit again"}

func (a *App) adoptFailover(ctx context.Context, client *api.Client, name string, database ownerDatabase, how acts) error {
	status, r, err := deploymentAndRegion(ctx, client, name)
	if err != nil {
		return err
	}
	to, err := homeToAdopt(ctx, status, r, database)
	if err != nil {
		return err
	}
	result := adopted{Region: name, From: r.Home, To: to, Declared: declaredByAdoption, DryRun: !how.yes}
	if to == r.Home {
		if a.json {
			return a.printJSON(result)
		}
		a.printf("%s is recorded as the home of region %s already; nothing is left to do\n", homeText(to), name)
		return nil
	}
	if how.yes {
		call := api.Call{
			Method: http.MethodPost, Path: "/v1/regions/" + url.PathEscape(name) + "/adopt-failover",
			Body: coordinator.AdoptRequest{Reason: how.reason, By: how.by, Home: &to},
		}
		if _, err := client.Do(ctx, call, nil); err != nil {
			return err
		}
	}
	if a.json {
		return a.printJSON(result)
	}
	a.showAdopted(result, r)
	return nil
}

// homeToAdopt is the database that takes the region's place: the named one, or the one that calls and is refused.
func homeToAdopt(ctx context.Context, s coordinator.Status, r coordinator.RegionAnswer, database ownerDatabase) (allocation.Home, error) {
	if r.Incarnation == "" {
		return allocation.Home{}, fmt.Errorf("region %s has no incarnation that could move; start a node with its token", r.Region)
	}
	if !database.given() {
		c := r.Contradiction
		if c == nil || !c.Other || c.Incarnation != r.Incarnation || c.Home == r.Home {
			return allocation.Home{}, fmt.Errorf("no second database calls for region %s; start its nodes on the promoted one, or name it with --postgres-url URL", r.Region)
		}
		return c.Home, nil
	}
	store, loaded, err := database.open(ctx, r.Region, s.Deployment)
	if err != nil {
		return allocation.Home{}, err
	}
	defer store.Shut()
	if loaded.Incarnation != r.Incarnation {
		return allocation.Home{}, fmt.Errorf("that database holds incarnation %q, and region %s is %s: it is no copy of the recorded one; correct --%s", loaded.Incarnation, r.Region, r.Incarnation, database.flag)
	}
	return loaded.Home, nil
}

func (a *App) showAdopted(d adopted, r coordinator.RegionAnswer) {
	said := "is"
	if d.DryRun {
		said = "would be"
	}
	a.printf("the owner of region %s %s\n  %s\ninstead of\n  %s\n", d.Region, said, homeText(d.To), homeText(d.From))
	if r.InContact {
		a.printf("note: the recorded one called %s ago\n", spanMillis(r.ContactAgeMillis))
	}
	for i, what := range d.Declared {
		a.printf("declared (%d): %s\n", i+1, what)
	}
	a.printf("if (1) is untrue: permits that were spent in what is missing are spent once more, and admission ids are charged again\n" +
		"if (2) is untrue: both databases spend the same share, and the limit is broken by up to that share\n" +
		"what the new one lacks of marks that were stated is noticed all the same: it then begins anew, with nothing\n")
	if d.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is. If you do not know both, stop the old nodes and wait\n")
		return
	}
	a.printf("it serves with its next call; the old one is refused from now on. `tranche status` shows how it goes\n")
}

func spanMillis(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }
