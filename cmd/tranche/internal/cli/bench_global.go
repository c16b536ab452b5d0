package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/scale"
	"tranche/simulations"
)

// globalReport is what `tranche bench global` measures.
type globalReport struct {
	Scale   scale.Report     `json:"scale"`
	Month   scale.Month      `json:"month"`
	Changes *scale.Changes   `json:"changes"`
	Kept    simulations.Kept `json:"kept"`
}

func (a *App) benchGlobalCommand() *cobra.Command {
	var o scale.Options
	var month scale.MonthOptions
	var changes, budgets int
	var hold time.Duration
	c := &cobra.Command{
		Use: "global", Short: "Measure what many budgets and regions cost the coordinator and etcd", Args: exactly(),
		Long: `Declare many minute budgets over some regions on a real etcd, and measure: what a change costs with a tenth of them and with
all; what etcd holds of each; how long a replica takes to start, and a node that knows all, and the memory of each. One of the
regions has a real node and a Postgres. Then drive the clock of a real coordinator on a real etcd through a month, and look at
what etcd holds at the end of each day. Then run a whole deployment, and measure the
time from a change at the admin API until every node of every region enforces it. At last let minute budgets roll over in
the simulated world, with the real coordinator and nodes: ledger writes for each budget and term, and what etcd holds.`,
		Example: "  tranche bench global\n  tranche bench global --budgets 100000 --json\n  tranche bench global --month-budgets 10000 --month-days 4",
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case changes < 1 || changes > 10_000:
				return usagef("--changes %d: use 1 to 10000", changes)
			case hold < time.Hour || hold > 800*time.Hour:
				return usagef("--hold %s: use 1h to 800h", hold)
			case budgets < 1 || budgets > 1000:
				return usagef("--hold-budgets %d: use 1 to 1000", budgets)
			}
			o.Progress = func(format string, args ...any) { a.live(format, args...) }
			month.Regions, month.Progress = o.Regions, o.Progress
			if err := month.Check(); err != nil {
				return usagef("%w", err)
			}
			report, err := a.measureGlobal(c.Context(), o, month, changes, simulations.KeepOptions{Seed: 1, Regions: o.Regions, Budgets: budgets, For: hold})
			a.liveEnd()
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(report)
			}
			a.showGlobal(report)
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&o.Budgets, "budgets", 10_000, "how many budgets are declared")
	f.IntVar(&o.Regions, "regions", 5, "over how many regions")
	f.IntVar(&month.Budgets, "month-budgets", 20, "how many minute budgets roll over for a month")
	f.IntVar(&month.Days, "month-days", 30, "how long the month is, in days")
	f.IntVar(&changes, "changes", 50, "how often a limit is changed in the whole deployment")
	f.DurationVar(&hold, "hold", 4*time.Hour, "how much simulated time the budgets roll over; closing records are kept for 24h, so 26h shows all that stays")
	f.IntVar(&budgets, "hold-budgets", 5, "how many budgets roll over")
	a.withJSON(c)
	return c
}

func (a *App) measureGlobal(ctx context.Context, o scale.Options, month scale.MonthOptions, changes int, keep simulations.KeepOptions) (r globalReport, err error) {
	if r.Scale, err = scale.Run(ctx, o); err != nil {
		return r, err
	}
	if r.Month, err = scale.MeasureMonth(ctx, month); err != nil {
		return r, err
	}
	if r.Changes, err = scale.MeasureChanges(ctx, scale.ChangesOptions{Changes: changes, Progress: o.Progress}); err != nil {
		return r, err
	}
	keep.Progress = func(done time.Duration) { a.live("%s of %s simulated hours", done.Round(time.Minute), keep.For) }
	r.Kept, err = simulations.MeasureKept(ctx, keep)
	return r, err
}

func (a *App) showGlobal(r globalReport) {
	s := r.Scale
	a.printf("%d minute budgets over %d regions, on a real etcd:\n", s.Budgets, s.Regions)
	var rows [][]any
	for _, x := range []scale.Stage{s.Few, s.Many} {
		rows = append(rows, []any{
			x.Budgets, fmt.Sprintf("%.2f ms", x.Declare), fmt.Sprintf("%.2f ms, %d bytes", x.Quiet, x.QuietBytes), fmt.Sprintf("%.2f ms, %d bytes", x.Change, x.ChangeByte),
			fmt.Sprintf("%d calls, %s, %.1f s", x.FirstCalls, sizeOf(int64(x.FirstBytes)), x.First),
		})
	}
	a.table([]string{"budgets", "declare one", "a quiet sync call", "to sync one change", "a region's first sync"}, rows)
	a.printf("\nLedger writes for each budget and term: %.3f, whatever the number of periods and regions.\n", s.LedgerWrites)
	a.printf("Etcd holds %s in %d documents, %s for each budget; its file has %s.\n", sizeOf(s.Held.Bytes), s.Held.Documents, sizeOf(s.Held.Bytes/int64(s.Budgets)), sizeOf(s.Database))
	rows = nil
	for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
		rows = append(rows, []any{kind, s.Kinds[kind].Documents, sizeOf(s.Kinds[kind].Bytes)})
	}
	a.table([]string{"documents", "number", "keys and values"}, rows)
	a.printf("\nOne more replica is ready after %.1f s and takes %s of memory, %s for each budget.\n", s.StartSeconds, sizeOf(s.HeapBytes), sizeOf(s.HeapBytes/int64(s.Budgets)))
	n := s.Node
	a.printf("A node stored %d shares of all budgets in an empty Postgres within %.1f s. Started again it is ready after %.1f s and takes %s of memory, %s for each budget.\n",
		n.Shares, n.StoreSeconds, n.StartSeconds, sizeOf(n.HeapBytes), sizeOf(n.HeapBytes/int64(s.Budgets)))
	a.showMonth(r.Month)

	c := r.Changes
	a.printf("\nA change until all %d nodes of 2 regions on this machine enforce it, %d times:\n", c.Nodes, c.Changes)
	rows = nil
	for _, x := range []struct {
		what string
		p    scale.Percentiles
	}{{"lowered to 0: all refuse", c.Lowered}, {"raised: all admit", c.Raised}, {"one spend, for comparison", c.Round}, {"the admin API's answer", c.Answer}} {
		rows = append(rows, []any{x.what, fmt.Sprintf("%.1f ms", x.p.Median), fmt.Sprintf("%.1f ms", x.p.P99), fmt.Sprintf("%.1f ms", x.p.Most)})
	}
	a.table([]string{"", "p50", "p99", "most"}, rows)

	k := r.Kept
	a.printf("\n%d minute budgets over %d regions, %s of simulated time: %d periods began, %d terms were opened with %d ledger writes.\n",
		k.Budgets, k.Regions, k.For, k.Periods, k.Terms, k.LedgerWrites)
	rows = nil
	for _, h := range k.Held {
		rows = append(rows, []any{fmt.Sprintf("%.0f h", h.Hours), sizeOf(h.Bytes["ledgers"]), sizeOf(h.Bytes["closings"]), sizeOf(h.Bytes["statements"]), sizeOf(h.All)})
	}
	a.table([]string{"after", "ledgers", "closing records", "statements", "all that etcd holds"}, rows)
}

// shownDays are those of a month that are shown, and the last.
var shownDays = []int{1, 2, 3, 4, 7, 14, 21, 28}

func (a *App) showMonth(m scale.Month) {
	a.printf("\n%d minute budgets over %d regions for %d days, on a real etcd: the coordinator's clock was driven ahead hour by hour, in %.0f s.\n",
		m.Budgets, m.Regions, len(m.Days), m.Seconds)
	var rows [][]any
	for _, d := range m.Days {
		if d.Day != len(m.Days) && !slices.Contains(shownDays, d.Day) {
			continue
		}
		rows = append(rows, []any{
			d.Day, sizeOf(d.Kinds["ledgers"].Bytes), sizeOf(d.Kinds["closings"].Bytes), sizeOf(d.Kinds["statements"].Bytes), sizeOf(d.Held.Bytes), d.Held.Documents,
			sizeOf(d.Database), sizeOf(d.Archive),
		})
	}
	a.table([]string{"day", "ledgers", "closing records", "statements", "all that etcd holds", "documents", "its file", "the archive"}, rows)
	last := m.Days[len(m.Days)-1]
	a.printf("From the third day on %d terms were opened, each with %.3f ledger writes, and what etcd holds grew by %.2f bytes a term. It holds %s for each budget.\n",
		m.Terms, m.LedgerWrites, m.Growth, sizeOf(last.Held.Bytes/int64(m.Budgets)))
	a.printf("One more replica is ready after %.1f s then and takes %s of memory, %s for each budget.\n", m.StartSeconds, sizeOf(m.HeapBytes), sizeOf(m.HeapBytes/int64(m.Budgets)))
}

// sizeOf is a number of bytes for people.
func sizeOf(bytes int64) string {
	switch {
	case bytes < 10_000:
		return fmt.Sprintf("%d bytes", bytes)
	case bytes < 10_000_000:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	case bytes < 10_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(bytes)/1e9)
}
