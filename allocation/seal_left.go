package allocation

// SealLeft is what a sealed share had, in the running period and in those after it. Free is what the ledger may grant
// again; of a template nothing is, since its split is fixed within a term.
type SealLeft struct {
	Held     int64 `json:"held"`
	Spent    int64 `json:"spent"`
	Reserved int64 `json:"reserved"`
	Free     int64 `json:"free"`

	AheadPeriods int   `json:"ahead_periods,omitempty"` // of this term, after the running one
	AheadFree    int64 `json:"ahead_free,omitempty"`    // sum over them
}

// Add joins what shares of one unit had. Of a budget's terms only one has a running period.
func (l SealLeft) Add(o SealLeft) SealLeft {
	return SealLeft{
		Held: addUp(l.Held, o.Held), Spent: addUp(l.Spent, o.Spent), Reserved: addUp(l.Reserved, o.Reserved), Free: addUp(l.Free, o.Free),
		AheadPeriods: l.AheadPeriods + o.AheadPeriods, AheadFree: addUp(l.AheadFree, o.AheadFree),
	}
}

// Left sums a share up. Periods that nobody used have no usage row: what their entry says is all free.
func (s SealedShare) Left(now Instant) (l SealLeft) {
	p := s.Share.Periods
	running, is := p.Find(now)
	ahead := 0 // the first period after the running one
	switch {
	case is:
		ahead = running + 1
	case now >= p.End():
		ahead = p.Len()
	}
	l.AheadPeriods = p.Len() - ahead
	used := map[UsageKey]int64{} // spent and reserved, by period and class
	for _, u := range s.Used {
		used[UsageKey{Period: u.Period, Class: u.Class}] += u.Spent + u.Reserved
		if is && u.Period == p.At(running).Start {
			l.Spent, l.Reserved = addUp(l.Spent, u.Spent), addUp(l.Reserved, u.Reserved)
		}
	}
	if s.Share.Template {
		return l
	}
	for _, e := range s.Share.Entries {
		from, ok := p.Index(e.From)
		if !ok {
			continue
		}
		until := p.Len()
		if i, ok := p.Index(e.Until); ok {
			until = i
		}
		held := e.Granted - e.Returned
		if is && from <= running && running < until {
			l.Held, l.Free = addUp(l.Held, held), addUp(l.Free, held)
		}
		l.AheadFree = addUp(l.AheadFree, multiply(held, int64(max(0, until-max(from, ahead)))))
	}
	for key, n := range used {
		i, ok := p.Index(key.Period)
		switch {
		case !ok:
		case is && i == running:
			l.Free = max(0, l.Free-n)
		case i >= ahead:
			l.AheadFree = max(0, l.AheadFree-n)
		}
	}
	return l
}

// Statement is what a sealed share says of itself, as its owner would have stated it, but for what was returned: that is
// counted from the seal itself. What was spent since the last statement nobody else knows. Of a template a seal says nothing.
func (s SealedShare) Statement() ShareStatement {
	st := s.Share.Statement(s.Used, nil)
	if st.Returned = nil; s.Share.Template {
		st.Usage = nil
	}
	return st
}
