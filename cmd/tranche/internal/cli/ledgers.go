package cli

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) ledgersCommand() *cobra.Command {
	return parent("ledgers", "Show a budget's ledgers, and help them on after etcd lost history", "  tranche ledgers show acme/requests", a.showLedgersCommand(), a.recoverLedgersCommand())
}

const recoverLedgersLong = `Show how etcd's history stands: whether all is frozen, since when and why, which regions it waits for, and which incarnations
are lost. It is over when every region has stated what it holds.

With --give-up REGION it waits for a region no longer that will never come back. That is always safe and costs permits: what
the region may hold, and that is all that is not proven to be elsewhere, is stranded to the end of each period. If it comes
back it begins anew, with nothing. It previews unless it is told --yes.

What a lost incarnation spent under a limit that etcd lost as well, nobody can say. So a raise above the highest limit that the
ledgers know goes to it first, and nobody gets it. With --limits-known you declare that no budget had a higher limit in what etcd
lost: raises from then on are granted. If that is untrue, what was spent above may be spent once more.`

func (a *App) recoverLedgersCommand() *cobra.Command {
	var how acts
	var region string
	var limits bool
	c := &cobra.Command{
		Use: "recover [--give-up REGION | --limits-known]", Short: "Show what a frozen history waits for, and let it end without a region", Args: exactly(), Long: recoverLedgersLong,
		Example: "  tranche ledgers recover\n  tranche ledgers recover --give-up us-east\n  tranche ledgers recover --give-up us-east --yes --reason 'the site is gone' --by Ada",
		RunE: func(c *cobra.Command, _ []string) error {
			if how.yes && region == "" && !limits {
				return usagef("`%s --yes` needs --give-up REGION or --limits-known: without them nothing is changed", c.CommandPath())
			}
			if limits {
				q := coordinator.KnowLimitsRequest{Reason: how.reason, By: how.by}
				return act(a, c, how, api.Call{Method: http.MethodPost, Path: "/v1/history/limits-known", Body: q}, a.showLimitsKnown)
			}
			if region == "" {
				if err := how.check(c.CommandPath()); err != nil {
					return err
				}
				return ask(a, c, api.Call{Method: http.MethodGet, Path: "/v1/history"}, a.showStanding)
			}
			q := coordinator.GiveUpRequest{Region: region, Reason: how.reason, By: how.by}
			return act(a, c, how, api.Call{Method: http.MethodPost, Path: "/v1/history/give-up", Body: q}, a.showGivenUp)
		},
	}
	c.Flags().StringVar(&region, "give-up", "", "`REGION` that will never state what it holds")
	c.Flags().BoolVar(&limits, "limits-known", false, "declare that no limit was higher in what etcd lost")
	c.MarkFlagsMutuallyExclusive("give-up", "limits-known")
	how.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showLimitsKnown(k coordinator.LimitsKnown) {
	for _, l := range k.Lost {
		a.printf("region %s, incarnation %s: raises in terms that begin before %s %s\n", l.Region, l.Incarnation, l.Through, either(k.DryRun, "would be granted", "are granted from now on"))
	}
	a.printf("what was stranded of earlier raises stays so, to the end of each period\n")
	if k.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is\n")
	}
}

func (a *App) showGivenUp(g coordinator.GivenUp) {
	said := "is given up"
	if g.DryRun {
		said = "would be given up"
	}
	a.printf("region %s, %s, %s\n", g.Region, incarnationText(g), said)
	if len(g.Lines) > 0 {
		var rows [][]any
		for _, l := range g.Lines {
			rows = append(rows, []any{l.Budget, l.Held, l.Most, cmp.Or(l.Unit, "-")})
		}
		a.table([]string{"budget", "known to hold", "may hold", "unit"}, rows)
	}
	if g.More > 0 {
		a.printf("and %s more\n", counted(g.More, "budget"))
	}
	a.printf("what it may hold, less what regions state that have yet to, is stranded to the end of each period that begins before %s\n", g.Through)
	a.printf("note: if it comes back, nothing that it says counts: it begins anew, with nothing%s\n",
		yes(!g.Registered, "; it must be registered again before"))
	switch {
	case len(g.Missing) > 0:
		a.printf("it still waits for: %s\n", strings.Join(g.Missing, ", "))
	case g.DryRun && g.Thawed:
		a.printf("it waits for no other: grants would go on\n")
	case g.Thawed:
		a.printf("grants go on\n")
	default:
		a.printf("grants go on when a region has stated what it holds\n")
	}
	if g.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is\n")
	}
}

func incarnationText(g coordinator.GivenUp) string {
	if g.Incarnation == "" {
		return "of which etcd knows no incarnation"
	}
	return "incarnation " + g.Incarnation
}

func (a *App) showStanding(h coordinator.HistoryAnswer) {
	a.printf("deployment %s, history %s\n", h.Deployment, h.History)
	if h.Freeze == nil {
		a.printf("nothing is frozen: every region has stated what it holds\n")
	} else {
		a.printf("frozen since %s: %s\nnothing is granted in, and no term opened that begins before %s, until every region has stated what it holds\n\n",
			h.Since.UTC().Format(time.RFC3339), h.Freeze.Why, h.Freeze.Through)
		var rows [][]any
		for _, r := range h.Regions {
			rows = append(rows, []any{r.Region, cmp.Or(r.Incarnation, "-"), historyState(r), a.ago(r.LastContact), r.Next})
		}
		a.table([]string{"region", "incarnation", "state", "last contact", "what to do"}, rows)
	}
	if len(h.Lost) > 0 {
		a.printf("\nlost incarnations; what each may hold is stranded:\n")
		var rows [][]any
		for _, l := range h.Lost {
			rows = append(rows, []any{l.Region, l.Incarnation, l.Through, either(l.LimitsKnown, "granted", "stranded with it")})
		}
		a.table([]string{"region", "incarnation", "in terms that begin before", "raises there"}, rows)
		a.printf("`tranche stranded list` says how much\n")
	}
}

func historyState(r coordinator.HistoryRegion) string {
	switch {
	case r.Stated:
		return "has stated"
	case !r.Registered:
		return "missing, not registered"
	case r.InContact:
		return "calls, has yet to state"
	}
	return "missing"
}
