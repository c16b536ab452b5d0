package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// Bounds of a status.
const (
	maxListed      = 20 // of each list in a status
	membersTimeout = 3 * time.Second
	lowRunway      = time.Hour
)

// Severities of what a status reports.
const (
	SeverityCritical = "critical" // the promise is broken, or nobody is served
	SeverityWarning  = "warning"  // somebody should look
	SeverityNote     = "note"
)

// Status is one look that says whether all is well.
type Status struct {
	At            time.Time          `json:"at"`
	Deployment    string             `json:"deployment"`
	History       allocation.History `json:"history"`
	Config        int64              `json:"config"`
	Version       string             `json:"version,omitempty"`
	Leading       bool               `json:"leading"`
	Revision      int64              `json:"revision"`
	EvidenceAge   int64              `json:"evidence_age_ms"`
	Regions       []RegionAnswer     `json:"regions"`
	Members       []Member           `json:"etcd_members"`
	Budgets       int                `json:"budgets"`
	Ledgers       int                `json:"ledgers"`
	Behind        int                `json:"ledgers_behind"`
	Conserved     bool               `json:"conserved"`
	Stranded      map[string]int64   `json:"stranded"` // of the running periods, by unit
	Above80       []BudgetUse        `json:"above_80_percent"`
	Overcommitted []BudgetUse        `json:"overcommitted"`
	Oldest        *OldestReservation `json:"oldest_reservation,omitempty"`
	Frozen        *FrozenStatus      `json:"frozen,omitempty"`        // nothing is granted or opened; absent: all is well
	LostChanges   []LostChange       `json:"lost_changes,omitempty"`  // of budgets, that regions know of and etcd lost
	Late          []LateOpening      `json:"late_openings,omitempty"` // terms that are due and not opened
	Problems      []StatusProblem    `json:"problems"`
}

// FrozenStatus says why nothing is granted or opened, and for whom it waits.
type FrozenStatus struct {
	Since   time.Time `json:"since"`
	Why     string    `json:"why"`
	Missing []string  `json:"missing"` // regions that have not stated what they hold
}

// fillFrozen tells of a freeze. The caller holds the lock.
func (s *Service) fillFrozen(st *Status, add addStatus) {
	if s.state.standing == nil {
		return
	}
	d := s.state.standing.value
	st.History = d.History
	if d.Freeze == nil {
		return
	}
	st.Frozen = &FrozenStatus{Since: d.Since, Why: d.Freeze.Why, Missing: s.state.awaited()}
	add(SeverityCritical, "bring these regions back; one that is not registered any more must be registered again; see 'etcd restored' in deploy/docs/failures.md",
		"nothing is granted and no term is opened since %s: %s; regions that have yet to state what they hold: %s",
		d.Since.Format(timeForm), d.Freeze.Why, cmp.Or(strings.Join(st.Frozen.Missing, ", "), "none"))
}

// BudgetUse is how far a budget is used in its running period, as stated.
type BudgetUse struct {
	Budget        string `json:"budget"`
	Unit          string `json:"unit"`
	Limit         int64  `json:"limit"`
	Spent         int64  `json:"spent"`
	Reserved      int64  `json:"reserved"`
	Overcommitted int64  `json:"overcommitted,omitempty"`
}

// OldestReservation is the one that has been open longest.
type OldestReservation struct {
	Region string    `json:"region"`
	Made   time.Time `json:"made"`
}

// StatusProblem is something to look at, and what to do.
type StatusProblem struct {
	Severity string `json:"severity"`
	What     string `json:"what"`
	Next     string `json:"next"`
}

// status looks at everything once. The etcd members are asked with a time limit of their own.
func (s *Service) status(ctx context.Context) (Status, error) {
	st := Status{At: s.now().UTC(), Version: s.config.Version, EvidenceAge: s.evidenceAge().Milliseconds(), Problems: []StatusProblem{}}
	add := func(severity, next, what string, args ...any) {
		st.Problems = append(st.Problems, StatusProblem{Severity: severity, What: fmt.Sprintf(what, args...), Next: next})
	}
	st.Regions = s.regionsList().Regions
	st.Stranded = map[string]int64{}
	report := s.stranded(StrandedFilter{})
	for unit, t := range report.Total {
		if t.Stranded > 0 {
			st.Stranded[unit] = t.Stranded
		}
	}
	s.fillStatus(&st, add)
	members, err := s.etcdMembers(ctx)
	if err != nil {
		add(SeverityCritical, "look at the etcd processes and the network to them", "the etcd members do not answer: %s", err.Error())
	}
	st.Members = members
	for _, m := range members {
		if !m.Healthy {
			add(SeverityWarning, "start it again, or replace it", "etcd member %s is not healthy: %s", memberText(m), m.Problem)
		}
	}
	if st.EvidenceAge > maxEvidenceAge.Milliseconds() {
		add(SeverityCritical, "look at the etcd members", "etcd was last read %s ago: nothing can be granted or changed", time.Duration(st.EvidenceAge)*time.Millisecond)
	}
	if !s.isTrusted() {
		add(SeverityCritical, "wait: it asks other coordinators, and begins a new history if none answers", "this coordinator makes sure that etcd did not go back; until then it grants and changes nothing")
	}
	s.mu.Lock()
	st.Leading = s.leading
	word := s.clockWord
	s.mu.Unlock()
	if word != "" {
		add(SeverityWarning, "look at the clocks (NTP) and at the links of the regions", "%s", word)
	}
	s.regionProblems(st.Regions, add)
	if len(st.Stranded) > 0 {
		for _, unit := range slices.Sorted(maps.Keys(st.Stranded)) {
			add(SeverityWarning, "`tranche stranded list` shows them; "+StrandedNext(report.Lines), "%d %s are stranded", st.Stranded[unit], unit)
		}
	}
	return st, nil
}

type addStatus func(severity, next, what string, args ...any)

// fillStatus gathers what stands in the picture.
func (s *Service) fillStatus(st *Status, add addStatus) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if d := s.state.deployment; d != nil {
		st.Deployment, st.History, st.Config = d.value.ID, d.value.History, d.value.Config
	}
	s.fillFrozen(st, add)
	s.fillLost(st, add)
	s.fillLate(st, add)
	st.Revision, st.Budgets, st.Ledgers = s.state.revision, s.state.liveBudgets(), len(s.state.ledgers)
	st.Behind, st.Conserved = s.state.countBehind(s.instant()), len(s.state.broken) == 0
	for i, ref := range sortedRefs(s.state.broken, nil) {
		if i < maxListed {
			add(SeverityCritical, "stop admitting for this budget and run `tranche verify`", "a ledger is not conserved: %s", s.state.broken[ref])
		}
	}
	for i, key := range slices.Sorted(maps.Keys(s.state.strange)) {
		if i < maxListed {
			add(SeverityCritical, "upgrade this coordinator", "%s is neither read nor written: %s", key, s.state.strange[key])
		}
	}
	if st.Behind > 0 {
		add(SeverityNote, "it goes on by itself", "ledgers that have yet to follow their budget or the regions: %d", st.Behind)
	}
	st.Above80, st.Overcommitted = s.uses()
	for _, u := range st.Overcommitted {
		add(SeverityNote, "it falls as regions return permits, and ends with the period", "%s is overcommitted by %d: its limit was lowered below what is out", u.Budget, u.Overcommitted)
	}
	for _, r := range st.Regions {
		if r.OldestReserved != nil && (st.Oldest == nil || r.OldestReserved.Before(st.Oldest.Made)) {
			st.Oldest = &OldestReservation{Region: r.Region, Made: *r.OldestReserved}
		}
	}
}

// useOf is how a period of a term is used, as last stated.
func (s *Service) useOf(l allocation.Ledger, i int) BudgetUse {
	e := l.EntryAt(i)
	u := BudgetUse{Budget: l.Budget, Unit: l.Unit, Limit: e.Limit, Overcommitted: l.Overcommitted(i), Spent: e.OpeningSpent}
	for _, h := range holders(l) {
		st, _ := s.lastStatement(h, refOf(l))
		r := l.RemainderAt(h, i, st, 0)
		u.Spent, u.Reserved = u.Spent+r.Spent, u.Reserved+r.Reserved
	}
	return u
}

// uses lists budgets of which more than 80 % is spent or reserved, and those that are overcommitted, the fullest first.
func (s *Service) uses() (above, over []BudgetUse) {
	now := s.instant()
	above, over = []BudgetUse{}, []BudgetUse{}
	for _, list := range s.state.terms {
		for _, l := range list {
			i, running := l.value.Periods.Find(now)
			if !running || l.value.Template {
				continue
			}
			u := s.useOf(l.value, i)
			if u.Overcommitted > 0 {
				over = append(over, u)
			}
			if u.Limit > 0 && float64(u.Spent+u.Reserved) > 0.8*float64(u.Limit) {
				above = append(above, u)
			}
		}
	}
	fullest := func(a, b BudgetUse) int {
		return cmp.Or(cmp.Compare(float64(b.Spent)/float64(max(1, b.Limit)), float64(a.Spent)/float64(max(1, a.Limit))), cmp.Compare(a.Budget, b.Budget))
	}
	slices.SortFunc(above, fullest)
	slices.SortFunc(over, func(a, b BudgetUse) int {
		return cmp.Or(cmp.Compare(b.Overcommitted, a.Overcommitted), cmp.Compare(a.Budget, b.Budget))
	})
	return above[:min(maxListed, len(above))], over[:min(maxListed, len(over))]
}

// memberText names a member. One that never started has no name in etcd, and one that none of the others knows has none here.
func memberText(m Member) string {
	if m.Name == "" || m.Name == m.Endpoint {
		return m.Endpoint
	}
	return m.Name + " at " + m.Endpoint
}

func (s *Service) etcdMembers(ctx context.Context) ([]Member, error) {
	ctx, cancel := s.runtime.WithTimeout(ctx, membersTimeout)
	defer cancel()
	return s.config.Store.Members(ctx)
}

// regionProblems says what is wrong with regions.
func (s *Service) regionProblems(regions []RegionAnswer, add addStatus) {
	if len(regions) == 0 {
		add(SeverityNote, "register one: `tranche regions register us-east`", "no region is registered")
	}
	for _, r := range regions {
		if r.Incarnation == "" && r.Sealing != "" {
			add(SeverityWarning, "if `tranche regions seal "+r.Region+"` was interrupted, run it again; a node that comes back begins anew",
				"the incarnation %s of region %s was ended, to be sealed", r.Sealing, r.Region)
			continue
		}
		if r.Incarnation == "" {
			add(SeverityNote, "start a node of it with its token", "region %s has not called yet", r.Region)
			continue
		}
		if r.Unannounced {
			add(SeverityWarning, "bring back one of the regions that were there before it, or remove those that are gone for good",
				"region %s is granted nothing before another region has said that it knows of it", r.Region)
		}
		if r.Handover != nil {
			add(SeverityWarning, "go on with it, or call it off: `tranche regions handover "+r.Region+"`", "%s", r.Handover.text(r.Region))
			continue
		}
		admissionProblems(r, add)
		for _, n := range r.Nodes {
			if n.Shadow {
				add(SeverityNote, "start it without --shadow before you rely on a limit", "node %s of region %s is in shadow: it refuses nobody, for no reason at all", n.Node, r.Region)
			}
		}
		if skew := time.Duration(r.SkewMillis) * time.Millisecond; skew.Abs() > maxClockSkew {
			add(SeverityWarning, "look at its database's clock (NTP)", "the clock of region %s lies %s from ours", r.Region, skew)
		}
	}
}

// admissionProblems says whether a region admits, and for how long. A silent one goes on alone, unless what was last heard
// of it says that it had stopped: then nobody is served there.
func admissionProblems(r RegionAnswer, add addStatus) {
	age := (time.Duration(r.ContactAgeMillis) * time.Millisecond).Round(time.Second)
	silent := ""
	if !r.InContact {
		silent = fmt.Sprintf("; it has not called for %s", age)
	}
	c := r.Contradiction
	switch {
	case c != nil && c.Other && r.InContact && r.Stopped == "":
		add(SeverityCritical, c.next(), "%s", c.text(r.Region)) // the recorded database calls, and admits
	case c != nil:
		next := c.next()
		switch {
		case c.Other && r.Stopped != "":
			next = "look at its nodes' logs; stop the nodes of the database that does not belong there"
		case c.Other:
			next = "stop the nodes of the database that does not belong there, and bring back those of the recorded one"
		}
		add(SeverityCritical, next, "region %s admits nothing: %s%s; %s", r.Region, cmp.Or(r.Stopped, string(allocation.HistoryLost)), silent, c.text(r.Region))
	case r.Stopped != "":
		add(SeverityCritical, "look at its nodes' logs", "region %s admits nothing: %s%s", r.Region, r.Stopped, silent)
	case !r.InContact:
		add(SeverityWarning, "look at its nodes and at the link; it goes on alone from what it holds", "region %s has not called for %s", r.Region, age)
		runwayProblem(r, add)
	}
}

// runwayProblem warns of a region that goes on alone, and cannot for long.
func runwayProblem(r RegionAnswer, add addStatus) {
	switch {
	case r.RunwaySeconds == nil || *r.RunwaySeconds >= int64(lowRunway.Seconds()):
	case *r.RunwaySeconds == 0:
		add(SeverityWarning, "only a coordinator that it reaches gives it the next term", "region %s refuses budget %s with no_allocation: it holds no running term of it; others may be, too", r.Region, r.RunwayBudget)
	default:
		add(SeverityWarning, "its budgets answer no_allocation when their terms are over", "region %s can go on alone for %s (%s ends first)",
			r.Region, time.Duration(*r.RunwaySeconds)*time.Second, r.RunwayBudget)
	}
}
