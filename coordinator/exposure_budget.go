package coordinator

import (
	"time"

	"tranche/allocation"
)

// exposedBudget is one budget; false if no request of the subject is charged to it.
func (s *Service) exposedBudget(x subject, name string, since allocation.Instant, at time.Time, view cutView) (ExposedBudget, bool) {
	doc := s.state.budgets[name].value
	b := doc.Budget.WithDefaults()
	some, every := x.meets(b.Match)
	if doc.Deleted || !some {
		return ExposedBudget{}, false
	}
	now := allocation.At(at)
	out := ExposedBudget{
		Budget: name, Unit: b.Unit, Template: b.IsTemplate(), Charged: SomeRequests, Limit: b.LimitOrZero(),
		Enforced: b.EnforcementOf(allocation.Request{}, now) == allocation.Enforce,
		Now:      Figure{0, FigureExact}, Ahead: Figure{0, FigureExact}, AfterCut: Figure{0, FigureExact}, AfterCutAhead: Figure{0, FigureExact},
		Regions: []ExposedRegion{},
	}
	// A subject that fixes all labels of a template has one instance of it.
	one := out.Template
	for _, label := range b.TemplateLabels() {
		one = one && (label == askTenant && x.Tenant != "" || label == askCapability && len(x.Capabilities) == 1)
	}
	if every && (!out.Template || one) {
		out.Charged = EveryRequest
	}
	if s.displaced(x, name) {
		out.Charged = SomeRequests // another budget is charged in its place, at least for some
	}
	from := s.spentFrom(name, since, now)
	out.SpentFrom = from
	lines := s.linesOf(name, at, holders)
	for i := range lines {
		r := s.exposedRegion(lines[i], one, view.enforces)
		r.Spent = s.spentSince(name, lines[i], from)
		out.add(r)
		if lines[i].Period != (allocation.Period{}) {
			out.Period = &lines[i].Period
		}
		if a := lines[i].Ahead; a != nil && (out.Until == nil || *out.Until < a.Until) {
			out.Until = &a.Until
		}
	}
	out.Spent = out.spent(since, from)
	s.addUnallocated(&out, one, view.waiting, now)
	return out, true
}

// displaced says whether another enforced budget stands instead of this one for requests of the subject.
func (s *Service) displaced(x subject, name string) bool {
	for _, other := range s.state.names {
		b := s.state.budgets[other].value
		if b.Deleted || b.Budget.InsteadOf != name {
			continue
		}
		if some, _ := x.meets(b.Budget.Match); some {
			return true
		}
	}
	return false
}

// exposedRegion is what one incarnation holds.
func (s *Service) exposedRegion(line StrandedLine, one bool, enforces map[string]bool) ExposedRegion {
	held, ahead := allocation.SumUp(line.Exposed, line.Unseen), int64(0)
	if line.Ahead != nil {
		ahead = allocation.SumUp(line.Ahead.Exposed, line.Ahead.Unseen)
	}
	reserved := line.Reserved
	if one { // granted and returned are per instance; how much of it this one spent is not stated
		held = line.Granted - line.Returned
		reserved = min(reserved, held)
		if line.Ahead != nil {
			ahead = min(ahead, multiplied(held, line.Ahead.Periods))
		}
	}
	r := ExposedRegion{
		Region: line.Region, Incarnation: line.Incarnation, Cause: line.Cause, Reserved: reserved, StatedAt: line.StatedAt,
		Now: atMost(held), Ahead: atMost(ahead), AfterCut: atMost(held), AfterAhead: atMost(ahead),
	}
	if current, ok := s.state.currentOf(line.Region); ok && current.Incarnation == line.Incarnation && enforces[line.Region] {
		r.AfterAhead = Figure{0, FigureExact}
		if reserved == 0 { // else all of it: a settlement may cost more than its reservation, and is charged as far as it fits
			r.AfterCut = Figure{0, FigureExact}
		}
	}
	return r
}

// multiplied is n periods of as many permits, at most the largest int64.
func multiplied(permits int64, n int) (sum int64) {
	if permits > 0 && int64(n) > (1<<63-1)/permits {
		return 1<<63 - 1
	}
	return permits * int64(n)
}

func (b *ExposedBudget) add(r ExposedRegion) {
	b.Regions = append(b.Regions, r)
	b.Now, b.Ahead = b.Now.sum(r.Now), b.Ahead.sum(r.Ahead)
	b.AfterCut, b.AfterCutAhead = b.AfterCut.sum(r.AfterCut), b.AfterCutAhead.sum(r.AfterAhead)
}

// addUnallocated adds what the ledgers have not given to anybody yet: a region in contact may be granted it.
func (s *Service) addUnallocated(b *ExposedBudget, one, waiting bool, now allocation.Instant) {
	opened := s.state.opened(b.Budget, now)
	if len(opened) == 0 {
		b.Now, b.Ahead = Figure{0, FigureUnknown}, Figure{0, FigureUnknown} // no term is open: a term may be opened any time
		return
	}
	if b.Template && !one {
		return // its instances may still come: they are in what the regions hold
	}
	give := func(to, after *Figure, units int64) {
		*to = to.sum(atMost(units))
		if waiting && units > 0 {
			*after = after.sum(atMost(units))
		}
	}
	for _, l := range opened {
		ahead := 0
		if i, running := l.value.Periods.Find(now); running {
			give(&b.Now, &b.AfterCut, l.value.Unallocated(i))
			ahead = i + 1
		}
		for n, e := range l.value.Entries {
			end := l.value.Periods.Len()
			if n+1 < len(l.value.Entries) {
				end = l.value.Entries[n+1].From
			}
			if from := max(e.From, ahead); from < end {
				give(&b.Ahead, &b.AfterCutAhead, multiplied(l.value.Unallocated(from), end-from))
			}
		}
		if end := l.value.Periods.End(); b.Until == nil || *b.Until < end {
			b.Until = &end
		}
	}
}

// spentFrom is the start of the first period that is known and ends after an instant, or of the running one without an instant.
func (s *Service) spentFrom(name string, since, now allocation.Instant) *allocation.Instant {
	if since == 0 {
		since = now
	}
	for _, l := range s.state.terms[name] {
		p := l.value.Periods
		if p.End() <= since {
			continue
		}
		start := p.Start()
		if i, ok := p.Find(since); ok {
			start = p.At(i).Start
		}
		return &start
	}
	return nil
}

// spentSince is what an incarnation stated to have spent in the periods from an instant on.
func (s *Service) spentSince(name string, line StrandedLine, from *allocation.Instant) Figure {
	if from == nil {
		return Figure{0, FigureUnknown}
	}
	h := allocation.Holder{Region: line.Region, Incarnation: line.Incarnation}
	var sum int64
	for _, l := range s.state.terms[name] {
		st, _ := s.lastStatement(h, refOf(l.value))
		for _, u := range st.Usage {
			if u.Period >= *from {
				sum = allocation.SumUp(sum, u.Spent)
			}
		}
	}
	if line.StatedAt == nil {
		return Figure{sum, FigureUnknown}
	}
	return atMost(sum)
}

// spent sums up the regions' figures. What was spent before the first period that is known is not in it.
func (b *ExposedBudget) spent(since allocation.Instant, from *allocation.Instant) Figure {
	sum := Figure{0, FigureExact}
	for _, r := range b.Regions {
		sum = sum.sum(r.Spent)
	}
	if from == nil || since != 0 && *from > since {
		sum.Kind = FigureUnknown
	}
	if len(b.Regions) > 0 && sum.Kind == FigureExact {
		sum.Kind = FigureAtMost
	}
	return sum
}
