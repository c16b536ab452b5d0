package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/settings"
)

const rootLong = `Tranche enforces a hard global budget (requests, tokens, money) for callers that are served
from several regions at once. A coordinator cuts each budget into shares; each region spends
only its own, in its own database, with no call to any other region.

Try it:      tranche demo
Run it:      tranche coordinator   and, in each region,   tranche node
Ask it:      tranche status`

// The groups of `tranche help`.
const (
	groupRun     = "run"
	groupBudgets = "budgets"
	groupOperate = "operate"
	groupTry     = "try"
)

func (a *App) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "tranche",
		Short:             "A hard budget over several regions",
		Long:              rootLong,
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              noSuchCommand,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddGroup(
		&cobra.Group{ID: groupTry, Title: "Try:"},
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupBudgets, Title: "Budgets:"},
		&cobra.Group{ID: groupOperate, Title: "Operate:"},
	)
	a.add(root, groupTry, a.demoCommand(), a.checkCommand(), a.simulateCommand(), a.benchCommand(), a.drillCommand())
	a.add(root, groupRun, a.coordinatorCommand(), a.nodeCommand())
	a.add(root, groupBudgets, a.budgetsCommand(), a.rebalanceCommand(), a.overrideCommand(), a.routesCommand(), a.strandedCommand(), a.whatIfCommand(), a.verifyCommand())
	a.add(root, groupOperate, a.statusCommand(), a.regionsCommand(), a.tokensCommand(), a.auditCommand(), a.eventsCommand(), a.gatewayConfigCommand())
	a.add(root, groupOperate, a.keysCommand(), a.blockCommand(), a.unblockCommand(), a.blocksCommand())
	a.add(root, groupOperate, a.shadowCommand(), a.explainCommand(), a.refusalsCommand(), a.estimatesCommand(), a.exposureCommand(), a.sizeCommand())
	a.add(root, groupOperate, a.recoverCommand(), a.ledgersCommand())
	root.AddCommand(a.versionCommand(), a.etcdMemberCommand())
	root.SetUsageTemplate(usageTemplate)
	return root
}

// usageTemplate is cobra's own, with the worked example before the flags.
var usageTemplate = strings.Replace((&cobra.Command{}).UsageTemplate(), "Examples:", "Example:", 1)

func (a *App) add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// noSuchCommand is for a command that only has others below it.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", near[0])
	}
	return usagef("there is no command %q of `%s`%s", args[0], c.CommandPath(), hint)
}

// parent is a command that only has others below it.
func parent(use, short, example string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: noSuchCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(below...)
	return c
}

// exactly takes so many arguments, named for the message.
func exactly(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usagef("`%s` takes %s, not %s", c.CommandPath(), describe(names), counted(len(args), "argument"))
		}
		return nil
	}
}

func describe(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, " ")
}

// atLeastOne takes any number of arguments but none.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("`%s` takes one or more of %s", c.CommandPath(), name)
		}
		return nil
	}
}

// withCoordinator adds the flags of a command that calls the coordinator.
func (a *App) withCoordinator(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Flags().String("coordinator", "", "`URL` of a coordinator, or several with commas (TRANCHE_COORDINATOR; default "+settings.DefaultCoordinator+")")
		c.Flags().String("token", "", "token of the coordinator (TRANCHE_TOKEN; a flag shows in process lists)")
		a.withCommon(c)
	}
}

// withNode adds the flags of a command that calls a node.
func (a *App) withNode(c *cobra.Command) {
	c.Flags().String("node", "", "`URL` of a node (TRANCHE_NODE; default "+settings.DefaultNode+")")
	c.Flags().String("node-token", "", "gateway's token of the node (TRANCHE_NODE_TOKEN)")
	a.withCommon(c)
}

func (a *App) withCommon(c *cobra.Command) {
	if c.Flags().Lookup("config") != nil {
		return
	}
	c.Flags().String("config", "", "configuration `FILE` (TRANCHE_CONFIG; default ~/.config/tranche/config.yaml, if it exists)")
	c.Flags().String("ca", "", "`FILE` of certificates to trust (TRANCHE_CA)")
}

// withJSON adds --json.
func (a *App) withJSON(commands ...*cobra.Command) {
	for _, c := range commands {
		c.Flags().BoolVar(&a.json, "json", false, "print JSON, for programs")
	}
}

func (a *App) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Print the version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]string{"version": Version()})
			}
			_, err := fmt.Fprintln(a.out, "tranche", Version())
			return err
		},
	}
	a.withJSON(c)
	return c
}
