package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/importer"
)

// The forms that are imported.
const (
	formEnvoy = "envoy-ratelimit"
	formCSV   = "csv"
)

func (a *App) importCommand() *cobra.Command {
	var from, home string
	var weights []string
	var shadow bool
	c := &cobra.Command{
		Use: "import FILE", Short: "Make budgets of another limiter's configuration", Args: exactly("FILE"),
		Long: `Make budgets of another limiter's configuration, and print them as files that "tranche budgets apply" takes. Nothing is
applied. What has no equivalent, or is not quite the same, is told on the error output. - is standard input.

csv has a line of column names: budget, limit, window (1m, hour, day, month, …), and, if you like, unit, match
("tenant=acme plan=free") and enforcement.`,
		Example: "  tranche budgets import --from envoy-ratelimit --weights us-east=3,eu-west=2 --shadow ratelimit.yaml > budgets.yaml",
		RunE: func(_ *cobra.Command, args []string) error {
			policy, err := importPolicy(home, weights)
			if err != nil {
				return err
			}
			in := a.in
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("import: %w", err)
				}
				defer file.Close()
				in = file
			}
			read := map[string]func(io.Reader, allocation.Policy) (importer.Result, error){formEnvoy: importer.Envoy, formCSV: importer.CSV}[from]
			if read == nil {
				return usagef("--from %q: use %s or %s", from, formEnvoy, formCSV)
			}
			r, err := read(in, policy)
			if err != nil {
				return usageError{fmt.Errorf("import %s: %w", args[0], err)}
			}
			return a.showImport(r, shadow)
		},
	}
	c.Flags().StringVar(&from, "from", "", "`FORM` of the file: "+formEnvoy+" or "+formCSV)
	c.Flags().StringVar(&home, "home", "", "`REGION` that gets all of each budget")
	c.Flags().StringSliceVar(&weights, "weights", nil, "`REGION=N` of each region that gets a part")
	c.Flags().BoolVar(&shadow, "shadow", false, "begin in shadow: refuse nobody")
	a.withJSON(c)
	return c
}

func importPolicy(home string, weights []string) (p allocation.Policy, err error) {
	if (home == "") == (len(weights) == 0) {
		return p, usagef("say which region gets how much: --home REGION, or --weights REGION=N,REGION=N")
	}
	if home != "" {
		return allocation.Policy{Policy: allocation.PolicyHome, Region: home}, nil
	}
	texts, err := pairs("--weights", weights)
	if err != nil {
		return p, err
	}
	p = allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{}}
	for region, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return p, usagef("--weights %s=%s: give a whole number", region, text)
		}
		p.Weights[region] = n
	}
	return p, nil
}

// showImport prints a document for each budget: JSON, which is YAML too.
func (a *App) showImport(r importer.Result, shadow bool) error {
	for i := range r.Budgets {
		if shadow && r.Budgets[i].Enforcement == "" {
			r.Budgets[i].Enforcement = allocation.Shadow
		}
	}
	if a.json {
		return a.printJSON(r)
	}
	for _, b := range r.Budgets {
		text, err := json.Marshal(b)
		if err != nil {
			return fmt.Errorf("write budget %s: %w", b.Name, err)
		}
		a.printf("---\n%s\n", text)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(a.err, "note: %s: %s\n", n.Where, n.Text)
	}
	fmt.Fprintf(a.err, "%s, %s\n", counted(len(r.Budgets), "budget"), counted(len(r.Notes), "note"))
	return nil
}
