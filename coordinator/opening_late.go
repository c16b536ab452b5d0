package coordinator

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tranche/allocation"
)

const (
	// lateAfter is how many seconds a term may be due before it is said to be late: one that can be opened is within a second or
	// two, and a leader that is gone is replaced within twelve.
	lateAfter = allocation.Instant(20)
	// yieldAfter is how long a leader goes on that cannot do all of the work, before it leaves the work to another replica.
	yieldAfter = 30 * time.Second
)

// LateOpening is a budget of which a term is due, and nobody opens it.
type LateOpening struct {
	Budget  string             `json:"budget"`
	Due     allocation.Instant `json:"due,omitempty"`  // 0: since when nobody knows
	Through allocation.Instant `json:"opened_through"` // as far as regions can spend it
	Why     string             `json:"why,omitempty"`  // as far as this replica knows

	zone string // that this replica's time-zone data does not know
}

// lateOpenings are all of them, by name. The caller holds the lock.
//
// That nothing is opened while all is frozen, or after the only period is over, is no delay. A clock that is wrong knows of none.
func (s *Service) lateOpenings() (list []LateOpening) {
	if s.clockNoted() != clockGood {
		return nil
	}
	now := s.instant()
	for _, name := range s.state.openings.due(int64(now-lateAfter), cmp.Compare) {
		d := s.state.budgets[name].value
		at, _ := opensAt(d)
		late := LateOpening{Budget: name, Due: max(at, 0), Through: d.OpenedThrough}
		// No term was due before the budget was as it is now, unless that was said by a clock that was ahead.
		if changed := allocation.At(d.Changed); changed <= now {
			late.Due = max(late.Due, changed)
		}
		if late.Due > now-lateAfter {
			continue
		}
		if s.whyLate(&late, d, now) {
			list = append(list, late)
		}
	}
	return list
}

// whyLate says whether a term that is due could be opened at all, and if not by this replica, why.
func (s *Service) whyLate(late *LateOpening, d BudgetDocument, now allocation.Instant) bool {
	periods, ok := s.nextTerm(d, now)
	if ok {
		_, err := allocation.OpenUnproven(firstOrLater(d), d.Version, periods, s.state.termMembers(d.Budget), s.state.descent(), allocation.Generation{})
		if err != nil {
			late.Why = err.Error()
		}
		return !s.state.descent().Frozen(periods.Start())
	}
	w := d.Budget.Window
	if _, known := w.With(s.config.Zones).PeriodAt(now); known || w.Calendar == "" {
		return false
	}
	late.zone = cmp.Or(w.Zone, "UTC")
	late.Why = "the time-zone data of this coordinator's machine does not know " + late.zone
	return true
}

// fillLate names the budgets whose terms are late. The caller holds the lock.
func (s *Service) fillLate(st *Status, add addStatus) {
	st.Late = s.lateOpenings()
	for _, l := range st.Late[:min(maxListed, len(st.Late))] {
		severity, left := SeverityWarning, fmt.Sprintf("regions can spend what they hold until %s", l.Through)
		if l.Through <= s.instant() {
			severity, left = SeverityCritical, "regions refuse it with no_allocation"
		}
		why, next := "", "ask the coordinator that leads: its status and its log say why"
		switch {
		case l.zone != "":
			why, next = ": "+l.Why, fmt.Sprintf("bring the time-zone data there up to date (some systems keep old names in a package of their own), or give the budget another zone; a coordinator that knows %s opens the term", l.zone)
		case l.Why != "":
			why, next = ": "+l.Why, "look at the budget: `tranche budgets get "+l.Budget+"`"
		}
		since := ""
		if l.Due > 0 {
			since = fmt.Sprintf(" since %s", l.Due)
		}
		add(severity, next, "budget %s: a term is due%s and is not opened%s; %s", l.Budget, since, why, left)
	}
	if n := len(st.Late) - maxListed; n > 0 {
		add(SeverityWarning, "as for those", "terms of %d more budgets are due and not opened", n)
		st.Late = st.Late[:maxListed]
	}
}

// countLate is how many there are.
func (s *Service) countLate() int { return len(s.lateOpenings()) }

// observeLate logs which terms are late, and that none is any more.
func (s *Service) observeLate(o *observer) {
	s.state.mu.Lock()
	list := s.lateOpenings()
	s.state.mu.Unlock()
	var names []string
	why := ""
	for _, l := range list {
		names, why = append(names, l.Budget), cmp.Or(why, l.Why)
	}
	text := strings.Join(names, ", ")
	if len(names) > maxListed {
		text = fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	switch changed := o.late != text+why; {
	case changed && text == "":
		s.log.Info("all terms that are due are opened again")
	case changed:
		s.log.Warn("terms are due and not opened", "budgets", text, "why", cmp.Or(why, "the coordinator that leads does not open them: ask it"))
	}
	o.late = text + why
}

// followClock lets a replica that does not lead know whether its clock is right: its status says so, and one that left the work to
// another has to see when it is again. That no region called lately only keeps a leader from its work.
func (s *Service) followClock() {
	s.mu.Lock()
	leading := s.leading
	s.mu.Unlock()
	if leading {
		return
	}
	if _, known, _ := s.medianSkew(); known {
		s.trustClock()
		return
	}
	s.mu.Lock()
	s.trust, s.clockWord = clockGood, ""
	s.mu.Unlock()
}

// unfit says why this replica cannot do all of the background work, while another one may; empty: it can. The words are the same
// for as long as the cause is.
func (s *Service) unfit() string {
	if s.clockNoted() == clockWrong {
		return "this coordinator's clock lies far from the median of the regions' clocks"
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for _, l := range s.lateOpenings() {
		if l.zone != "" {
			return "budget " + l.Budget + ": " + l.Why
		}
	}
	return ""
}

// fitness is how long a leader has been unfit.
type fitness struct {
	since time.Time // zero: it is fit
}

// judge returns an error once the leader has been unfit for so long that another replica should lead. Where there is none, or none
// that is fit, it leads again a second later.
func (f *fitness) judge(why string, now time.Time) error {
	switch {
	case why == "":
		f.since = time.Time{}
	case f.since.IsZero() || now.Before(f.since): // a clock that was wrong may be set back
		f.since = now
	case now.Sub(f.since) >= yieldAfter:
		return fmt.Errorf("it is left to another coordinator, if there is one: %s", why)
	}
	return nil
}
