package cli

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
)

// What a node tells of refusals.
type (
	recordsAnswer struct {
		Region  string            `json:"region"`
		Records []json.RawMessage `json:"records"` // each as the node wrote it
		Next    string            `json:"next,omitempty"`
	}
	refusedAnswer struct {
		Region string `json:"region"`
		Every  string `json:"every,omitempty"`
		Counts []struct {
			At         string `json:"at,omitempty"`
			Capability string `json:"capability,omitempty"`
			Tenant     string `json:"tenant,omitempty"`
			Priority   string `json:"priority,omitempty"`
			Reason     string `json:"reason,omitempty"`
			Unit       string `json:"unit,omitempty"`
			Requests   int64  `json:"requests"`
			Units      int64  `json:"units"`
		} `json:"counts"`
		More bool `json:"more,omitempty"`
	}
	keptAnswer struct {
		Region  string `json:"region"`
		Tenants []struct {
			Tenant string    `json:"tenant"`
			Since  time.Time `json:"since"`
			Until  time.Time `json:"until"`
			By     string    `json:"by"`
		} `json:"tenants"`
	}
)

func (a *App) refusalsCommand() *cobra.Command {
	c := parent("refusals", "What a region refused: kept in full, counted, replayed",
		"  tranche refusals find --tenant acme --since 1h\n  tranche refusals counts --every 1m --by reason\n  tranche refusals replay 5f0c7e3b9a1d2c44",
		a.refusalsFind(), a.refusalsCounts(), a.refusalsKeep(), a.refusalsReplay())
	c.Long = `Ask a node what its region refused. It needs an operator's token. Nodes keep a bounded sample of refusals in full in the
region's database, and count all of them by the minute.`
	return c
}

// when are the flags of a stretch of time.
type when struct{ from, until, since string }

func (w *when) flags(c *cobra.Command) {
	c.Flags().StringVar(&w.from, "from", "", "not before this `INSTANT`, like 2026-03-01T09:00:00Z")
	c.Flags().StringVar(&w.until, "until", "", "before this `INSTANT`")
	c.Flags().StringVar(&w.since, "since", "", "instead of --from: the last `DURATION`, such as 1h")
}

func (a *App) stretch(w when, q url.Values) error {
	if w.since != "" {
		if w.from != "" {
			return usagef("--since and --from are two beginnings; give one")
		}
		d, err := duration("since", w.since)
		if err != nil {
			return err
		}
		w.from = a.now().Add(-d.Std()).UTC().Format(time.RFC3339)
	}
	for name, value := range map[string]string{"from": w.from, "until": w.until} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return nil
}

func (a *App) refusalsFind() *cobra.Command {
	var w when
	var limit int
	fields := map[string]*string{}
	c := &cobra.Command{
		Use: "find", Short: "List the refusals that are kept in full, the newest first", Args: exactly(),
		Example: "  tranche refusals find --tenant acme --since 1h\n  tranche refusals find --correlation 4bf92f3577b34da6 --json",
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.node(c)
			if err != nil {
				return err
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, value := range fields {
				if *value != "" {
					q.Set(name, *value)
				}
			}
			if err := a.stretch(w, q); err != nil {
				return err
			}
			var list recordsAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/refusals", Query: q}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			return a.showRecords(list)
		},
	}
	f := c.Flags()
	for _, flag := range []struct{ name, help string }{
		{"decision", "`ID` of the decision, as its receipt names it"},
		{"correlation", "`ID`: traceparent or X-Request-Id of the call"},
		{"admission_id", "`ID` of the admission"},
		{"fingerprint", "`FP` of a key"},
		{"tenant", "`NAME`, as the label has it"},
		{"reason", "`REASON` of the refusal"},
	} {
		fields[flag.name] = new(string)
		name := flag.name
		if name == "admission_id" {
			name = "admission-id"
		}
		f.StringVar(fields[flag.name], name, "", flag.help)
	}
	f.IntVar(&limit, "limit", 20, "how many, at most 100")
	w.flags(c)
	a.withNode(c)
	a.withJSON(c)
	return c
}

func (a *App) showRecords(list recordsAnswer) error {
	var rows [][]any
	for _, text := range list.Records {
		var r allocation.Record
		if err := json.Unmarshal(text, &r); err != nil {
			return err
		}
		d := r.Decision
		said := string(d.Reason)
		if d.Admitted() {
			said = cmp.Or(string(d.Would), d.Action)
		}
		rows = append(rows, []any{time.UnixMicro(d.At).UTC().Format(time.RFC3339), r.Name, said, r.Request.Key.Tenant, r.Request.Key.ID, d.Blames})
	}
	a.table([]string{"at", "decision", "reason", "tenant", "admission id", "budget"}, rows)
	if list.Next != "" {
		a.printf("there are older ones; narrow the time with --until\n")
	}
	return nil
}

func (a *App) refusalsCounts() *cobra.Command {
	var w when
	var every, by, tenant string
	c := &cobra.Command{
		Use: "counts", Short: "Refused requests and units over time", Args: exactly(),
		Example: "  tranche refusals counts --since 1h --every 1m --by reason\n  tranche refusals counts --by capability,tenant --json",
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.node(c)
			if err != nil {
				return err
			}
			q := url.Values{"by": {by}}
			for name, value := range map[string]string{"every": every, "tenant": tenant} {
				if value != "" {
					q.Set(name, value)
				}
			}
			if err := a.stretch(w, q); err != nil {
				return err
			}
			var list refusedAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/refusals/counts", Query: q}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]any
			for _, r := range list.Counts {
				rows = append(rows, []any{r.At, r.Capability, r.Tenant, r.Priority, r.Reason, r.Requests, r.Units, r.Unit})
			}
			a.table([]string{"at", "capability", "tenant", "priority", "reason", "requests", "units", "unit"}, rows)
			if list.More {
				a.printf("there is more than one answer has: ask for less time, or fewer columns with --by\n")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&every, "every", "", "`DURATION` of one count, whole minutes such as 1m or 1h (default: one sum of all)")
	f.StringVar(&by, "by", "capability,tenant,priority,reason", "`COLUMNS` to tell apart")
	f.StringVar(&tenant, "tenant", "", "`NAME` of one tenant")
	w.flags(c)
	a.withNode(c)
	a.withJSON(c)
	return c
}

func (a *App) refusalsKeep() *cobra.Command {
	var lasts, by string
	c := &cobra.Command{
		Use: "keep [TENANT]", Short: "Keep all refusals of a tenant in full for a while; without a tenant: list those", Args: cobra.MaximumNArgs(1),
		Example: "  tranche refusals keep acme --for 1h --by kim\n  tranche refusals keep",
		RunE: func(c *cobra.Command, args []string) error {
			call := api.Call{Method: http.MethodGet, Path: "/v1/refusals/keep"}
			if len(args) > 0 {
				if lasts == "" {
					return usagef("--for is missing: it must have an end, such as --for 1h")
				}
				d, err := duration("for", lasts)
				if err != nil {
					return err
				}
				call.Method, call.Body = http.MethodPost, map[string]any{"tenant": args[0], "for": d, "by": by}
			}
			client, err := a.node(c)
			if err != nil {
				return err
			}
			var list keptAnswer
			if _, err := client.Do(c.Context(), call, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			var rows [][]any
			for _, k := range list.Tenants {
				rows = append(rows, []any{k.Tenant, k.Until.Format(time.RFC3339), k.By})
			}
			a.table([]string{"tenant", "kept until", "by"}, rows)
			return nil
		},
	}
	c.Flags().StringVar(&lasts, "for", "", "`DURATION` after which it ends by itself, such as 1h; at most 7d")
	c.Flags().StringVar(&by, "by", "", "`NAME` of the person, beside the token's name")
	a.withNode(c)
	a.withJSON(c)
	return c
}
