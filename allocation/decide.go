package allocation

import (
	"cmp"
	"fmt"
	"slices"
)

// Locked is the state of an owner that one transaction has locked or read after its locks, on which a batch of requests is
// decided in order of arrival. Decide changes it, and remembers what is to be written; nothing counts before the commit.
//
// What follows from the kind of each field: usage rows are locked, so nobody else changes them until the commit; ids were
// read by a statement of its own after the locks; the clock was read after both (invariant 10).
type Locked struct {
	Catalogue    *Catalogue
	Now          int64 // Unix microseconds
	ClosedBefore Instant
	Stopped      Reason // why the owner admits nothing, or empty
	Incarnation  string
	Revision     int64 // of the ledger, as last heard
	ObservedAt   int64 // when the coordinator read it, Unix microseconds by this owner's clock; 0: never
	Node         string

	Usage     map[UsageKey]*Usage  // the locked rows
	Full      map[UsageKey]bool    // rows that could not be made: the template has its greatest number of instances
	None      map[UsageKey]bool    // rows that could not be made: no share of this owner holds their period
	IDs       map[IDKey]*Admission // the ids that are known, of all that were looked up
	LookedUp  func(IDKey) bool     // whether the id was looked up after the locks
	Elsewhere map[string]Elsewhere // by budget, where it is known for the running period

	// What is to be written.
	ChangedUsage map[UsageKey]bool
	Inserted     map[IDKey]bool
	Updated      map[IDKey]bool
}

// Outcome is what became of one request of a batch: a decision, or Again for one that needs other rows than those that
// are locked; it goes to the next batch, uncharged.
type Outcome struct {
	Again    bool
	Decision Decision
}

func (l *Locked) now() Instant { return Instant(floorDiv(l.Now, 1_000_000)) }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Decide decides one request, and enters it into the locked state. The order is that of the design: blocks, the caller's
// key and its scope (Catalogue.Bars), the owner's state,
// the id, what is wrong with the request, the age of evidence, the budgets by name, the counters.
//
// An admission id goes through these states. "Again" means: the same answer, nothing charged.
//
//	state            reserve/spend   settle                release             extend     time is over
//	(unknown)        admits or not   404                   released, remembered  404      –
//	spent            replay          same costs: again     409                 409        –
//	reserved         replay          settled               released            extended   lapsed_spent | lapsed_released
//	settled          replay          same costs: again     409                 409        –
//	released         409             settled, as it fits   again               409        –
//	lapsed_spent     replay          settled, above only   409                 409        –
//	lapsed_released  409             settled, as it fits   again               409        –
//
// A settle with other costs than the first is 422; one for an id that was released before it ever reserved is 409. A
// replay of another payload is 422. "As it fits": up to what is spendable now, the rest is overdraft. In a period that is
// closed or sealed, or while the owner is stopped, a settle charges at most what was held, and extend gives time only.
func (l *Locked) Decide(p Plan) Outcome {
	if reason, why := l.Catalogue.Bars(p.Request, l.now()); reason != "" {
		return l.refused(p.Request, reason, why)
	}
	if l.Stopped != "" && p.admits() {
		return l.refused(p.Request, l.Stopped, "")
	}
	if p.Op == Check {
		return l.admit(p)
	}
	if p.Key.ID == "" {
		return l.refused(p.Request, AdmissionIDMissing, "send an Admission-Id header")
	}
	if !l.LookedUp(p.Key) {
		return Outcome{Again: true}
	}
	a, known := l.IDs[p.Key]
	switch p.Op {
	case Settle:
		return l.settle(p.Request, a)
	case Release:
		return l.release(p.Request, a)
	case Extend:
		return l.extend(p.Request, a)
	case Lapse:
		return l.lapse(p.Request, a)
	case Spend, Reserve, Check:
	}
	if known {
		return l.replay(p.Request, a)
	}
	return l.admit(p)
}

func (r Request) admits() bool { return r.Op == Spend || r.Op == Reserve || r.Op == Check }

func (l *Locked) refused(r Request, reason Reason, detail string) Outcome {
	return Outcome{Decision: l.refusal(r, reason, detail)}
}

// replay answers a known id (invariant 6): what it was told first, and where it stands now.
func (l *Locked) replay(r Request, a *Admission) Outcome {
	released := a.State == StateReleased || a.State == StateLapsedReleased
	switch {
	case len(a.Lines) > 0 && a.Payload != r.PayloadHash():
		return l.refused(r, AdmissionIDConflict, "the id was used with other labels, units or another op; use a new id for a new request")
	case released:
		d := l.refusal(r, AdmissionIDReleased, "its reservation was released or has lapsed; a new attempt needs a new id")
		d.State = a.State
		return Outcome{Decision: d}
	}
	return Outcome{Decision: l.answer(r, a, true)}
}

// admit decides a request whose id is not known, and charges all of its budgets or none (invariant 7).
func (l *Locked) admit(p Plan) Outcome {
	if p.number != l.Catalogue.Number || l.past(p) {
		p = l.Catalogue.Plan(p.Request, l.now())
	}
	if p.Refusal != "" {
		d := l.refusal(p.Request, p.Refusal, p.Detail)
		d.Blames = p.Blames
		return Outcome{Decision: d}
	}
	if d, stop := l.unfit(p); stop {
		return Outcome{Decision: d}
	}
	for _, line := range p.Lines {
		if line.Problem == "" && l.Usage[line.UsageKey] == nil && !l.Full[line.UsageKey] && !l.None[line.UsageKey] {
			return Outcome{Again: true}
		}
	}
	d := Decision{
		Reason: Allow, Action: ActionPreferred, Op: p.Op, Key: p.Key, Region: l.Catalogue.Region, At: l.Now, Evidence: l.evidence(p.Request),
	}
	d.Evidence.Capability = p.labels[LabelCapability]
	d.Budgets = make([]BudgetDecision, 0, len(p.Lines))
	for _, line := range p.Lines {
		b := l.judge(p, line)
		l.note(p, line, &b, &d)
		d.Budgets = append(d.Budgets, b)
	}
	if d.Reason == Allow {
		l.climb(p, &d)
	}
	switch {
	case d.Reason != Allow:
		d.Would, d.WouldBlame = "", "" // it is refused anyway
	case p.Op != Check:
		l.charge(p, &d)
	}
	return Outcome{Decision: d}
}

// past says whether some period of the plan is not the one that the owner's clock names.
func (l *Locked) past(p Plan) bool {
	now := l.now()
	return slices.ContainsFunc(p.Lines, func(line Line) bool {
		return line.Until == 0 || now < line.Period || now >= line.Until // 0: no term held the plan's instant
	})
}

// unfit finds what is wrong with an admission before any counter is looked at, but after the id was.
func (l *Locked) unfit(p Plan) (Decision, bool) {
	for _, reason := range []Reason{AdmissionIDMissing, EvidenceStale} {
		for _, line := range p.Lines {
			if l.unfitFor(p, line) != reason || line.Budget.EnforcementOf(p.matched(), l.now()) != Enforce {
				continue
			}
			text := fmt.Sprintf("budget %s admits on evidence of at most %s", line.Key(), line.Budget.MaxEvidenceAge)
			if reason == AdmissionIDMissing {
				text = "budget " + line.Key() + " requires an Admission-Id header; without one a retry could be charged again"
			}
			d := l.refusal(p.Request, reason, text)
			d.Blames = line.Key()
			return d, true
		}
	}
	if why := l.keyTooOld(p.Request); why != "" {
		return l.refusal(p.Request, EvidenceStale, why), true
	}
	return Decision{}, false
}

// unfitFor is what one budget has against an admission before its counter is looked at, or empty.
func (l *Locked) unfitFor(p Plan, line Line) Reason {
	switch {
	case p.Generated && p.Op != Check && line.Budget.AdmissionID != AdmissionIDGenerated:
		return AdmissionIDMissing
	case line.Budget.OnStaleEvidence != OnStaleAdmit && l.old(line.Budget):
		return EvidenceStale
	}
	return ""
}

// Key is the budget's name, with its instance.
func (l Line) Key() string {
	if l.Instance == "" {
		return l.UsageKey.Budget
	}
	return l.UsageKey.Budget + " [" + l.Instance + "]"
}

// judge says whether one budget would admit its cost. It charges nothing.
func (l *Locked) judge(p Plan, line Line) BudgetDecision {
	limit, override := l.Catalogue.raised(line.UsageKey)
	b := BudgetDecision{
		UsageKey: line.UsageKey, Until: line.Until, Unit: line.Budget.Unit, Version: line.Version, Limit: limit,
		Requested: line.Cost, Reason: Allow, Override: override,
	}
	u := l.Usage[line.UsageKey]
	if u != nil {
		b.Generation, b.Share, b.Remaining = u.Generation, u.Granted-u.Returned, u.SpendableBy(p.priority(), limit)
		b.Protected, b.Stale = u.Protected, l.stale(line, u)
	}
	switch {
	case line.Problem != "":
		b.Reason = line.Problem
	case l.Full[line.UsageKey]:
		b.Reason = TooManyInstances
	case u == nil:
		b.Reason = NoAllocation
	case u.Sealed:
		b.Reason = Sealed
	case line.Until <= l.ClosedBefore:
		b.Reason = ClockBehind
	case line.Cost > limit && limit > 0:
		b.Reason = CostExceedsLimit
	case line.Cost > b.Remaining || limit == 0: // 0 refuses all, also what costs nothing (invariant 13)
		b.Reason = l.lacks(u, line, limit)
	}
	return b
}

// lacks says why a cost does not fit into what traffic of its priority may spend: the counters first, then what is protected.
func (l *Locked) lacks(u *Usage, line Line, limit int64) Reason {
	if limit > 0 && line.Cost <= u.Spendable(limit) {
		return OnlyProtectedLeft
	}
	return l.spentReason(u, line, limit)
}

// spentReason says why a share does not hold the cost: because this region's is spent, or provably the whole budget, or
// all that is left is out of reach. What is elsewhere is evidence, so it never admits anything. What is reserved may come
// back at any moment, so nobody is told to wait for the period's end because of it. What is kept may yet be spent, by a region
// that begins anew: so the budget is not spent, but nobody is told of it while something else would help.
func (l *Locked) spentReason(u *Usage, line Line, limit int64) Reason {
	if limit == 0 || line.Cost > limit-u.Spent {
		return CeilingReached
	}
	e, known := l.Elsewhere[line.UsageKey.Budget]
	returned := max(0, u.Returned-e.Returned) // the ledger has yet to hear of it: until then it is nowhere
	free := saturated(u.Spendable(limit), saturated(saturated(max(0, e.Unallocated-e.Kept), returned), e.Spendable))
	switch {
	case !known || e.Period != line.Period || e.Limit != limit || e.Generation != u.Generation || line.Cost <= free:
		return RegionShareSpent
	case line.Cost-free <= e.Stranded:
		return CapacityStranded
	case line.Cost-free <= saturated(saturated(e.Stranded, e.Kept), saturated(u.Reserved, e.Reserved)):
		return RegionShareSpent
	}
	return CeilingReached
}

// resets is the seconds until a period ends, at least 1; 0 if it never does.
func resets(until, now Instant) int64 {
	if until == Never || until == 0 {
		return 0
	}
	return max(1, int64(until-now))
}

func detail(b BudgetDecision, line Line) string {
	switch b.Reason {
	case RegionShareSpent:
		return fmt.Sprintf("this region's share of %s is %d %s in this period; %d can still be spent, and the request asks for %d", line.Key(), b.Share, b.Unit, b.Remaining, b.Requested)
	case OnlyProtectedLeft:
		return fmt.Sprintf("of this region's share of %s %d %s are protected, for essential traffic; beside them %d can still be spent, and the request asks for %d", line.Key(), b.Protected, b.Unit, b.Remaining, b.Requested)
	case CeilingReached, CapacityStranded:
		return fmt.Sprintf("%s allows %d %s in this period", line.Key(), b.Limit, b.Unit)
	case CostExceedsLimit:
		return fmt.Sprintf("%s allows %d %s in a whole period; the request asks for %d", line.Key(), b.Limit, b.Unit, b.Requested)
	case NotHome:
		if line.Home == "" {
			return line.Key() + " has no home: the label that names it names no region of the term"
		}
		return fmt.Sprintf("%s is at home in region %s", line.Key(), line.Home)
	case NoAllocation:
		return fmt.Sprintf("no opened term of %s holds this instant in this region", line.Key())
	case CostUnknown:
		return costUnknown(line.Budget)
	}
	return line.Key()
}

// charge spends or reserves the lines and makes the admission.
func (l *Locked) charge(p Plan, d *Decision) {
	a := &Admission{
		IDKey: p.Key, Payload: p.PayloadHash(), Op: p.Op, State: StateSpent, At: l.Now, First: d.Evidence, Ladder: d.Ladder,
		Lines: make([]AdmissionLine, 0, len(p.Lines)),
	}
	if p.Op == Reserve {
		a.State = StateReserved
		a.ExpiresAt, a.Latest = l.lifetime(p)
		d.Expires = a.ExpiresAt
	}
	d.State = a.State
	for i, line := range p.Lines {
		u, b := l.Usage[line.UsageKey], &d.Budgets[i]
		al := AdmissionLine{
			UsageKey: line.UsageKey, Until: line.Until, Unit: b.Unit, Version: b.Version, Generation: b.Generation,
			Limit: b.Limit, Requested: line.Cost, OnLapse: cmp.Or(line.Budget.OnLapse, OnLapseSpend),
			Enforcement: b.Enforcement, Would: uncharged(*b, d.Would), Override: b.Override,
		}
		if al.Uncharged() {
			al.Remaining, al.Share = b.Remaining, b.Share
			a.Lines = append(a.Lines, al)
			continue
		}
		fits := line.Cost
		if b.Enforcement == Meter {
			fits = min(fits, b.Remaining)
		}
		if p.Op == Reserve {
			al.Held, u.Reserved = fits, u.Reserved+fits
		} else {
			al.Spent, u.Spent = fits, u.Spent+fits
			al.Overdraft, u.Overdraft = line.Cost-fits, saturated(u.Overdraft, line.Cost-fits)
		}
		b.Charged, b.Overdraft, b.Remaining = fits, al.Overdraft, u.SpendableBy(p.priority(), b.Limit)
		al.Remaining, al.Share = b.Remaining, b.Share
		a.Lines = append(a.Lines, al)
		l.ChangedUsage[line.UsageKey] = true
	}
	l.IDs[p.Key] = a
	l.Inserted[p.Key] = true
}

// lifetime is when a reservation lapses, and until when it may be extended: the shortest of its budgets' longest.
func (l *Locked) lifetime(p Plan) (expires, latest int64) {
	longest := MaxReservation
	for _, line := range p.Lines {
		longest = min(longest, cmp.Or(line.Budget.LongestReservation, DefaultReservation))
	}
	life := longest
	if p.Lifetime > 0 {
		life = min(p.Lifetime, longest)
	}
	return l.Now + int64(life)*1_000_000, l.Now + int64(longest)*1_000_000
}
