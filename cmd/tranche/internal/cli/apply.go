package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/coordinator"
)

const (
	// progressEvery is how often a long apply says how far it is.
	progressEvery = 2 * time.Second
	// shownPermits is up to how many budgets their permits are printed one by one.
	shownPermits = 20
	// staleTries is how often a change is decided anew when somebody else was faster.
	staleTries = 3
	// toldFaults bounds how many budgets' faults are told at once.
	toldFaults = 20
)

func (a *App) applyCommand() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "apply FILE|FOLDER…", Short: "Create and change budgets as files declare them", Args: atLeastOne("FILE|FOLDER"),
		Long: `Create and change budgets as files declare them (YAML or JSON; several documents to a file; - is standard input).

All files are read and all budgets checked, by this program and by the coordinator, before the first is changed.
A budget that is not in the files is left alone; delete it with "tranche budgets delete".`,
		Example: `  tranche budgets apply --dry-run budgets/
  tranche budgets apply budgets/

A file:
  budget: acme/requests
  unit: requests
  limit: 100
  window: {every: 1m}
  match: {tenant: acme}
  allocation: {policy: fixed, weights: {us-east: 3, eu-west: 2}}`,
		RunE: func(c *cobra.Command, args []string) error {
			declared, err := manifest.Load(a.in, args...)
			if err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.apply(c.Context(), client, declared, dry)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "show the difference, change nothing")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// applied is what became of one declared budget.
type applied struct {
	Budget string                    `json:"budget"`
	Source string                    `json:"source"`
	Action string                    `json:"action"` // created, changed, unchanged
	Answer *coordinator.BudgetAnswer `json:"answer,omitempty"`
}

// The actions of apply.
const (
	actionCreated   = "created"
	actionChanged   = "changed"
	actionUnchanged = "unchanged"
)

func (a *App) apply(ctx context.Context, client *api.Client, declared []manifest.Budget, dry bool) error {
	plans, err := a.check(ctx, client, declared)
	if err != nil {
		return err
	}
	if dry {
		return a.showPlans(plans)
	}
	progress := a.progress("applied", len(declared))
	for i, b := range declared {
		if plans[i].Action == actionUnchanged {
			continue
		}
		done, err := put(ctx, client, b, false)
		if err != nil {
			return fmt.Errorf("%w\n%d of %s as declared; run the same command again to go on", of(b, err), i, plural(len(declared), "budget stands", "budgets stand"))
		}
		plans[i] = done
		progress(i + 1)
	}
	return a.showApplied(plans)
}

// check asks the coordinator what each budget would change. What it finds wrong with several is told at once.
func (a *App) check(ctx context.Context, client *api.Client, declared []manifest.Budget) ([]applied, error) {
	progress := a.progress("checked", len(declared))
	var plans []applied
	var faults []error
	for i, b := range declared {
		plan, err := put(ctx, client, b, true)
		if answer, told := errors.AsType[*api.Error](err); told && answer.BadInput() {
			if faults = append(faults, of(b, err)); len(faults) == toldFaults {
				return nil, errors.Join(append(faults, errors.New("the rest was not checked"))...)
			}
			continue
		}
		if err != nil {
			return nil, errors.Join(append(faults, of(b, err))...)
		}
		plans = append(plans, plan)
		progress(i + 1)
	}
	if len(faults) == 0 {
		return plans, checkTogether(ctx, client, declared, plans)
	}
	return plans, errors.Join(faults...)
}

// ofBudget is an error that says in each of its lines which budget it is about.
type ofBudget struct {
	where string
	error
}

func of(b manifest.Budget, err error) error {
	return ofBudget{fmt.Sprintf("%s: budget %s: ", b.Source, b.Name), err}
}

// Error puts the place before each line.
func (e ofBudget) Error() string {
	return e.where + strings.ReplaceAll(e.error.Error(), "\n", "\n"+e.where)
}

func (e ofBudget) Unwrap() error { return e.error }

// put creates or changes one budget: it reads, compares and writes on that version, anew when somebody was faster.
func put(ctx context.Context, client *api.Client, b manifest.Budget, dry bool) (applied, error) {
	done := applied{Budget: b.Name, Source: b.Source.String()}
	for try := 1; ; try++ {
		call := api.Call{Method: http.MethodPut, Path: budgetPath("/v1/budgets/", b.Name), Body: b.Budget, Header: http.Header{}}
		old, err := readBudget(ctx, client, b.Name)
		missing, told := errors.AsType[*api.Error](err)
		switch {
		case told && missing.Status == http.StatusNotFound:
			done.Action = actionCreated
			call.Header.Set("If-None-Match", "*")
		case err != nil:
			return done, err
		default:
			done.Action = actionChanged
			call.Header.Set("If-Match", quoted(old.Version))
		}
		// A dry run tells the difference: the coordinator alone knows the defaults of its version.
		call.Query = url.Values{"dry_run": {"true"}}
		answer := new(coordinator.BudgetAnswer)
		if _, err = client.Do(ctx, call, answer); err == nil && done.Action == actionChanged && len(answer.Difference) == 0 {
			done.Action, done.Answer = actionUnchanged, &old
			return done, nil
		}
		if err == nil && !dry {
			call.Query, answer = nil, new(coordinator.BudgetAnswer)
			_, err = client.Do(ctx, call, answer)
		}
		if err == nil {
			done.Answer = answer
			return done, nil
		}
		if stale, is := errors.AsType[*api.Error](err); is && try < staleTries &&
			(stale.Status == http.StatusPreconditionFailed || stale.Status == http.StatusConflict && stale.Code == coordinator.CodeExists) {
			continue
		}
		return done, err
	}
}

// progress says now and then how far a long work is, on the error output.
func (a *App) progress(what string, of int) func(done int) {
	last := a.now()
	return func(done int) {
		if now := a.now(); now.Sub(last) >= progressEvery && done < of {
			last = now
			fmt.Fprintf(a.err, "%s %d of %s\n", what, done, counted(of, "budget"))
		}
	}
}

// showPlans prints the difference that a dry run found.
func (a *App) showPlans(plans []applied) error {
	if a.json {
		return a.printJSON(map[string]any{"dry_run": true, "budgets": plans})
	}
	var rows [][]any
	unchanged := 0
	for _, p := range plans {
		if p.Action == actionUnchanged {
			unchanged++
			continue
		}
		for _, d := range p.Answer.Difference {
			rows = append(rows, []any{p.Budget, p.Action, d.Field, orNone(d.Old), orNone(d.New)})
		}
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "would be", "field", "old", "new"}, rows)
	}
	a.notes(plans)
	a.printf("dry run: %d would be created or changed, %d stand as declared; nothing was changed\n", len(plans)-unchanged, unchanged)
	return nil
}

func orNone(v any) any {
	if v == nil {
		return "-"
	}
	if f, ok := v.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return v
}

// notes tells when changes count, and the warnings; one that several budgets have is told once.
func (a *App) notes(list []applied) {
	var order []string
	names := map[string][]string{}
	add := func(budget, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if names[text] == nil {
			order = append(order, text)
		}
		names[text] = append(names[text], budget)
	}
	for _, p := range list {
		if p.Answer == nil || p.Action == actionUnchanged {
			continue
		}
		if p.Answer.WindowFrom != nil {
			add(p.Budget, "note: %%s: the new window counts from %s, when the opened terms end", p.Answer.WindowFrom)
		}
		if p.Answer.PolicyFrom != nil {
			add(p.Budget, "note: %%s: the new policy counts from %s, when the opened terms end", p.Answer.PolicyFrom)
		}
		for _, w := range p.Answer.Warnings {
			add(p.Budget, "warning: %%s: %s", strings.ReplaceAll(w, "%", "%%"))
		}
	}
	for _, text := range order {
		who := names[text][0]
		if others := len(names[text]) - 1; others > 0 {
			who += " and " + counted(others, "other")
		}
		a.printf(text+"\n", who)
	}
}

func (a *App) showApplied(list []applied) error {
	if a.json {
		return a.printJSON(map[string]any{"budgets": list})
	}
	counts := map[string]int{}
	var rows [][]any
	for _, p := range list {
		counts[p.Action]++
		if p.Action == actionUnchanged && len(list) > shownPermits {
			continue
		}
		rows = append(rows, []any{p.Budget, p.Action, p.Answer.Version, permitsOf(p.Answer), p.Answer.Counted})
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "", "version", "permits per period", "counted"}, rows)
	}
	a.notes(list)
	a.printf("%d created, %d changed, %d unchanged\n", counts[actionCreated], counts[actionChanged], counts[actionUnchanged])
	return nil
}
