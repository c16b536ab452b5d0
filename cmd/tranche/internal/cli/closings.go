package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
	"tranche/coordinator/ndjson"
)

// closingOptions are what is asked for, and from where.
type closingOptions struct {
	filter      coordinator.ClosingFilter
	from, until string
	archive     string
	csv         bool
}

func (a *App) closingsCommand() *cobra.Command {
	return parent("closings", "List and export the records of closed terms", "  tranche closings list --budget acme/requests\n  tranche closings export --csv > closings.csv",
		a.listClosingsCommand(), a.exportClosingsCommand())
}

func (o *closingOptions) flags(a *App, c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.filter.Budget, "budget", "", "`NAME` of a budget; with a * at its end, all that begin so")
	f.StringVar(&o.filter.Region, "region", "", "`REGION` that held something")
	f.StringVar(&o.from, "from", "", "`INSTANT` after which terms end, like 2026-05-04T10:00:00Z")
	f.StringVar(&o.until, "until", "", "`INSTANT` before which terms begin")
	f.BoolVar(&o.filter.Late, "late", false, "only those with late statements")
	f.BoolVar(&o.filter.Stranded, "stranded", false, "only those with permits that were never recovered")
	f.BoolVar(&o.filter.Overdraft, "overdraft", false, "only those with overdraft")
	f.StringVar(&o.archive, "archive", "", "`FOLDER` of a coordinator's --closing-archive to read as well")
	a.withCoordinator(c)
}

func (o *closingOptions) check() error {
	for _, at := range []struct {
		flag, text string
		to         *allocation.Instant
	}{{"from", o.from, &o.filter.From}, {"until", o.until, &o.filter.Until}} {
		if at.text == "" {
			continue
		}
		if err := at.to.UnmarshalText([]byte(at.text)); err != nil {
			return usagef("--%s %s: give an instant like 2026-05-04T10:00:00Z", at.flag, at.text)
		}
	}
	return nil
}

func (a *App) listClosingsCommand() *cobra.Command {
	var o closingOptions
	c := &cobra.Command{
		Use: "list", Short: "List the records of closed terms", Args: exactly(), Example: "  tranche closings list --budget 'acme/*' --stranded",
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := a.closings(c, &o)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			a.showClosings(list)
			return nil
		},
	}
	o.flags(a, c)
	a.withJSON(c)
	return c
}

func (a *App) exportClosingsCommand() *cobra.Command {
	var o closingOptions
	c := &cobra.Command{
		Use: "export", Short: "Write the records of closed terms, with their periods, to the standard output", Args: exactly(),
		Example: "  tranche closings export --csv --from 2026-05-01T00:00:00Z > may.csv\n  tranche closings export --json --archive /var/lib/tranche/closings",
		RunE: func(c *cobra.Command, _ []string) error {
			if o.csv == a.json {
				return usagef("`%s` needs one of --csv and --json", c.CommandPath())
			}
			list, err := a.closings(c, &o)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			return a.closingsCSV(list)
		},
	}
	o.flags(a, c)
	c.Flags().BoolVar(&o.csv, "csv", false, "write CSV: a line for each region and period, or run of periods")
	a.withJSON(c)
	return c
}

// closings are the records that are asked for, by budget and term: of the archive, if one is named, and of etcd.
func (a *App) closings(c *cobra.Command, o *closingOptions) (coordinator.ClosingsPage, error) {
	var none coordinator.ClosingsPage
	if err := o.check(); err != nil {
		return none, err
	}
	client, _, err := a.coordinator(c)
	if err != nil {
		return none, err
	}
	found := collection{closings: map[string]coordinator.Closing{}, late: map[string]coordinator.Amendment{}}
	if o.archive != "" {
		broken, err := ndjson.Read(o.archive, found.line)
		if err != nil {
			return none, err
		}
		if broken > 0 {
			fmt.Fprintf(a.err, "%s of the archive cannot be read and left out\n", plural(broken, "line", "lines"))
		}
	}
	if err := found.fetch(c.Context(), client, o); err != nil {
		return none, err
	}
	return found.page(o.filter), nil
}

// collection gathers records by their names; a later one takes the place of an earlier.
type collection struct {
	closings map[string]coordinator.Closing
	late     map[string]coordinator.Amendment
}

func nameOf(budget string, term allocation.Instant) string {
	return fmt.Sprintf("%s\x00%020d", budget, int64(term)+1<<62)
}

func (f *collection) line(text []byte) bool {
	var l coordinator.ArchiveLine
	switch err := json.Unmarshal(text, &l); {
	case err != nil:
		return false
	case l.Closing != nil:
		f.closings[nameOf(l.Closing.Budget, l.Closing.Term)] = *l.Closing
	case l.Amendment != nil:
		f.amendment(*l.Amendment)
	default:
		return false
	}
	return true
}

func (f *collection) amendment(a coordinator.Amendment) {
	f.late[nameOf(a.Budget, a.Term)+"\x00"+a.Incarnation] = a
}

// fetch asks for what is in etcd. Late accounts may belong to a record of the archive, so they are asked for in any case.
func (f *collection) fetch(ctx context.Context, client *api.Client, o *closingOptions) error {
	query := url.Values{"limit": {"1000"}}
	for name, value := range map[string]string{"budget": o.filter.Budget, "region": o.filter.Region, "from": o.from, "until": o.until} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for {
		var page coordinator.ClosingsPage
		if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/closings", Query: query}, &page); err != nil {
			return err
		}
		for _, c := range page.Closings {
			f.closings[nameOf(c.Closing.Budget, c.Closing.Term)] = c.Closing
		}
		for _, a := range page.Amendments {
			f.amendment(a)
		}
		if page.Next == "" {
			return nil
		}
		query.Set("after", page.Next)
	}
}

// page joins late accounts with the records that they belong to, and lists what is asked for.
func (f *collection) page(filter coordinator.ClosingFilter) (page coordinator.ClosingsPage) {
	for _, name := range sortedNames(f.late) {
		late := f.late[name]
		c, there := f.closings[nameOf(late.Budget, late.Term)]
		if !there {
			page.Amendments = append(page.Amendments, late)
			continue
		}
		c.Regions = slices.Clone(c.Regions)
		for i := range c.Regions {
			if r := &c.Regions[i]; r.Holder == late.Holder && (r.Late == nil || r.Late.At.Before(late.Late.At)) {
				r.Late = &late.Late
			}
		}
		f.closings[nameOf(late.Budget, late.Term)] = c
	}
	page.Closings = []coordinator.StoredClosing{}
	for _, name := range sortedNames(f.closings) {
		if c := f.closings[name]; filter.Takes(c) {
			page.Closings = append(page.Closings, coordinator.StoredClosing{Closing: c})
		}
	}
	return page
}

func sortedNames[T any](m map[string]T) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (a *App) showClosings(list coordinator.ClosingsPage) {
	if len(list.Closings) == 0 && len(list.Amendments) == 0 {
		a.printf("no such record; terms are closed some seconds after all of their regions have stated their end, and records leave etcd after the coordinator's --closing-retention\n")
		return
	}
	var rows [][]any
	for _, c := range list.Closings {
		r := c.Closing
		var sum allocation.RecordSums
		late := 0
		for _, at := range r.Regions {
			sum = sum.Add(at.Final())
			late += len(yes(at.Late != nil, "x"))
		}
		rows = append(rows, []any{
			r.Budget, r.Term, r.Total.Periods, r.Total.Limit, sum.Spent, sum.Reserved, r.Total.Unused, r.Total.Stranded, sum.Overdraft, late, r.Closed.Format(time.RFC3339),
		})
	}
	a.table([]string{"budget", "term", "periods", "limit", "spent", "reserved", "unused", "stranded", "overdraft", "late", "closed"}, rows)
	for _, l := range list.Amendments {
		a.printf("late: %s of %s, term of %s, stated %d spent, %d reserved, %d overdraft at %s; its record is archived\n",
			l.Region, l.Budget, l.Term, l.Late.Spent, l.Late.Reserved, l.Late.Overdraft, l.Late.At.Format(time.RFC3339))
	}
}

// closingsCSV writes a line for each region in each record of periods, one without a region where nobody held anything, and
// one, marked late, for what a region stated of the whole term later: that counts in place of its other lines.
func (a *App) closingsCSV(list coordinator.ClosingsPage) error {
	w := csv.NewWriter(a.out)
	w.Write([]string{
		"budget", "unit", "term", "from", "until", "periods", "limit", "overcommitted", "unused", "region", "incarnation", "granted", "returned", "spent", "reserved", "overdraft", "stranded", "late",
	})
	n := func(v int64) string { return strconv.FormatInt(v, 10) }
	for _, c := range list.Closings {
		r := c.Closing
		line := func(p allocation.PeriodRecord, region, incarnation string, granted, returned int64, s allocation.RecordSums, late string) {
			w.Write([]string{
				r.Budget, r.Unit, r.Term.String(), p.From.String(), p.Until.String(), strconv.Itoa(p.Periods), n(p.Limit), n(p.Overcommitted), n(p.Unused),
				region, incarnation, n(granted), n(returned), n(s.Spent), n(s.Reserved), n(s.Overdraft), n(s.Stranded), late,
			})
		}
		for _, p := range r.Detail {
			for _, s := range p.Shares {
				at := r.Regions[s.Holder]
				line(p, at.Region, at.Incarnation, s.Granted, s.Returned, s.RecordSums, "")
			}
			if len(p.Shares) == 0 {
				line(p, "", "", 0, 0, allocation.RecordSums{}, "")
			}
		}
		for _, at := range r.Regions {
			if at.Late != nil {
				line(r.Total, at.Region, at.Incarnation, at.Granted, at.Returned, at.Late.RecordSums, at.Late.At.Format(time.RFC3339))
			}
		}
	}
	for _, l := range list.Amendments {
		w.Write([]string{
			l.Budget, l.Unit, l.Term.String(), "", "", "", "", "", "", l.Region, l.Incarnation, "", "", n(l.Late.Spent), n(l.Late.Reserved), n(l.Late.Overdraft), n(l.Late.Stranded), l.Late.At.Format(time.RFC3339),
		})
	}
	w.Flush()
	return w.Error()
}
