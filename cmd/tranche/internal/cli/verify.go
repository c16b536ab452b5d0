package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/books"
	"tranche/cmd/tranche/internal/settings"
	"tranche/coordinator"
)

const (
	// readings is how often the books are read before a fault is told: a coordinator that had not heard yet what another
	// replica granted would look like one.
	readings     = 3
	readingEvery = time.Second
	// staleLedgers is how old ledgers may be before that is warned of: a coordinator reads etcd all the time.
	staleLedgers = 5 * time.Second
	// shownLines is how many lines of the account are printed; --json and --export have them all.
	shownLines = 60
)

type verifyOptions struct {
	nodes            map[string]string
	export, evidence string
	all              bool
}

func (a *App) verifyCommand() *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use: "verify", Short: "Check the whole account: etcd's ledgers against every owner's database", Args: exactly(),
		Long: `Check that every permit is in exactly one place, from the ledgers in etcd and every owner's database:

  limit + overcommitted = spent + reserved + spendable + stranded + unallocated + in transit

It may run at any time, also under load. The status is 3 if the account does not add up. An evidence file
holds all that was read; anyone can check it again, without access: tranche verify --evidence FILE.`,
		Example: `  tranche verify
  tranche verify --node us-east=https://node-1.us-east:7080 --export evidence.json
  tranche verify --evidence evidence.json`,
		RunE: func(c *cobra.Command, _ []string) error { return a.verify(c, o) },
	}
	f := c.Flags()
	f.StringToStringVar(&o.nodes, "node", nil, "`REGION=URL` of a node to read a region's account from (default: where its nodes say they are)")
	f.String("node-token", "", "gateway's token of the nodes (TRANCHE_NODE_TOKEN)")
	f.StringVar(&o.export, "export", "", "write the evidence to `FILE`")
	f.StringVar(&o.evidence, "evidence", "", "check an evidence `FILE` again instead of reading anything")
	f.BoolVar(&o.all, "all", false, "print periods too in which nothing was spent")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) verify(c *cobra.Command, o verifyOptions) error {
	if o.evidence != "" {
		e, err := books.Open(o.evidence)
		if err != nil {
			return err
		}
		return a.showEvidence(e, o)
	}
	client, s, err := a.coordinator(c)
	if err != nil {
		return err
	}
	for region, address := range o.nodes {
		if err := settings.CheckURL(address); err != nil {
			return usagef("--node %s: %w", region, err)
		}
	}
	given := maps.Clone(s.Nodes)
	if given == nil {
		given = map[string]string{}
	}
	maps.Copy(given, o.nodes)
	e, err := a.takeEvidence(c.Context(), client, s, given)
	if err != nil {
		return err
	}
	if o.export != "" {
		if err := e.Save(o.export); err != nil {
			return err
		}
	}
	return a.showEvidence(e, o)
}

// takeEvidence reads the books, again if they do not add up: a fault is one that stays.
func (a *App) takeEvidence(ctx context.Context, client *api.Client, s settings.Settings, given map[string]string) (books.Evidence, error) {
	var e books.Evidence
	for n := 1; n <= readings; n++ {
		var regions coordinator.RegionsList
		if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &regions); err != nil {
			return e, err
		}
		if err := knownRegions(given, regions.Regions); err != nil {
			return e, err
		}
		r, err := books.Read(ctx, books.Sources{
			Coordinator: client, Nodes: books.NodesOf(regions.Regions, given), Now: a.now,
			Node: func(address string) (*api.Client, error) {
				if err := settings.CheckURL(address); err != nil {
					return nil, err
				}
				return api.New("node", address, s.NodeToken, s.CA)
			},
		})
		if err != nil {
			return e, err
		}
		if e = books.Judge(r, a.now(), Version()); e.Report.Conserved() {
			return e, nil
		}
		select {
		case <-ctx.Done():
			return e, ctx.Err()
		case <-time.After(readingEvery):
		}
	}
	return e, nil
}

// knownRegions refuses the address of a region that does not exist: nobody would miss what was not read there.
func knownRegions(given map[string]string, regions []coordinator.RegionAnswer) error {
	var names []string
	for _, r := range regions {
		names = append(names, r.Region)
	}
	for _, region := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, region) {
			return usagef("there is no region %q; correct --node %s=%s, or nodes in the configuration file: there is %s", region, region, given[region], cmp.Or(strings.Join(names, ", "), "none"))
		}
	}
	return nil
}

// showEvidence prints what was found; status 3 if the account does not add up.
func (a *App) showEvidence(e books.Evidence, o verifyOptions) error {
	if e.Deployment == "" {
		return errors.New("what was read names no deployment: nothing is proven; is --coordinator the address of a coordinator?")
	}
	var broken error
	if !e.Report.Conserved() || unread(e) {
		broken = errNotWell
	}
	if a.json {
		if err := a.printJSON(map[string]any{
			"conserved": e.Report.Conserved(), "deployment": e.Deployment, "taken": e.Taken, "not_read": e.NotRead,
			"readings": e.Readings, "warnings": staleness(e.Readings), "report": e.Report,
		}); err != nil {
			return err
		}
		return broken
	}
	a.account(e.Report, o.all)
	a.readings(e.Readings)
	for _, region := range slices.Sorted(maps.Keys(e.NotRead)) {
		a.printf("not read: region %s: %s\n", region, e.NotRead[region])
	}
	if len(e.Report.Unread) > 0 {
		a.printf("what %s holds counts as stranded here, whatever was spent of it\n", strings.Join(e.Report.Unread, ", "))
	}
	stale := staleness(e.Readings)
	for _, w := range stale {
		a.printf("warning: %s\n", w)
	}
	for _, v := range e.Report.Violations {
		a.printf("BROKEN: %s\n", v)
	}
	if o.export != "" {
		a.printf("the evidence is in %s; anyone can check it: tranche verify --evidence %s\n", o.export, o.export)
	}
	if !e.Report.Conserved() {
		a.printf("the account does NOT add up: %s; stop admitting for these budgets and keep the evidence (--export FILE)\n", counted(len(e.Report.Violations), "violation"))
		return broken
	}
	if broken != nil {
		a.printf("nothing is proven: no region's database could be read, only the ledgers; say where nodes are: --node REGION=URL\n")
		return broken
	}
	a.printf("the account adds up%s: %s, every permit in exactly one place (deployment %s, %s)\n", yes(len(stale) > 0, ", by ledgers that are old"),
		counted(len(e.Report.Lines), "line"), e.Deployment, e.Taken.Format(time.RFC3339))
	return nil
}

// unread says whether there was no owner to compare the ledgers with, though regions have called.
func unread(e books.Evidence) bool { return len(e.NotRead) > 0 && len(e.Books.Owners) == 0 }

// readings says what the account was made from, and how fresh it was.
func (a *App) readings(parts []books.Part) {
	var rows [][]any
	for _, p := range parts {
		age, told := p.Age()
		text := "not told"
		switch {
		case told && age == 0:
			text = "when asked"
		case told:
			text = ago(age)
		}
		rows = append(rows, []any{p.Read, p.From, p.Revision, text})
	}
	if len(rows) > 0 {
		a.printf("\n")
		a.table([]string{"read", "from", "revision", "as of"}, rows)
		a.printf("\n")
	}
}

// staleness warns of ledgers that the coordinator could not read from etcd lately. They add up as they were, which proves
// nothing of what was granted, returned or changed since.
func staleness(parts []books.Part) []string {
	list := []string{}
	for _, p := range parts {
		if age, told := p.Age(); told && age > staleLedgers {
			list = append(list, fmt.Sprintf("%s: the coordinator at %s last read etcd %s; what changed since is not in this account. Look at etcd: `tranche status`",
				p.Read, p.From, ago(age)))
		}
	}
	return list
}

// account prints the lines, those in which something was spent first of all.
func (a *App) account(r allocation.AccountReport, all bool) {
	var rows [][]any
	quiet := 0
	for _, l := range r.Lines {
		if !all && l.Spent+l.Reserved+l.Overcommitted+l.Stranded+l.InTransit == 0 {
			quiet++
			continue
		}
		if len(rows) == shownLines {
			continue
		}
		name := l.Budget
		if l.Instance != "" {
			name += " [" + l.Instance + "]"
		}
		rows = append(rows, []any{
			name, l.Period.String() + yes(l.Periods > 1, fmt.Sprintf(" ×%d", l.Periods)), l.Limit, l.Overcommitted, l.Spent, l.Reserved, l.Spendable, l.Stranded, l.Unallocated, l.InTransit,
		})
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "period", "limit", "overc.", "spent", "res.", "spendable", "strand.", "unalloc.", "transit"}, rows)
	}
	if more := len(r.Lines) - quiet - len(rows); more > 0 {
		a.printf("and %s; --json and --export have them all\n", counted(more, "more line"))
	}
	if quiet > 0 {
		a.printf("not shown: %s in which nothing was spent (--all shows them)\n", plural(quiet, "run of periods", "runs of periods"))
	}
}
