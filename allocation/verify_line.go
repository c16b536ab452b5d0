package allocation

import (
	"fmt"
	"slices"
)

// ledger makes the lines of one term and judges them.
func (v *verifier) ledger(l *Ledger) {
	ref := ShareRef{Budget: l.Budget, Term: l.Periods.Start()}
	if err := l.Conserved(); err != nil {
		v.broken(Violation{Rule: RuleLedger, Budget: l.Budget, Period: ref.Term, Detail: err.Error()})
	}
	if len(l.Entries) == 0 || l.Entries[0].From != 0 {
		return // nothing can be looked up in it; said above
	}
	early := v.earlier[ref]
	cuts := v.cuts(l, early, ref)
	for n, from := range cuts[:len(cuts)-1] {
		at := where{ledger: l, early: early, ref: ref, from: from, until: cuts[n+1]}
		at.period = l.Periods.At(from).Start
		if !l.Template {
			v.line(at, "")
			continue
		}
		seen := map[string]bool{}
		for _, u := range v.usage[ref] {
			if u.Period == at.period && !seen[u.Instance] {
				seen[u.Instance] = true
				v.line(at, u.Instance)
			}
		}
	}
}

// cuts are the indexes at which something changes, from 0 to the number of periods: a used period stands alone.
func (v *verifier) cuts(l, early *Ledger, ref ShareRef) []int {
	cuts := []int{0, l.Periods.Len()}
	add := func(i int) {
		if i > 0 && i < l.Periods.Len() {
			cuts = append(cuts, i)
		}
	}
	at := func(start Instant) {
		if i, ok := l.Periods.Index(start); ok {
			add(i)
		}
	}
	for _, e := range l.Entries {
		add(e.From)
	}
	if early != nil {
		for _, e := range early.Entries {
			add(e.From)
		}
	}
	for _, s := range v.shares[ref] {
		for _, e := range s.Entries {
			at(e.From)
			at(e.Until)
		}
	}
	for _, u := range v.usage[ref] {
		at(u.Period)
		at(u.Until)
	}
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

// where is a run of periods of one term.
type where struct {
	ledger, early *Ledger // early is nil for a term that was opened since
	ref           ShareRef
	from, until   int
	period        Instant
}

func (v *verifier) line(at where, instance string) {
	e := at.ledger.EntryAt(at.from)
	line := AccountLine{
		Budget: at.ledger.Budget, Instance: instance, Unit: at.ledger.Unit, Period: at.period,
		Until: at.ledger.Periods.At(at.until - 1).End, Periods: at.until - at.from, Generation: at.ledger.Generation,
		Limit: e.Limit, Highest: e.Highest, Moving: at.early == nil || at.early.Generation != at.ledger.Generation,
	}
	home, homed := at.home(instance)
	held, elsewhere := e.OpeningSpent, int64(0)
	line.Spent, line.OpeningSpent = e.OpeningSpent, e.OpeningSpent
	for _, p := range v.parts(at, instance, e) {
		v.judge(at, &line, p)
		if homed && p.Region != home {
			if p.Spent+p.Reserved > 0 {
				v.broken(line.at(RuleHome, p.Region, fmt.Sprintf("%d spent or reserved, and this instance is at home in %q", p.Spent+p.Reserved, home)))
			}
			elsewhere += p.Spent + p.Reserved
			continue // its grant is of other instances
		}
		line.count(p)
		held += p.LedgerGranted - p.LedgerReturned
	}
	line.Unallocated, line.Overcommitted = max(0, e.Limit-held), max(0, held-e.Limit)
	if used := line.Spent + line.Reserved + elsewhere; used > line.Highest {
		v.broken(line.at(RuleCap, "", fmt.Sprintf("%d %s are spent or reserved, and the limit was never above %d", used, line.Unit, line.Highest)))
	}
	sum := line.Spent + line.Reserved + line.Spendable + line.Stranded + line.Unallocated + line.InTransit
	if sum != line.Limit+line.Overcommitted {
		v.broken(line.at(RuleConservation, "", fmt.Sprintf("limit %d + overcommitted %d, but the classes add up to %d", line.Limit, line.Overcommitted, sum)))
	}
	v.report.Lines = append(v.report.Lines, line)
}

// home is the one region of an instance, where each has one.
func (at where) home(instance string) (string, bool) {
	if !at.ledger.perInstanceHome() {
		return "", false
	}
	b := Budget{Name: at.ledger.Budget, Allocation: at.ledger.Policy}
	region, _ := b.Home(instance, nil, at.ledger.Regions)
	return region, true
}

// count adds a part to the classes.
func (l *AccountLine) count(p AccountPart) {
	l.Parts = append(l.Parts, p)
	ledger := p.LedgerGranted - p.LedgerReturned
	if !p.Read {
		l.Stranded += ledger
		return
	}
	l.Spent += p.Spent
	l.Reserved += p.Reserved
	l.Overdraft += p.Overdraft
	l.Spendable += p.Granted - p.Returned - p.Spent - p.Reserved
	l.InTransit += ledger - (p.Granted - p.Returned)
}

func (l *AccountLine) at(rule, region, detail string) Violation {
	return Violation{Rule: rule, Budget: l.Budget, Instance: l.Instance, Period: l.Period, Region: region, Detail: detail}
}

// parts gathers what the ledger and the owners say of each incarnation and class in one period.
func (v *verifier) parts(at where, instance string, e Entry) []AccountPart {
	var parts []AccountPart
	find := func(h Holder, c Class) *AccountPart {
		for i := range parts {
			if parts[i].Holder == h && parts[i].Class == c {
				return &parts[i]
			}
		}
		o := v.owners[h.Region]
		parts = append(parts, AccountPart{Holder: h, Class: c, Read: o != nil && o.Incarnation == h.Incarnation})
		return &parts[len(parts)-1]
	}
	for _, a := range e.Allocations {
		p := find(a.Holder, a.Class)
		p.LedgerGranted, p.LedgerReturned = a.Granted, a.Returned
		if !p.Read && a.Held() > 0 {
			v.unread[a.Region] = true
		}
	}
	for _, s := range v.shares[at.ref] {
		for _, g := range s.Entries {
			if g.From <= at.period && at.period < g.Until {
				p := find(s.Holder, g.Class)
				p.Granted, p.Returned = g.Granted, g.Returned
			}
		}
	}
	for _, u := range v.usage[at.ref] {
		if u.Period == at.period && u.Instance == instance {
			p := find(u.Holder, u.Class)
			// The row is what decisions read; it was made from the share and goes its own way since.
			p.Granted, p.Returned = u.Granted, u.Returned
			p.Spent, p.Reserved, p.Overdraft = u.Spent, u.Reserved, u.Overdraft
		}
	}
	return parts
}

// judge holds one owner's part against the ledger.
func (v *verifier) judge(at where, line *AccountLine, p AccountPart) {
	if !p.Read {
		return
	}
	if before := at.returnedBefore(p); before > p.Returned {
		v.broken(line.at(RuleGiverFirst, p.Region, fmt.Sprintf("the ledger counted %d returned, the owner returned %d", before, p.Returned)))
	}
	if p.Granted > p.LedgerGranted {
		v.broken(line.at(RuleGranted, p.Region, fmt.Sprintf("the owner holds %d granted, the ledger granted %d", p.Granted, p.LedgerGranted)))
	}
	if p.Spent < 0 || p.Reserved < 0 || p.Returned < 0 || p.Spent+p.Reserved > p.Granted-p.Returned {
		v.broken(line.at(RuleShare, p.Region, fmt.Sprintf("spent %d + reserved %d, of granted %d − returned %d", p.Spent, p.Reserved, p.Granted, p.Returned)))
	}
}

// returnedBefore is what the earlier reading counts as returned.
func (at where) returnedBefore(p AccountPart) int64 {
	if at.early == nil || at.ledger.Template {
		return 0
	}
	i, ok := at.early.Periods.Index(at.period)
	if !ok || len(at.early.Entries) == 0 || at.early.Entries[0].From != 0 {
		return 0
	}
	e := at.early.EntryAt(i)
	if a := e.find(p.Holder, p.Class); a != nil {
		return a.Returned
	}
	return 0
}
