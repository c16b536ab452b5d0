package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
	"tranche/regional"
)

func (a *App) statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "One look that says whether all is well, and what to do next", Args: exactly(),
		Long: `One look at a deployment through its coordinator, or with --node at one node alone.
The status is 0 if all is well and 3 if somebody should look.`,
		Example: "  tranche status\n  tranche status --node http://127.0.0.1:7080",
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("node") {
				client, err := a.node(c)
				if err != nil {
					return err
				}
				return a.nodeStatus(c.Context(), client)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.status(c.Context(), client)
		},
	}
	a.withNode(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) status(ctx context.Context, client *api.Client) error {
	var s coordinator.Status
	if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/status"}, &s); err != nil {
		return err
	}
	if s.Deployment == "" || s.History.Stamp == "" {
		return client.Mistaken(client.Address(), "")
	}
	well := allWell(s.Problems)
	if a.json {
		if err := a.printJSON(struct {
			Well bool `json:"well"`
			coordinator.Status
		}{well, s}); err != nil {
			return err
		}
		return orNotWell(well)
	}
	a.printf("deployment %s, %s, %s, %d behind; coordinator %s, etcd read %d ms ago\n",
		s.Deployment, counted(s.Budgets, "budget"), counted(s.Ledgers, "ledger"), s.Behind, cmp.Or(s.Version, "of an unknown version"), s.EvidenceAge)
	if len(s.Regions) > 0 {
		a.printf("\n")
		a.regionsTable(s.Regions)
		a.versions(s.Regions)
	}
	if len(s.Members) > 0 {
		a.printf("\n")
		a.membersTable(s.Members)
	}
	if len(s.Above80) > 0 {
		a.printf("\n")
		var rows [][]any
		for _, u := range s.Above80 {
			rows = append(rows, []any{u.Budget, u.Limit, u.Spent, u.Reserved, fmt.Sprintf("%.0f %%", 100*float64(u.Spent+u.Reserved)/float64(u.Limit))})
		}
		a.table([]string{"above 80 %", "limit", "spent", "reserved", "used"}, rows)
	}
	if s.Oldest != nil {
		a.printf("\noldest open reservation: in %s, made %s\n", s.Oldest.Region, ago(a.now().Sub(s.Oldest.Made)))
	}
	a.problems(s.Problems)
	return a.verdict(well)
}

// allWell says whether nobody need look: notes do not count.
func allWell(problems []coordinator.StatusProblem) bool {
	return !slices.ContainsFunc(problems, func(p coordinator.StatusProblem) bool { return p.Severity != coordinator.SeverityNote })
}

func orNotWell(well bool) error {
	if well {
		return nil
	}
	return errNotWell
}

func (a *App) verdict(well bool) error {
	if well {
		a.printf("\nall is well\n")
		return nil
	}
	a.printf("\nsomebody should look\n")
	return errNotWell
}

func (a *App) problems(list []coordinator.StatusProblem) {
	if len(list) == 0 {
		return
	}
	a.printf("\n")
	for _, p := range list {
		a.printf("%s: %s\n  next: %s\n", p.Severity, p.What, cmp.Or(p.Next, "nothing"))
	}
}

func (a *App) membersTable(members []coordinator.Member) {
	var rows [][]any
	for _, m := range members {
		state := "healthy"
		if !m.Healthy {
			state = "not healthy: " + m.Problem
		}
		rows = append(rows, []any{m.Name, m.Endpoint, m.Version, fmt.Sprintf("%.1f MiB", float64(m.DBBytes)/(1<<20)), state + yes(m.Leader, ", leader")})
	}
	a.table([]string{"etcd member", "endpoint", "version", "size", "state"}, rows)
}

// versions says it where nodes run different programs.
func (a *App) versions(regions []coordinator.RegionAnswer) {
	var seen []string
	for _, r := range regions {
		for _, n := range r.Nodes {
			if !slices.Contains(seen, n.Version) {
				seen = append(seen, n.Version)
			}
		}
	}
	slices.Sort(seen)
	if len(seen) > 1 {
		a.printf("nodes run different versions: %s\n", strings.Join(seen, ", "))
	} else if len(seen) == 1 {
		a.printf("nodes run version %s\n", seen[0])
	}
}

// staleSync is when a node's silence towards the coordinator deserves a look.
const staleSync = 10 * time.Second

func (a *App) nodeStatus(ctx context.Context, client *api.Client) error {
	var s regional.NodeStatus
	if _, err := client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/status"}, &s); err != nil {
		return err
	}
	if s.Region == "" || s.Node == "" {
		return client.Mistaken(client.Address(), "")
	}
	problems := nodeProblems(s)
	well := allWell(problems)
	if a.json {
		if err := a.printJSON(struct {
			Well     bool                        `json:"well"`
			Problems []coordinator.StatusProblem `json:"problems"`
			regional.NodeStatus
		}{well, problems, s}); err != nil {
			return err
		}
		return orNotWell(well)
	}
	runway := "unbounded"
	if s.Runway != nil {
		runway = fmt.Sprintf("%s (%s ends first)", span(time.Duration(s.Runway.Seconds)*time.Second), s.Runway.Budget)
	}
	a.table([]string{"node", s.Node}, [][]any{
		{"region", s.Region},
		{"version", s.Version},
		{"ready", map[bool]string{true: "yes", false: "no"}[s.Ready] + yes(s.Shadow, ", in shadow: it refuses nobody")},
		{"last commit", a.ago(&s.LastCommitAt)},
		{"this node's last turn", a.lastSync(s.Sync)},
		{"runway", runway},
		{"budgets", fmt.Sprint(s.Budgets)},
		{"open reservations", fmt.Sprint(s.Reservations.Open) + yes(!s.Reservations.Oldest.IsZero(), ", oldest "+a.ago(&s.Reservations.Oldest))},
	})
	a.fullest(s.Fullest)
	a.problems(problems)
	return a.verdict(well)
}

// lastSync is of this node's own turn. One node of a region calls the coordinator for all of them.
func (a *App) lastSync(s regional.SyncStatus) string {
	switch {
	case !s.LastSuccess.IsZero():
		return a.ago(&s.LastSuccess) + yes(s.LastError != "", ", since then: "+s.LastError)
	case s.LastError != "":
		return "never: " + s.LastError
	case s.EvidenceAgeSeconds != nil && *s.EvidenceAgeSeconds <= staleSync.Seconds():
		return "not by this node; the region heard " + ago(time.Duration(*s.EvidenceAgeSeconds*float64(time.Second)))
	}
	return "never"
}

func (a *App) fullest(list []regional.BudgetStatus) {
	var rows [][]any
	for _, b := range list {
		if b.Share > 0 && 5*(b.Spent+b.Reserved) > 4*b.Share {
			rows = append(rows, []any{b.Budget + yes(b.Instance != "", " ["+b.Instance+"]"), b.Share, b.Spent, b.Reserved, b.Spendable, b.Unit})
		}
	}
	if len(rows) > 0 {
		a.printf("\n")
		a.table([]string{"above 80 % of the share", "share", "spent", "reserved", "spendable", "unit"}, rows)
	}
}

func nodeProblems(s regional.NodeStatus) []coordinator.StatusProblem {
	list := []coordinator.StatusProblem{}
	add := func(severity, what, next string) {
		list = append(list, coordinator.StatusProblem{Severity: severity, What: what, Next: next})
	}
	switch {
	case s.Shadow && s.Stopped != "":
		add(coordinator.SeverityWarning, strings.TrimSpace(fmt.Sprintf("in shadow: nothing is decided, and everything is let through: %s %s", s.Stopped, s.StoppedDetail)),
			"look at the region's Postgres and at the node's log; until then nothing is charged")
	case s.Shadow && s.LastCommitError != "":
		add(coordinator.SeverityWarning, "in shadow: nothing is decided, and everything is let through: admissions fail to commit",
			"look at the region's Postgres and at the node's log; until then nothing is charged")
	case s.Shadow:
		add(coordinator.SeverityNote, "in shadow: this node refuses nobody, for no reason at all", "start it without --shadow before you rely on a limit")
	case s.Stopped != "":
		next := "look at the node's log and at the coordinator: `tranche status`"
		if s.Stopped == allocation.UnsafeSettings {
			next = "turn that setting on in the region's Postgres; it goes on by itself"
		}
		add(coordinator.SeverityCritical, strings.TrimSpace(fmt.Sprintf("the region admits nothing: %s %s", s.Stopped, s.StoppedDetail)), next)
	case !s.Ready:
		add(coordinator.SeverityCritical, "the node is not ready: "+strings.Join(s.Reasons, "; "), "look at the region's Postgres and at the node's log")
	}
	if s.Sync.TokenUnknown {
		add(coordinator.SeverityCritical, "the coordinator does not know this region's token: it may be of another deployment, or the token was renewed",
			"correct the node's --coordinator, or start it with a token that is known there: `tranche regions token "+s.Region+"`")
	}
	age := time.Duration(s.Sync.AgeSeconds * float64(time.Second))
	alone := true
	switch never := s.Sync.LastSuccess.IsZero(); {
	case age > staleSync:
		add(coordinator.SeverityWarning, "the coordinator was last heard "+ago(age), "the region goes on alone from what it holds; look at the link and at the coordinator")
	case never && s.Sync.EvidenceAgeSeconds == nil:
		add(coordinator.SeverityWarning, "no coordinator was heard of yet", "start it with `tranche coordinator`, or correct the node's --coordinator or --region-token-file")
	case never && s.Sync.LastError != "":
		add(coordinator.SeverityWarning, "this node has not reached a coordinator since it started",
			"the region goes on alone from what it holds; look at the link, at the coordinator and at the node's --coordinator and --region-token-file")
	default:
		alone = false
	}
	if s.Runway != nil && s.Runway.Seconds == 0 {
		severity, next := coordinator.SeverityWarning, "its terms may be being opened: look again in some seconds, then at `tranche status` and `tranche budgets get "+s.Runway.Budget+"`"
		if alone {
			severity, next = coordinator.SeverityCritical, "bring back the coordinator or the link to it: only it opens terms"
		}
		add(severity, fmt.Sprintf("budget %s is refused here (no_allocation): no opened term of it holds now; others may be, too", s.Runway.Budget), next)
	}
	return list
}
