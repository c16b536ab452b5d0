package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

const recoverLong = `Look at a deployment, say in plain words what is wrong that a command may help with, and which: each with its command
lines. It changes nothing. The status is 0 if nothing is wrong and 3 if something is.

What each command declares, and what is never possible, stands in deploy/docs/recovery.md.`

// mostNamed bounds how many budgets are named in one finding.
const mostNamed = 3

// mostAsked bounds of how many lines it is asked whether a limit can be raised by them.
const mostAsked = 30

// finding is one thing that is wrong, and what helps.
type finding struct {
	What     string   `json:"what"`
	Means    string   `json:"means"`
	Do       string   `json:"do"`
	Commands []string `json:"commands,omitempty"`
}

// findings are what a look at a deployment comes to.
type findings struct {
	Deployment string    `json:"deployment"`
	Well       bool      `json:"well"`
	Findings   []finding `json:"findings"`
}

func (a *App) recoverCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "recover", Short: "Say what is lost or stuck, and which command helps", Args: exactly(), Long: recoverLong, Example: "  tranche recover",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.recover(c.Context(), client)
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) recover(ctx context.Context, client *api.Client) error {
	var s coordinator.Status
	var h coordinator.HistoryAnswer
	var r coordinator.StrandedReport
	for path, into := range map[string]any{"/v1/status": &s, "/v1/history": &h, "/v1/stranded": &r} {
		if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: path}, into); err != nil {
			return err
		}
	}
	if s.Deployment == "" {
		return client.Mistaken(client.Address(), "")
	}
	found := findings{Deployment: s.Deployment, Findings: diagnose(s, h, r, a.notCompensable(ctx, client))}
	found.Well = len(found.Findings) == 0
	if a.json {
		if err := a.printJSON(found); err != nil {
			return err
		}
		return orNotWell(found.Well)
	}
	a.printf("deployment %s\n", found.Deployment)
	if found.Well {
		a.printf("nothing is lost or stuck that a command would help with; `tranche status` says more\n")
		return nil
	}
	for i, f := range found.Findings {
		a.printf("\n%d. %s\n   means: %s\n   do:    %s\n", i+1, f.What, f.Means, f.Do)
		for _, line := range f.Commands {
			a.printf("          %s\n", line)
		}
	}
	return errNotWell
}

// notCompensable asks why a limit cannot be raised by what a line says is stranded; empty: it can. A command that is named is one
// that works.
func (a *App) notCompensable(ctx context.Context, client *api.Client) func(coordinator.StrandedLine) string {
	asked := 0
	return func(l coordinator.StrandedLine) string {
		switch {
		case l.Compensated != nil:
			return "it is compensated already"
		case l.Template:
			return "a template: change its limit, which is per instance"
		case asked >= mostAsked:
			return fmt.Sprintf("not looked at: %d others were", mostAsked)
		}
		asked++
		_, err := client.Do(ctx, api.Call{
			Method: http.MethodPost, Path: "/v1/compensations", Query: url.Values{"dry_run": {"true"}},
			Body: coordinator.CompensateRequest{Budget: l.Budget, Region: l.Region, Incarnation: l.Incarnation},
		}, nil)
		var p *api.Error
		switch {
		case err == nil || errors.As(err, &p) && p.Status == http.StatusForbidden: // by a token that may only read, nobody can say
			return ""
		case p != nil:
			return cmp.Or(p.Detail, p.Title, "it is refused")
		}
		return err.Error()
	}
}

// diagnose says what is wrong, the worst first.
func diagnose(s coordinator.Status, h coordinator.HistoryAnswer, r coordinator.StrandedReport, not func(coordinator.StrandedLine) string) []finding {
	found := []finding{}
	found = append(found, diagnoseFreeze(h)...)
	for _, region := range s.Regions {
		if f, is := diagnoseRegion(region, h.Freeze != nil, r, not); is {
			found = append(found, f)
		}
	}
	found = append(found, diagnoseChanges(s)...)
	found = append(found, diagnoseLost(r)...)
	for _, p := range s.Problems {
		// What etcd and the ledgers suffer from is no matter of these commands, but comes before all of them.
		if p.Severity == coordinator.SeverityCritical && len(s.Members) > 0 && !slices.ContainsFunc(s.Members, func(m coordinator.Member) bool { return m.Healthy }) {
			found = slices.Insert(found, 0, finding{What: p.What, Means: "nothing can be granted or changed", Do: p.Next})
		}
	}
	return found
}

func diagnoseFreeze(h coordinator.HistoryAnswer) []finding {
	if h.Freeze == nil {
		return nil
	}
	f := finding{
		What:  "everything is frozen: " + h.Freeze.Why,
		Means: "regions go on from what they hold; nothing is granted, and no term is opened, until every region has stated what it holds",
		Do:    "bring back the regions that are missing; register again those that etcd lost; give up only one that will never come back",
	}
	f.Commands = append(f.Commands, "tranche ledgers recover")
	for _, r := range h.Regions {
		switch {
		case r.Stated:
		case !r.Registered:
			f.Commands = append(f.Commands, fmt.Sprintf("tranche regions register %s --postgres-url URL --token-file %s.token", r.Region, r.Region))
		case !r.InContact:
			f.Commands = append(f.Commands, "tranche ledgers recover --give-up "+r.Region)
		}
	}
	return []finding{f}
}

// diagnoseRegion says what is wrong with one region. What a frozen history waits for is said there.
func diagnoseRegion(r coordinator.RegionAnswer, frozen bool, report coordinator.StrandedReport, not func(coordinator.StrandedLine) string) (finding, bool) {
	c := r.Contradiction
	switch {
	case r.Handover != nil:
		return finding{
			What:  fmt.Sprintf("region %s is being handed over to another database since %s, by %s: %s", r.Region, r.Handover.Since.UTC().Format(time.RFC3339), r.Handover.By, r.Handover.Reason),
			Means: "its owner is stopped, or about to be: the region admits nothing, and nothing is lost", Do: "go on with it, or call it off with --cancel",
			Commands: []string{"tranche regions handover " + r.Region + " --from-url URL --to-url URL"},
		}, true
	case r.Incarnation == "" && r.Sealing != "":
		return finding{
			What: fmt.Sprintf("the incarnation %s of region %s was ended, to be sealed", r.Sealing, r.Region), Means: "nobody admits there; what it held is free only if the seal was counted",
			Do:       "run the seal again, if it was interrupted; else start its nodes, which begin anew, or drain it",
			Commands: []string{"tranche regions seal " + r.Region + " --postgres-url URL", "tranche regions drain " + r.Region},
		}, true
	case c != nil && c.Other && c.Incarnation == r.Incarnation && c.Home != r.Home:
		return finding{
			What:  fmt.Sprintf("a second database calls as region %s: %s; recorded is %s", r.Region, homeText(c.Home), homeText(r.Home)),
			Means: "the recorded one goes on; the other is refused, and admits nothing",
			Do: "if it is a copy, stop its nodes. If it was promoted, stop the nodes of the old one and wait: it is taken when the old one is silent. " +
				"Declare it only if you know that nothing is missing and the old one can never commit",
			Commands: []string{"tranche regions adopt-failover " + r.Region},
		}, true
	case c != nil && c.Other:
		return finding{
			What: fmt.Sprintf("another database calls as region %s: %s", r.Region, c.Detail), Means: "it is refused; the recorded one goes on, if it calls",
			Do: "stop the nodes of the database that does not belong there",
		}, true
	case r.Incarnation != "" && !r.InContact && !frozen:
		return silentRegion(r, report, not), true
	}
	return finding{}, false
}

func silentRegion(r coordinator.RegionAnswer, report coordinator.StrandedReport, not func(coordinator.StrandedLine) string) finding {
	f := finding{
		What: fmt.Sprintf("region %s has not called for %s", r.Region, spanMillis(r.ContactAgeMillis)),
		Means: "it may go on alone, and spend what it holds: nobody else may. " + strandedIn(report, func(l coordinator.StrandedLine) bool {
			return l.Region == r.Region && l.Cause != coordinator.CauseLostHistory && open(l)
		}),
		Do: "mend the link, or start its nodes. If its nodes are gone and its database answers, seal it. If more is needed elsewhere meanwhile, " +
			"raise a limit by what is stranded",
		Commands: []string{"tranche whatif --lose " + r.Region, "tranche regions seal " + r.Region + " --postgres-url URL"},
	}
	var refused []string
	for _, l := range report.Lines {
		if l.Region != r.Region || !open(l) || l.Cause == coordinator.CauseLostHistory || len(f.Commands) >= 2+mostNamed {
			continue
		}
		if why := not(l); why != "" {
			refused = append(refused, fmt.Sprintf("%s (%s)", l.Budget, why))
			continue
		}
		line := fmt.Sprintf("tranche budgets compensate %s --region %s", shellWord(l.Budget), r.Region)
		if slices.ContainsFunc(report.Lines, func(o coordinator.StrandedLine) bool {
			return o.Region == l.Region && o.Budget == l.Budget && o.Incarnation != l.Incarnation
		}) {
			line += " --incarnation " + l.Incarnation
		}
		f.Commands = append(f.Commands, line)
	}
	if n := len(refused); n > 0 {
		f.Do += "; not that of " + strings.Join(refused[:min(mostNamed, n)], ", ")
		if n > mostNamed {
			f.Do += fmt.Sprintf(", nor of %d more", n-mostNamed)
		}
	}
	return f
}

// open says whether a line holds permits that nobody has written off.
func open(l coordinator.StrandedLine) bool { return l.Stranded > 0 && l.WrittenOff == nil }

// diagnoseChanges names what etcd lost of budgets, as far as regions know.
func diagnoseChanges(s coordinator.Status) []finding {
	if len(s.LostChanges) == 0 {
		return nil
	}
	f := finding{
		What:  fmt.Sprintf("etcd lost changes of %s that regions know of", counted(len(s.LostChanges), "budget")),
		Means: "the lower of both limits counts; a budget whose declaration is lost goes on in the regions as they know it, and no term of it is opened",
		Do:    "declare them again from your files; what else was changed in what etcd lost nobody knows, so apply all of them",
	}
	for _, c := range s.LostChanges[:min(mostNamed, len(s.LostChanges))] {
		f.What += fmt.Sprintf("; %s: version %d", c.Budget, c.Version)
		if c.Had > 0 {
			f.What += fmt.Sprintf(", and etcd had %d", c.Had)
		}
	}
	if more := len(s.LostChanges) - mostNamed; more > 0 {
		f.What += fmt.Sprintf("; and %d more", more)
	}
	f.Commands = []string{"tranche budgets apply FOLDER"}
	return []finding{f}
}

// diagnoseLost tells of what no command brings back.
func diagnoseLost(report coordinator.StrandedReport) []finding {
	lost := func(l coordinator.StrandedLine) bool { return l.Cause == coordinator.CauseLostHistory && open(l) }
	f := finding{
		What:     "incarnations that were replaced hold permits: " + strandedIn(report, lost),
		Means:    "nobody can say any more what they spent of it; it ends with its periods, and no command frees it before",
		Do:       "raise a limit if it is needed, or write it off, so that it is no longer reported",
		Commands: []string{"tranche stranded list --detail"},
	}
	lines := 0
	for _, l := range report.Lines {
		if !lost(l) {
			continue
		}
		if lines++; lines <= mostNamed {
			f.Commands = append(f.Commands, fmt.Sprintf("tranche stranded write-off --budget %s --region %s --incarnation %s", shellWord(l.Budget), l.Region, l.Incarnation))
		}
	}
	if lines == 0 {
		return nil
	}
	if lines > mostNamed {
		f.Do += fmt.Sprintf(": each of %d budgets and incarnations, of which %d are named here", lines, mostNamed)
	}
	return []finding{f}
}

// strandedIn adds up lines, by unit.
func strandedIn(report coordinator.StrandedReport, is func(coordinator.StrandedLine) bool) string {
	sums, text := map[string]int64{}, ""
	for _, l := range report.Lines {
		if is(l) {
			sums[l.Unit] = allocation.SumUp(sums[l.Unit], l.Stranded)
		}
	}
	for _, unit := range sortedKeys(sums) {
		text += yes(text != "", ", ") + fmt.Sprintf("%d %s", sums[unit], unit)
	}
	return cmp.Or(text, "nothing") + " stranded in running periods"
}
