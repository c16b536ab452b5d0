package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/regional/postgres"
)

const sealLong = `Seal a region whose nodes are gone, but whose recorded database answers: what it had not spent is free again within the
period. It previews unless it is told --yes.

Its incarnation is ended at the coordinator, then its database is sealed and read, then the ledgers count what that proves to
be neither spent nor reserved. Interrupted in between, it goes on when it is run again. Another database than the recorded
one proves nothing, and is refused. Nodes that come back are refused, and begin anew with nothing.`

// sealed is what a seal shows, or a preview of one.
type sealed struct {
	Region      string          `json:"region"`
	Incarnation string          `json:"incarnation"`
	Home        allocation.Home `json:"home"`
	DryRun      bool            `json:"dry_run,omitempty"`
	Ledgers     int             `json:"ledgers"` // that the seal changed
	Budgets     []sealedBudget  `json:"budgets"`
}

type sealedBudget struct {
	Budget   string `json:"budget"`
	Template bool   `json:"template,omitempty"` // its split is fixed within a term: nothing of it is free
	allocation.SealLeft
}

func (a *App) sealCommand() *cobra.Command {
	var how acts
	var database ownerDatabase
	c := &cobra.Command{
		Use: "seal REGION --postgres-url URL", Short: "End a region whose nodes are gone, and free what it had not spent", Args: exactly("REGION"), Long: sealLong,
		Example: "  tranche regions seal us-east --postgres-url postgres://tranche@db/tranche\n" +
			"  tranche regions seal us-east --postgres-url postgres://tranche@db/tranche --yes --reason 'its nodes are gone' --by Ada",
		RunE: func(c *cobra.Command, args []string) error {
			if database.orVariable(); !database.given() {
				return usagef("`%s` needs --postgres-url URL (or %s): the recorded database of the region, which is sealed and read", c.CommandPath(), postgresVariable)
			}
			if err := how.check(c.CommandPath()); err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.seal(c.Context(), client, args[0], database, how)
		},
	}
	database.flags(c, "postgres-url", "`URL` of the region's recorded database (else "+postgresVariable+", which keeps a password out of process lists)")
	how.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) seal(ctx context.Context, client *api.Client, name string, database ownerDatabase, how acts) error {
	status, region, err := deploymentAndRegion(ctx, client, name)
	if err != nil {
		return err
	}
	incarnation, err := toSeal(status, region)
	if err != nil {
		return err
	}
	store, loaded, err := database.open(ctx, name, status.Deployment)
	if err != nil {
		return err
	}
	defer store.Shut()
	if err := sealableHere(region, incarnation, loaded, database.flag); err != nil {
		return err
	}
	result := sealed{Region: name, Incarnation: incarnation, Home: region.Home, DryRun: !how.yes}
	var read allocation.Seal
	if how.yes {
		read, result.Ledgers, err = sealNow(ctx, client, store, name, how)
	} else {
		read, err = store.Holdings(ctx, incarnation)
	}
	if err != nil {
		return err
	}
	result.Budgets = sealedBudgets(read, allocation.At(a.now()))
	if a.json {
		return a.printJSON(result)
	}
	a.showSeal(result, region)
	return nil
}

// toSeal is the incarnation that is to be sealed: the present one, or the one that was ended by an attempt before.
func toSeal(s coordinator.Status, r coordinator.RegionAnswer) (string, error) {
	switch {
	case s.Frozen != nil:
		return "", fmt.Errorf("everything is frozen since %s (%s): wait until every region has stated; `tranche status` says which are missing", s.Frozen.Since.UTC().Format(time.RFC3339), s.Frozen.Why)
	case r.Incarnation == "" && r.Sealing == "":
		return "", fmt.Errorf("region %s has no incarnation: it holds nothing, and there is nothing to seal", r.Region)
	case r.Incarnation != "" && r.InContact:
		return "", fmt.Errorf("region %s calls: its nodes are there (%s ago); stop them first, or let it give back what it holds with `tranche regions drain %s`",
			r.Region, spanMillis(r.ContactAgeMillis), r.Region)
	}
	return cmp.Or(r.Incarnation, r.Sealing), nil
}

// sealableHere refuses a database that could prove nothing, before anything is ended.
func sealableHere(r coordinator.RegionAnswer, incarnation string, l regional.Loaded, flag string) error {
	switch {
	case l.Home != r.Home:
		return fmt.Errorf("this is %s, and the recorded home of region %s is %s: only that one can be sealed; correct --%s. "+
			"If this one was promoted with nothing lost, start a node on it: its marks tell", homeText(l.Home), r.Region, homeText(r.Home), flag)
	case l.Handover.ID != "":
		return fmt.Errorf("region %s is being handed over to another database: go on with `tranche regions handover %s`, or call it off with --cancel", r.Region, r.Region)
	case l.Lost:
		return fmt.Errorf("the database lost history: what it says proves nothing, and what it held stays stranded to the end of each period; start a node on it, and region %s begins anew", r.Region)
	case l.Incarnation != incarnation:
		return fmt.Errorf("the database holds incarnation %s, and the one to be sealed is %s: it lost history, or began anew meanwhile; nothing can be sealed", cmp.Or(l.Incarnation, "none"), incarnation)
	}
	return nil
}

// sealNow does the three steps. Each may be repeated, and each is durable before the next.
func sealNow(ctx context.Context, client *api.Client, store *postgres.Store, name string, how acts) (read allocation.Seal, ledgers int, err error) {
	call := api.Call{Method: http.MethodPost, Path: "/v1/regions/" + url.PathEscape(name) + "/seal"}
	again := func(step string, err error) error {
		return fmt.Errorf("%s: %w; run the same command again, it goes on from there", step, err)
	}
	q := coordinator.SealRequest{Reason: how.reason, By: how.by}
	call.Body = q
	var ended coordinator.SealAnswer
	if _, err := client.Do(ctx, call, &ended); err != nil {
		return read, 0, fmt.Errorf("end the incarnation: %w", err)
	}
	if read, err = store.Seal(ctx, ended.Incarnation); err != nil {
		return read, 0, again("the incarnation is ended, and its database is not sealed", onceEach(err))
	}
	q.Seal = &read
	call.Body = q
	var counted coordinator.SealAnswer
	if _, err := client.Do(ctx, call, &counted); err != nil {
		return read, 0, again("the database is sealed, and the ledgers have not counted all of it", err)
	}
	return read, counted.Ledgers, nil
}

func sealedBudgets(s allocation.Seal, now allocation.Instant) []sealedBudget {
	by := map[string]sealedBudget{}
	for _, sh := range s.Shares {
		b := by[sh.Share.Budget]
		b.Budget, b.Template, b.SealLeft = sh.Share.Budget, sh.Share.Template, b.Add(sh.Left(now))
		by[b.Budget] = b
	}
	list := []sealedBudget{}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		list = append(list, by[name])
	}
	return list
}

func (a *App) showSeal(s sealed, r coordinator.RegionAnswer) {
	said := "is sealed"
	if s.DryRun {
		said = "would be sealed"
	}
	a.printf("region %s, incarnation %s, in %s, %s\n", s.Region, s.Incarnation, homeText(s.Home), said)
	var rows [][]any
	templates := false
	for _, b := range s.Budgets {
		var free any = b.Free
		if b.Template {
			free, templates = "-", true
		}
		ahead := "-"
		if b.AheadPeriods > 0 && !b.Template {
			ahead = fmt.Sprintf("%d in %s", b.AheadFree, counted(b.AheadPeriods, "period"))
		}
		rows = append(rows, []any{b.Budget, b.Held, b.Spent, b.Reserved, free, ahead})
	}
	if len(rows) == 0 {
		a.printf("it holds no share\n")
	} else {
		a.table([]string{"budget", "held", "spent", "reserved", "free again", "and ahead"}, rows)
	}
	if templates {
		a.printf("note: of a template nothing is free within a term; its next terms are split among the regions that take part\n")
	}
	a.printf("note: what is reserved stays out: it can still be settled\n")
	if !r.Draining {
		a.printf("note: what is free goes to those below their target. A fixed budget keeps the part of region %s for its next\n"+
			"      incarnation; `tranche regions drain %s` gives it to the others\n", s.Region, s.Region)
	}
	if s.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is. Nodes that come back then begin anew, with nothing\n")
		return
	}
	a.printf("%s changed; nodes of %s that come back begin anew, with nothing\n", counted(s.Ledgers, "ledger"), s.Region)
}
