package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/books"
	"tranche/cmd/tranche/internal/settings"
	"tranche/coordinator"
	"tranche/regional"
)

// exposureAnswer is what the coordinator knows, and what the regions' databases do.
type exposureAnswer struct {
	coordinator.Exposure
	Charged []chargedIn `json:"charged"` // by region: what the subject itself was charged
	// Unread says of which regions the nodes' own blocks are not known: those that the coordinator knows are in regions.
	Unread map[string]string `json:"blocks_unread,omitempty"` // by region: why
}

// chargedIn is one region's account of the subject.
type chargedIn struct {
	Region  string                  `json:"region"`
	Kind    string                  `json:"kind"` // exact, at_least, at_most, unknown
	Why     string                  `json:"why,omitempty"`
	Charged *regional.ChargedAnswer `json:"charged,omitempty"`
}

// How sure what a region's database says is, beside the coordinator's words.
const chargedAtLeast = "at_least"

type exposureOptions struct {
	key, tenant, capability, since string
	nodes                          map[string]string
}

func (a *App) exposureCommand() *cobra.Command {
	var o exposureOptions
	c := &cobra.Command{
		Use: "exposure", Short: "Show what a key, a tenant or a capability has cost, and can still cost", Args: exactly(),
		Long: `Show what was spent since an instant, and the most that can still be spent, by budget and region: from now on, and after a
revocation. It says which figures are exact, which are upper bounds, and as of when. What the key or the tenant itself was
charged is read from a node of each region that answers; without --since from the key's issue, else from the running periods.`,
		Example: `  tranche exposure --key fp_0f3a9c61d2b84e75a610 --since 2026-11-30T08:00:00Z
  tranche exposure --tenant acme
  tranche exposure --tenant acme --capability export --json`,
		RunE: func(c *cobra.Command, _ []string) error { return a.exposure(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.key, "key", "", "`FINGERPRINT` of a key, or its name")
	f.StringVar(&o.tenant, "tenant", "", "`TENANT`: the value of the label tenant")
	f.StringVar(&o.capability, "capability", "", "`CAPABILITY`: the value of the label capability, alone or with --tenant")
	f.StringVar(&o.since, "since", "", "`INSTANT` of the first bad request, such as 2026-11-30T08:00:00Z")
	f.StringToStringVar(&o.nodes, "node", nil, "`REGION=URL` of a node to ask (default: where a region's nodes say they are)")
	f.String("node-token", "", "gateway's token of the nodes (TRANCHE_NODE_TOKEN)")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) exposure(c *cobra.Command, o exposureOptions) error {
	if allocation.LooksLikeKey(o.key) {
		return usagef("this is a key itself; give its name or its fingerprint, %s", allocation.Fingerprint(o.key))
	}
	if o.key == "" && o.tenant == "" && o.capability == "" {
		return usagef("`%s` needs --key, --tenant or --capability", c.CommandPath())
	}
	client, s, err := a.coordinator(c)
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]string{"key": o.key, "tenant": o.tenant, "capability": o.capability, "since": o.since} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var e exposureAnswer
	if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/exposure", Query: query}, &e.Exposure); err != nil {
		return err
	}
	nodes, err := nodesOf(c.Context(), client, o.nodes)
	if err != nil {
		return err
	}
	e.Charged = chargedEverywhere(c.Context(), s, nodes, e.Exposure)
	e.readBlocks(c.Context(), s, nodes)
	if a.json {
		return a.printJSON(e)
	}
	a.showExposure(e)
	return nil
}

// nodesOf are the addresses of the regions' nodes; only regions that ever called have an entry.
func nodesOf(ctx context.Context, client *api.Client, given map[string]string) (map[string][]string, error) {
	var regions coordinator.RegionsList
	if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &regions); err != nil {
		return nil, err
	}
	if err := knownRegions(given, regions.Regions); err != nil {
		return nil, err
	}
	return books.NodesOf(regions.Regions, given), nil
}

// chargedEverywhere asks a node of each region what the subject was charged there.
func chargedEverywhere(ctx context.Context, s settings.Settings, nodes map[string][]string, e coordinator.Exposure) []chargedIn {
	list := []chargedIn{}
	if e.Subject.Tenant == "" && e.Subject.Name == "" {
		return list
	}
	query := url.Values{"tenant": {e.Subject.Tenant}, "since": {sinceOf(e).Format(time.RFC3339)}}
	if e.Subject.Name != "" {
		query.Set("credential", allocation.Presented{Name: e.Subject.Name}.Credential())
	}
	for _, r := range e.Regions {
		if _, called := nodes[r.Region]; called {
			list = append(list, chargedAt(ctx, s, r.Region, nodes[r.Region], query, e.Subject))
		}
	}
	return list
}

// sinceOf is from when on the regions are asked: since, else the start of the earliest running period.
func sinceOf(e coordinator.Exposure) time.Time {
	if e.Since != nil {
		return e.Since.Time()
	}
	from := e.At
	for _, b := range e.Budgets {
		if b.SpentFrom != nil && b.SpentFrom.Time().Before(from) {
			from = b.SpentFrom.Time()
		}
	}
	return from.Truncate(time.Second)
}

// chargedAt asks the nodes of one region, in turn, until one answers.
func chargedAt(ctx context.Context, s settings.Settings, region string, nodes []string, query url.Values, who coordinator.ExposedSubject) chargedIn {
	out := chargedIn{Region: region, Kind: coordinator.FigureUnknown}
	var answer regional.ChargedAnswer
	if out.Why = askNodes(ctx, s, region, nodes, api.Call{Method: http.MethodGet, Path: "/v1/charged", Query: query}, &answer); out.Why != "" {
		return out
	}
	out.Charged, out.Kind = &answer, coordinator.FigureExact
	switch {
	case !answer.Complete || answer.More:
		out.Kind, out.Why = chargedAtLeast, "admission ids are kept there from "+answer.KeptFrom+" on only"
		if answer.More {
			out.Why = "there are more budgets than one answer lists"
		}
	case len(who.OtherKeys) > 0:
		out.Kind, out.Why = coordinator.FigureAtMost, "it is what all keys of the name "+who.Name+" were charged, also "+strings.Join(who.OtherKeys, ", ")
	}
	return out
}

func (a *App) showExposure(e exposureAnswer) {
	a.printf("exposure of %s, as of %s\n", subjectWords(e.Subject), e.At.Format(time.RFC3339))
	if e.Cut == nil {
		a.printf("nothing is revoked or blocked\n")
	} else {
		a.printf("%s since %s%s\n", e.Cut.How, e.Cut.At, blockWords(*e.Cut))
	}
	a.printf("\nspent since %s, by its own admission ids:\n", sinceOf(e.Exposure).Format(time.RFC3339))
	a.showCharged(e.Charged)
	a.printf("\nmay still be spent, by all who share the budgets:\n")
	var rows [][]any
	for _, b := range e.Budgets {
		rows = append(rows, []any{b.Budget, "all", b.Charged + yes(!b.Enforced, ", not enforced"), figure(b.Spent), figure(b.Now), figure(b.Ahead), figure(b.AfterCut), figure(b.AfterCutAhead), "-"})
		for _, r := range b.Regions {
			rows = append(rows, []any{"", r.Region + yes(r.Cause != "", " ("+r.Cause+")"), "", figure(r.Spent), figure(r.Now), figure(r.Ahead), figure(r.AfterCut), figure(r.AfterAhead), a.ago(r.StatedAt)})
		}
	}
	a.table([]string{"budget", "region", "by requests", "spent by all", "now", "ahead", "revoked: now", "ahead", "stated"}, rows)
	if e.More > 0 {
		a.printf("and %s\n", counted(e.More, "more budget"))
	}
	for _, b := range e.Bound {
		a.printf("together at most %d %s now and %d ahead (%s); after a revocation %d and %d (%s)\n", b.Now, b.Unit, b.Ahead, b.Budget, b.AfterCut, b.AfterCutAhead, b.AfterBudget)
	}
	for _, r := range e.Regions {
		a.printf("%s: %s%s\n", r.Region, r.State, yes(e.Cut != nil, cutWords(r)))
		for _, b := range r.Blocks {
			a.printf("  %s\n", regionBlockWords(b))
		}
		if why := e.Unread[r.Region]; why != "" {
			a.printf("  what its nodes block by themselves is not known: %s\n", why)
		}
	}
	for _, n := range e.Notes {
		a.printf("note: %s\n", n)
	}
}

func cutWords(r coordinator.CutRegion) string {
	switch {
	case r.Enforced && r.AfterMS != nil:
		return fmt.Sprintf(", enforced after %d ms", *r.AfterMS)
	case r.Enforced:
		return ", enforced"
	}
	return ", does not enforce it"
}

func (a *App) showCharged(list []chargedIn) {
	var rows [][]any
	for _, in := range list {
		switch {
		case in.Charged == nil:
			rows = append(rows, []any{in.Region, "-", "not known", "", "", in.Why})
		case len(in.Charged.Lines) == 0:
			rows = append(rows, []any{in.Region, "-", "nothing", "", "", chargedWords(in)})
		default:
			for _, l := range in.Charged.Lines {
				rows = append(rows, []any{in.Region, l.Budget, fmt.Sprint(l.Spent, " ", l.Unit), l.Reserved, l.Admissions, chargedWords(in)})
			}
		}
	}
	if len(rows) == 0 {
		a.printf("  not known: admission ids do not hold capabilities\n")
		return
	}
	a.table([]string{"region", "budget", "spent", "reserved", "admissions", "how sure"}, rows)
}

func chargedWords(in chargedIn) string {
	text := strings.ReplaceAll(in.Kind, "_", " ") + ", as of " + in.Charged.AsOf
	if in.Why != "" {
		text += ": " + in.Why
	}
	return text
}

func subjectWords(s coordinator.ExposedSubject) string {
	var parts []string
	if s.Fingerprint != "" {
		parts = append(parts, fmt.Sprintf("key %s (%s)", s.Name, s.Fingerprint))
	}
	if s.Tenant != "" {
		parts = append(parts, "tenant "+s.Tenant)
	}
	if len(s.Capabilities) > 0 {
		parts = append(parts, "capability "+strings.Join(s.Capabilities, " or "))
	}
	return strings.Join(parts, ", ")
}

// figure is a number with how sure it is.
func figure(f coordinator.Figure) string {
	switch f.Kind {
	case coordinator.FigureExact:
		return fmt.Sprint(f.Units)
	case coordinator.FigureAtMost:
		return fmt.Sprint("≤ ", f.Units)
	}
	return fmt.Sprint(f.Units, " or more")
}
