package allocation

import (
	"fmt"
	"maps"
	"math"
)

// lines finds the usage rows of an admission; false if one of them is not locked.
func (l *Locked) lines(a *Admission) bool {
	for _, line := range a.charged() {
		if l.Usage[line.UsageKey] == nil {
			return false
		}
	}
	return true
}

// change marks an admission and its usage rows as to be written.
func (l *Locked) change(a *Admission) {
	if !l.Inserted[a.IDKey] {
		l.Updated[a.IDKey] = true
	}
	for _, line := range a.charged() {
		l.ChangedUsage[line.UsageKey] = true
	}
}

// shut says why no new charges may be made in the period of a line, or nothing: after it is closed or sealed only what
// was reserved may become spent (invariant 9).
func (l *Locked) shut(line AdmissionLine) Reason {
	switch {
	case l.Stopped != "":
		return l.Stopped
	case l.Usage[line.UsageKey].Sealed:
		return Sealed
	case line.Until <= l.ClosedBefore:
		return ClockBehind
	}
	return ""
}

// settle records the true costs of an admission, always: charged as far as they fit, the rest as overdraft.
func (l *Locked) settle(r Request, a *Admission) Outcome {
	switch {
	case a == nil:
		return l.refused(r, AdmissionIDUnknown, "no admission of this id is known in this region, or its retention is over")
	case len(a.Lines) == 0:
		return l.refused(r, AdmissionIDReleased, "the id was released before it ever reserved anything")
	}
	costs, unit := a.trueCosts(r)
	if unit != "" {
		return l.refused(r, CostUnknown, "give the true cost in costs."+unit)
	}
	if a.Settled != nil || a.State == StateSettled || a.State == StateSpent {
		if !maps.Equal(costs, a.finalCosts()) {
			return l.refused(r, AdmissionIDConflict, "this id was charged other costs before; what it was charged is final")
		}
		return Outcome{Decision: l.answer(r, a, true)}
	}
	if !l.lines(a) {
		return Outcome{Again: true}
	}
	for _, line := range a.charged() {
		l.settleLine(a, line, costs[line.Unit])
	}
	a.State, a.Settled = StateSettled, costs
	l.change(a)
	return Outcome{Decision: l.told(r, a)}
}

// settleLine turns what a line holds into what it cost. Spent only rises: what lapsed as spent stays spent, and only the
// part of the cost above it is new.
func (l *Locked) settleLine(a *Admission, line *AdmissionLine, cost int64) {
	u := l.Usage[line.UsageKey]
	u.Reserved -= line.Held
	fits := line.Held
	if l.shut(*line) == "" {
		fits = max(fits, u.SpendableBy(a.First.Priority, l.Catalogue.limit(line.UsageKey)))
	}
	more := max(0, cost-line.Spent)
	charge := min(more, fits)
	u.Spent += charge
	u.Overdraft = saturated(u.Overdraft, more-charge)
	line.Held, line.Spent, line.Overdraft = 0, line.Spent+charge, line.Overdraft+more-charge
	u.giveBack()
}

// saturated adds two counters that are not negative; at the end of int64 it stays there.
func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// trueCosts are the costs to settle by unit, for the units that the admission was charged in. The second result names
// one that is missing. Requests default to what was asked.
func (a *Admission) trueCosts(r Request) (map[string]int64, string) {
	costs := map[string]int64{}
	for _, line := range a.charged() {
		n, ok := r.Costs[line.Unit]
		if !ok && line.Unit != "requests" {
			return nil, line.Unit
		}
		if !ok {
			n = a.estimate(*line)
		}
		costs[line.Unit] = max(costs[line.Unit], n)
	}
	return costs, ""
}

// estimate is what a line stands for when its true cost is not told: what was told before, else what it holds.
func (a *Admission) estimate(line AdmissionLine) int64 {
	if n, told := a.Settled[line.Unit]; told {
		return n
	}
	if n := line.Held + line.Spent; n > 0 && line.Enforcement != Meter { // which may hold less than was asked
		return n
	}
	return line.Requested
}

// finalCosts are the costs that were told, or charged at once.
func (a *Admission) finalCosts() map[string]int64 {
	if a.Settled != nil {
		return a.Settled
	}
	costs := map[string]int64{}
	for _, line := range a.charged() {
		costs[line.Unit] = line.Spent + line.Overdraft
	}
	return costs
}

// release gives back what an admission holds. One of an id that is not known is remembered, so that a reservation that it
// overtook is refused when it comes.
func (l *Locked) release(r Request, a *Admission) Outcome {
	switch {
	case a == nil:
		a = &Admission{IDKey: r.Key, Op: Release, State: StateReleased, At: l.Now, First: l.evidence(r)}
		l.IDs[r.Key] = a
		l.Inserted[r.Key] = true
		d := l.answer(r, a, false)
		d.Detail = "no reservation of this id is known; if it comes later, it will be refused"
		return Outcome{Decision: d}
	case a.State == StateReleased || a.State == StateLapsedReleased:
		return Outcome{Decision: l.answer(r, a, true)}
	case a.State != StateReserved:
		return l.final(r, a)
	case !l.lines(a):
		return Outcome{Again: true}
	}
	l.giveUp(a, StateReleased)
	return Outcome{Decision: l.told(r, a)}
}

// giveUp ends a reservation and charges nothing.
func (l *Locked) giveUp(a *Admission, s State) {
	for _, line := range a.charged() {
		u := l.Usage[line.UsageKey]
		u.Reserved -= line.Held
		line.Held = 0
		u.giveBack()
	}
	a.State = s
	l.change(a)
}

// extend gives a reservation more time, up to its budgets' longest, and more units if all of them can be afforded. Costs
// are the new totals, so that a repeated call changes nothing more.
func (l *Locked) extend(r Request, a *Admission) Outcome {
	if a != nil && a.State == StateReserved && a.ExpiresAt <= l.Now {
		// Its time is over, though nobody has swept it yet: it cannot come back to life.
		if o := l.lapse(r, a); o.Again {
			return o
		}
	}
	switch {
	case a == nil:
		return l.refused(r, AdmissionIDUnknown, "no admission of this id is known in this region, or its retention is over")
	case a.State == StateReleased || a.State == StateLapsedReleased:
		return l.refused(r, AdmissionIDReleased, "its reservation was released or has lapsed")
	case a.State != StateReserved:
		return l.final(r, a)
	case !l.lines(a):
		return Outcome{Again: true}
	}
	if b, hit := l.Catalogue.blockOnMore(r, a, l.now()); hit {
		d := l.refusal(r, Blocked, b.words())
		d.State, d.Expires = a.State, a.ExpiresAt
		return Outcome{Decision: d}
	}
	if why := l.keyTooOld(r); why != "" {
		d := l.refusal(r, EvidenceStale, why)
		d.State, d.Expires = a.State, a.ExpiresAt
		return Outcome{Decision: d}
	}
	if d, ok := l.affords(r, a); !ok {
		return Outcome{Decision: d}
	}
	for _, line := range a.charged() {
		u, more := l.Usage[line.UsageKey], r.Costs[line.Unit]-line.Held
		if line.Enforcement != "" { // nobody was refused for it: what does not fit waits for the settlement
			more = l.roomFor(a, *line, more)
		}
		if more > 0 {
			u.Reserved += more
			line.Held += more
		}
	}
	if r.Lifetime > 0 {
		a.ExpiresAt = max(a.ExpiresAt, min(l.Now+int64(r.Lifetime)*1_000_000, a.Latest))
	}
	l.change(a)
	return Outcome{Decision: l.told(r, a)}
}

// roomFor is how much more a budget that is not enforced holds for a reservation: in shadow all or nothing.
func (l *Locked) roomFor(a *Admission, line AdmissionLine, more int64) int64 {
	room := l.Usage[line.UsageKey].SpendableBy(a.First.Priority, l.Catalogue.limit(line.UsageKey))
	if l.shut(line) != "" || line.Enforcement == Shadow && more > room {
		return 0
	}
	return min(more, room)
}

// affords says whether every line of a reservation can grow as asked; if not, the refusal of the first that cannot.
func (l *Locked) affords(r Request, a *Admission) (Decision, bool) {
	for _, line := range a.charged() {
		u, limit := l.Usage[line.UsageKey], l.Catalogue.limit(line.UsageKey)
		more := r.Costs[line.Unit] - line.Held
		reason := l.shut(*line)
		if more <= 0 || line.Enforcement != "" {
			continue
		}
		stale := l.refusesOld(line.UsageKey.Budget)
		if reason == "" && !stale && more <= u.SpendableBy(a.First.Priority, limit) {
			continue
		}
		asked := Line{UsageKey: line.UsageKey, Cost: more}
		switch {
		case reason == "" && stale:
			reason = EvidenceStale
		case reason == "":
			reason = l.lacks(u, asked, limit)
		}
		d := l.refusal(r, reason, fmt.Sprintf("%s cannot take %d %s more; the reservation stands as it was", asked.Key(), more, line.Unit))
		d.Blames, d.State, d.Expires = asked.Key(), a.State, a.ExpiresAt
		d.Retry = retryAfter(reason, resets(line.Until, l.now()))
		return d, false
	}
	return Decision{}, true
}

// lapse ends a reservation whose time is over: each budget's on_lapse says whether it counts as spent.
func (l *Locked) lapse(r Request, a *Admission) Outcome {
	switch {
	case a == nil || a.State != StateReserved || a.ExpiresAt > l.Now:
		return Outcome{Decision: Decision{Reason: Allow, Op: Lapse, Key: r.Key, Region: l.Catalogue.Region, At: l.Now}}
	case !l.lines(a):
		return Outcome{Again: true}
	}
	state := StateLapsedReleased
	for _, line := range a.charged() {
		u := l.Usage[line.UsageKey]
		u.Reserved -= line.Held
		if line.OnLapse != OnLapseRelease {
			u.Spent += line.Held
			line.Spent += line.Held
			state = StateLapsedSpent
		}
		line.Held = 0
		u.giveBack()
	}
	a.State = state
	l.change(a)
	return Outcome{Decision: l.told(r, a)}
}

// told is the outcome of an operation just made: dated now, and on today's evidence.
func (l *Locked) told(r Request, a *Admission) Decision {
	d := l.answer(r, a, false)
	d.At, d.Evidence = l.Now, l.evidence(r)
	d.Evidence.Capability = a.First.Capability
	d.Evidence.Priority = a.First.Priority
	for i := range d.Budgets {
		b := &d.Budgets[i]
		if u := l.Usage[b.UsageKey]; u != nil {
			b.Remaining, b.Share = u.SpendableBy(a.First.Priority, l.Catalogue.limit(b.UsageKey)), u.Granted-u.Returned
			b.Protected = u.Protected
		}
	}
	return d
}

func (l *Locked) final(r Request, a *Admission) Outcome {
	d := l.refusal(r, AdmissionIDSettled, "what this id was charged is final")
	d.State = a.State
	return Outcome{Decision: d}
}
