package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

const showLedgersLong = `Show the ledgers of one budget: of each open term its generation and limit, and which terms are closed, with what was spent. Records of
closed terms are read from etcd and from the --closing-archive of the coordinator that is asked; "kept in" says which. --json has all of
the documents, as they are stored; "tranche budgets closings" has more of what became of closed terms.`

func (a *App) showLedgersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show the open and the closed terms of a budget, also those that were archived", Args: exactly("NAME"), Long: showLedgersLong,
		Example: "  tranche ledgers show acme/requests\n  tranche ledgers show acme/requests --json",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			page, err := allLedgers(c, client, args[0])
			switch {
			case err != nil:
				return err
			case a.json:
				return a.printJSON(page)
			}
			return a.showLedgers(args[0], page)
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// allLedgers reads all pages. The open terms are those of the last one.
func allLedgers(c *cobra.Command, client *api.Client, name string) (all coordinator.LedgersPage, err error) {
	var closings []coordinator.StoredClosing
	for after := ""; ; after = all.More {
		query := url.Values{}
		if after != "" {
			query.Set("after", after)
		}
		all = coordinator.LedgersPage{}
		if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: budgetPath("/v1/ledgers/", name), Query: query}, &all); err != nil {
			return all, err
		}
		if closings = append(closings, all.Closings...); all.More == "" {
			all.Closings = closings
			return all, nil
		}
	}
}

func (a *App) showLedgers(name string, page coordinator.LedgersPage) error {
	var rows [][]any
	for _, s := range page.Ledgers {
		var l allocation.Ledger
		if err := json.Unmarshal(s.Ledger, &l); err != nil {
			return fmt.Errorf("read the ledger %s: %w", s.Key, err)
		}
		rows = append(rows, []any{l.Periods.Start(), l.Periods.End(), l.Periods.Len(), "open", l.Generation, l.EntryAt(0).Limit, "-", "etcd"})
	}
	for _, s := range page.Closings {
		c := s.Closing
		sum := spentIn(c.Regions)
		rows = append(rows, []any{
			c.Term, c.Periods.End(), c.Periods.Len(), "closed " + c.Closed.Format(closedForm), c.Generation, "-", sum.Spent + c.OpeningSpent + lateSpent(c),
			either(s.Archived, "archive", "etcd"),
		})
	}
	if len(rows) == 0 {
		a.printf("no term of %s is open, and no record of a closed one is kept here\n", name)
		return nil
	}
	a.table([]string{"term", "until", "periods", "state", "generation", "limit", "spent", "kept in"}, rows)
	return nil
}
