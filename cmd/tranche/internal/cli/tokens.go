package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) tokensCommand() *cobra.Command {
	return parent("tokens", "Make and revoke tokens of the coordinator", "  tranche tokens create alice --role viewer",
		a.createTokenCommand(), a.listTokensCommand(), a.rotateTokenCommand(), a.revokeTokenCommand())
}

func (a *App) rotateTokenCommand() *cobra.Command {
	var overlap, file string
	c := &cobra.Command{
		Use: "rotate NAME", Short: "Make the next token of a name; the one before it is taken until --overlap is over", Args: exactly("NAME"),
		Long: `Make the next token of a name, of an admin, a viewer, or a region (region:NAME). Both are taken until the overlap is over,
so whoever uses it can change it without a moment in between. A node reads its --region-token-file again when it changes.`,
		Example: "  tranche tokens rotate region:us-east --overlap 24h --token-file us-east-2.token",
		RunE: func(c *cobra.Command, args []string) (err error) {
			var q coordinator.RotateRequest
			if q.Overlap, err = duration("overlap", overlap); err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var t coordinator.TokenAnswer
			call := api.Call{Method: http.MethodPost, Path: "/v1/tokens/" + url.PathEscape(args[0]) + "/rotate", Body: q}
			if _, err := client.Do(c.Context(), call, &t); err != nil {
				return err
			}
			if file != "" {
				if err := writeSecret(file, t.Token); err != nil {
					return fmt.Errorf("the token is made, but could not be written: %w; rotate it once more", err)
				}
				t.Token = ""
			}
			switch {
			case a.json:
				return a.printJSON(t)
			case file != "":
				a.printf("token %s (%s) is in %s; the one before it is taken until %s\n", t.Name, t.Role, file, cmp.Or(t.OldUntil, "now"))
			default:
				a.printf("token %s (%s), shown only now: %s\nthe one before it is taken until %s\n", t.Name, t.Role, t.Token, cmp.Or(t.OldUntil, "now"))
			}
			return nil
		},
	}
	c.Flags().StringVar(&overlap, "overlap", "24h", "`DURATION` for which both are taken; 0s ends the old one at once")
	c.Flags().StringVar(&file, "token-file", "", "`FILE` to write the token to (mode 0600) instead of printing it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) createTokenCommand() *cobra.Command {
	var role, file string
	c := &cobra.Command{
		Use: "create NAME", Short: "Make a token; its name stands in every audit line", Args: exactly("NAME"),
		Example: "  tranche tokens create alice --role admin --token-file alice.token",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var t coordinator.TokenAnswer
			call := api.Call{Method: http.MethodPost, Path: "/v1/tokens", Body: map[string]string{"name": args[0], "role": role}}
			if _, err := client.Do(c.Context(), call, &t); err != nil {
				return err
			}
			if file != "" {
				if err := writeSecret(file, t.Token); err != nil {
					return fmt.Errorf("the token is made, but could not be written: %w; revoke it with `tranche tokens revoke %s` and try again", err, t.Name)
				}
				t.Token = ""
			}
			if a.json {
				return a.printJSON(t)
			}
			if file != "" {
				a.printf("token %s (%s) is in %s\n", t.Name, t.Role, file)
				return nil
			}
			a.printf("token %s (%s), shown only now: %s\n", t.Name, t.Role, t.Token)
			return nil
		},
	}
	c.Flags().StringVar(&role, "role", coordinator.RoleViewer, "admin (does everything) or viewer (reads)")
	c.Flags().StringVar(&file, "token-file", "", "`FILE` to write the token to (mode 0600) instead of printing it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) listTokensCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List tokens by name; the tokens themselves are not kept", Args: exactly(), Example: "  tranche tokens list",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var list coordinator.TokensList
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/tokens"}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]any
			for _, t := range list.Tokens {
				rows = append(rows, []any{t.Name, t.Role, t.Made, t.By})
			}
			a.table([]string{"name", "role", "made", "by"}, rows)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) revokeTokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "revoke NAME", Short: "End a token", Args: exactly("NAME"), Example: "  tranche tokens revoke alice",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/tokens/" + url.PathEscape(args[0])}, nil); err != nil {
				return err
			}
			a.printf("token %s is revoked\n", args[0])
			return nil
		},
	}
	a.withCoordinator(c)
	return c
}

func (a *App) auditCommand() *cobra.Command {
	var after string
	var limit int
	c := &cobra.Command{
		Use: "audit", Short: "Show who changed what", Args: exactly(), Example: "  tranche audit --limit 20",
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit %d: use at least 1", limit)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			list, err := latestAudit(c, client, after, limit)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(coordinator.AuditPage{Lines: list})
			}
			var rows [][]any
			for _, l := range list {
				from := l.From + yes(l.Node != "", " ("+l.Node+")")
				rows = append(rows, []any{l.At.UTC().Format(time.RFC3339), l.Who, from, l.Act, l.Object, oldToNew(l.Old, l.New) + yes(l.Reason != "", "; because: "+l.Reason)})
			}
			a.table([]string{"at", "who", "from", "act", "object", "old → new"}, rows)
			return nil
		},
	}
	c.Flags().StringVar(&after, "after", "", "`ID` of a line: show what came later")
	c.Flags().IntVar(&limit, "limit", 50, "show the latest so many")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// latestAudit pages to the end and keeps the latest lines.
func latestAudit(c *cobra.Command, client *api.Client, after string, limit int) ([]coordinator.AuditEntry, error) {
	list := []coordinator.AuditEntry{}
	for {
		query := url.Values{"limit": {"1000"}}
		if after != "" {
			query.Set("after", after)
		}
		var page coordinator.AuditPage
		if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/audit", Query: query}, &page); err != nil {
			return nil, err
		}
		list = append(list, page.Lines...)
		list = list[max(0, len(list)-limit):]
		if after = page.Next; after == "" {
			return list, nil
		}
	}
}
