package cli

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// nodeBlock is what a node takes and answers of a block.
type nodeBlock struct {
	ID string `json:"id"`
	allocation.Block
	InForce bool `json:"in_force"`
	Told    bool `json:"told"`
}

func (a *App) blockCommand() *cobra.Command {
	var q coordinator.BlockRequest
	var lasts string
	var here bool
	c := &cobra.Command{
		Use: "block LABEL=VALUE…", Short: "Refuse all requests with some labels, or of one key, for a while",
		Long: `Refuse all requests that have all of these labels, or come with a key of this fingerprint, everywhere, until it ends by
itself. It wins over budgets, keys and replays; what was admitted can still be settled and released.

With --node-only it is made at a node, for its region: for when the coordinator cannot be reached. It needs an operator's
token, and the coordinator is told as soon as it can be reached again.`,
		Example: `  tranche block tenant=acme capability=export --for 2h --reason 'runaway job' --by kim
  tranche block --fingerprint fp_0f3a9c61d2b84e75a610 --for 24h --reason leaked`,
		RunE: func(c *cobra.Command, args []string) (err error) {
			if len(args) > 0 {
				if q.Match, err = pairs("label", args); err != nil {
					return err
				}
			}
			switch {
			case len(args) == 0 && q.Fingerprint == "":
				return usagef("name what to block: LABEL=VALUE…, or --fingerprint")
			case lasts == "":
				return usagef("--for is missing: a block must have an end, such as --for 2h")
			}
			if err := needsReason(q.Reason); err != nil {
				return err
			}
			if q.For, err = duration("for", lasts); err != nil {
				return err
			}
			if here {
				return a.blockHere(c, q)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var b coordinator.BlockAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodPost, Path: "/v1/blocks", Body: q}, &b); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(b)
			}
			a.printf("block %s: %s is refused until %s; end it sooner with: tranche unblock %s\n", b.ID, b.Says(), b.Until, b.ID)
			return a.showEnforced(c.Context(), client, b.Number, b.Match)
		},
	}
	f := c.Flags()
	f.StringVar(&lasts, "for", "", "`DURATION` after which it ends by itself, such as 2h")
	f.StringVar(&q.Reason, "reason", "", "`TEXT`: why; it stands in the audit")
	f.StringVar(&q.By, "by", "", "`NAME` of the person, beside the token's name")
	f.StringVar(&q.Fingerprint, "fingerprint", "", "`FP` of a key: one of ours, or an external one that gateways name")
	f.BoolVar(&here, "node-only", false, "make it at a node, for its region only")
	a.withCoordinator(c)
	a.withNode(c)
	a.withJSON(c)
	return c
}

// blockHere makes a block at a node.
func (a *App) blockHere(c *cobra.Command, q coordinator.BlockRequest) error {
	return a.askNode(c, "/v1/blocks", q, "is refused in this region until")
}

func (a *App) askNode(c *cobra.Command, path string, body any, words string) error {
	client, err := a.node(c)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if _, err := client.Do(c.Context(), api.Call{Method: http.MethodPost, Path: path, Body: body}, &raw); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(raw)
	}
	var b nodeBlock
	if err := json.Unmarshal(raw, &b); err != nil {
		return err
	}
	a.printf("block %s: %s %s %s\n", b.ID, b.Says(), words, b.Until)
	return nil
}

func (a *App) unblockCommand() *cobra.Command {
	var q coordinator.EndRequest
	var here bool
	c := &cobra.Command{
		Use: "unblock ID", Short: "End a block before its time", Args: exactly("ID"),
		Example: "  tranche unblock b-0f3a9c61d2b8 --reason 'key was rotated' --by kim",
		RunE: func(c *cobra.Command, args []string) error {
			if err := needsReason(q.Reason); err != nil {
				return err
			}
			if here {
				return a.askNode(c, "/v1/blocks/lift", map[string]string{"id": args[0], "reason": q.Reason, "by": q.By}, "is lifted in this region; it would have ended at")
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var b coordinator.BlockAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodPost, Path: "/v1/blocks/" + url.PathEscape(args[0]) + "/lift", Body: q}, &b); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(b)
			}
			a.printf("block %s of %s is lifted\n", b.ID, b.Says())
			return a.showEnforced(c.Context(), client, b.Number, b.Match)
		},
	}
	f := c.Flags()
	f.StringVar(&q.Reason, "reason", "", "`TEXT`: why; it stands in the audit")
	f.StringVar(&q.By, "by", "", "`NAME` of the person, beside the token's name")
	f.BoolVar(&here, "node-only", false, "lift a block that was made at a node, for its region")
	a.withCoordinator(c)
	a.withNode(c)
	a.withJSON(c)
	return c
}

func (a *App) blocksCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "blocks", Short: "List the blocks that are in force", Args: exactly(), Example: "  tranche blocks --all",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			call := api.Call{Method: http.MethodGet, Path: "/v1/blocks"}
			if all {
				call.Query = url.Values{"all": {"true"}}
			}
			var list coordinator.BlocksList
			if _, err := client.Do(c.Context(), call, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]any
			for _, b := range list.Blocks {
				where := "everywhere"
				if len(b.Regions) > 0 {
					where = b.Regions[0]
				}
				rows = append(rows, []any{b.ID, b.Says(), where, b.State, b.Until.String(), b.By, b.Reason})
			}
			a.table([]string{"id", "blocks", "where", "state", "until", "by", "reason"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that are over or lifted")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}
