package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/drill"
	"tranche/cmd/tranche/internal/settings"
)

func (a *App) drillCommand() *cobra.Command {
	return parent("drill", "Rehearse an incident, with a tenant that exists for this alone", "  tranche drill leaked-key --demo",
		a.leakedKeyCommand(), a.drillBudgetsCommand())
}

// drillFlags are those of a drill.
type drillFlags struct {
	drill.Options
	nodes []string
	out   string
	demo  bool
}

func (a *App) leakedKeyCommand() *cobra.Command {
	var o drillFlags
	c := &cobra.Command{
		Use: "leaked-key", Short: "Rehearse a leaked key: exhaust, cut off, recover; and prove each promise", Args: exactly(),
		Long: `Issue a key for a synthetic tenant, as if it had leaked, and send a bounded burst with it against an expendable capability,
while essential traffic of the tenant runs on another. Check that requests are degraded or deferred before they are refused, and
that the protected permits are left; change the limit, and measure how long each node takes to enforce it; revoke the key, and see
that no node serves it; release clients together, and see that no more are admitted than permits are left. Then everything is
put back, also after Ctrl-C, and the decision record is written, as Markdown and as JSON.

A tenant whose requests are charged to any budget without ` + "`synthetic: true`" + ` is refused: nobody's permits but the drill's are spent.
The status is 3 if a promise was broken.`,
		Example: `  tranche drill leaked-key --demo
  tranche drill leaked-key --tenant drill --capability drill-export --essential drill-checkout --out incident`,
		RunE: func(c *cobra.Command, _ []string) error { return a.leakedKey(c, o) },
	}
	f := c.Flags()
	f.StringVar(&o.Tenant, "tenant", "", "`TENANT` whose budgets are all marked synthetic")
	f.StringVar(&o.Capability, "capability", "", "`CAPABILITY` that is expendable: its budget is exhausted")
	f.StringVar(&o.Essential, "essential", "", "`CAPABILITY` of the traffic that must not suffer")
	f.StringArrayVar(&o.nodes, "node", nil, "`REGION=URL` of a node; give all of a region (default: where its nodes say they are)")
	f.IntVar(&o.Held, "held", drill.DefaultHeld, "clients that are released together")
	f.Float64Var(&o.Rate, "rate", 0, "requests a second of the burst (default: so that it takes about 8 s)")
	f.DurationVar(&o.Patience, "patience", 15*time.Second, "how long a node may take to enforce a change")
	f.StringVar(&o.By, "by", "", "`NAME` of the person who drills, for the record")
	f.StringVar(&o.out, "out", "", "write the record to `NAME`.md and NAME.json (default drill-ID; with --demo none)")
	f.BoolVar(&o.demo, "demo", false, "start a deployment for the drill, and end it; needs an installed Postgres")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) leakedKey(c *cobra.Command, o drillFlags) (err error) {
	if err := o.check(c); err != nil {
		return err
	}
	o.Tell = func(format string, args ...any) {
		to := a.out
		if a.json {
			to = a.err
		}
		fmt.Fprintf(to, format+"\n", args...)
	}
	var record *drill.Record
	if o.demo {
		record, err = drill.Demo(c.Context(), o.Options)
	} else {
		var s settings.Settings
		if o.Coordinator, s, err = a.coordinator(c); err != nil {
			return err
		}
		o.CA = s.CA
		record, err = drill.Run(c.Context(), o.Options)
	}
	if errors.Is(err, drill.ErrUnfit) {
		return usageError{err}
	}
	if record == nil || len(record.Steps) == 0 {
		return err
	}
	return errors.Join(err, a.tellDrill(record, o))
}

func (o *drillFlags) check(c *cobra.Command) error {
	switch {
	case o.Held < 2 || o.Held > drill.MaxHeld:
		return usagef("--held %d: use 2 to %d", o.Held, drill.MaxHeld)
	case o.Rate < 0 || o.Rate > 2000:
		return usagef("--rate %g: use 1 to 2000, or leave it out", o.Rate)
	case o.Patience < time.Second || o.Patience > 10*time.Minute:
		return usagef("--patience %s: use 1s to 10m", o.Patience)
	case o.demo && (o.Tenant != "" || o.Capability != "" || o.Essential != "" || len(o.nodes) > 0):
		return usagef("--demo has a tenant, capabilities and nodes of its own; leave out --tenant, --capability, --essential and --node")
	case !o.demo && (o.Tenant == "" || o.Capability == "" || o.Essential == ""):
		return usagef("`%s` needs --tenant, --capability and --essential; or try it with --demo", c.CommandPath())
	}
	for _, given := range o.nodes {
		region, address, found := strings.Cut(given, "=")
		if !found {
			return usagef("--node %q: write it like REGION=URL", given)
		}
		if err := settings.CheckURL(address); err != nil {
			return usagef("--node %s: %w", region, err)
		}
		if o.Nodes == nil {
			o.Nodes = map[string][]string{}
		}
		o.Nodes[region] = append(o.Nodes[region], address)
	}
	return nil
}

// tellDrill writes the record, and says whether every promise was kept.
func (a *App) tellDrill(r *drill.Record, o drillFlags) error {
	name := o.out
	if name == "" && !o.demo {
		name = "drill-" + r.ID
	}
	var written error
	if name != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		written = errors.Join(err, os.WriteFile(name+".md", []byte(r.Markdown()), 0o644), os.WriteFile(name+".json", text, 0o644))
	}
	switch {
	case a.json:
		written = errors.Join(written, a.printJSON(r))
	case name == "":
		a.printf("\n%s", r.Markdown())
	default:
		a.printf("the record is in %s.md and %s.json\n", name, name)
	}
	if !a.json && r.Kept && r.Failure == "" {
		a.printf("every promise was kept, in %.1f s\n", r.Ended.Sub(r.Started).Seconds())
	}
	if written != nil {
		return fmt.Errorf("write the record: %w", written)
	}
	if !r.Kept && r.Failure == "" {
		return errNotWell
	}
	return nil
}

func (a *App) drillBudgetsCommand() *cobra.Command {
	tenant, regions := "drill", []string{}
	c := &cobra.Command{
		Use: "budgets", Short: "Print the synthetic budgets of a tenant for drills, to be declared", Args: exactly(),
		Example: "  tranche drill budgets --region us-east,eu-west > drill.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			if len(regions) == 0 {
				return usagef("`%s` needs --region: the regions that share them", c.CommandPath())
			}
			a.printf("%s", drill.Budgets(tenant, regions))
			return nil
		},
	}
	c.Flags().StringVar(&tenant, "tenant", tenant, "`TENANT` that exists for drills alone")
	c.Flags().StringSliceVar(&regions, "region", nil, "`REGIONS` that share them, with commas")
	return c
}
