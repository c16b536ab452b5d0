package allocation

import (
	"fmt"
	"slices"
)

// Share is what an owner stores of its part of one budget over one term: the grants that it applied, and what it
// returned of periods that it has not used yet. A period that is used has a Usage of its own, made from the share.
type Share struct {
	Budget     string       `json:"budget"`
	Version    int64        `json:"version"`
	Template   bool         `json:"template,omitempty"`
	Policy     Policy       `json:"policy"`
	Regions    []string     `json:"regions"`
	Periods    Periods      `json:"periods"`
	Generation Generation   `json:"generation"`
	Entries    []GrantEntry `json:"entries"` // by class, then From; Returned is the owner's own here
	Sealed     bool         `json:"sealed,omitempty"`
	// OpeningSpent is the ledger's, of the first period: see ShareGrant.
	OpeningSpent int64 `json:"opening_spent,omitempty"`
}

// Term is the start of the share's term, its name.
func (s Share) Term() Instant { return s.Periods.Start() }

// EntryFor is the entry that holds for the period that starts at `period`.
func (s Share) EntryFor(period Instant, c Class) (GrantEntry, bool) {
	for _, e := range s.Entries {
		if e.Class == c && e.From <= period && period < e.Until {
			return e, true
		}
	}
	return GrantEntry{}, false
}

// Apply enters a grant. An older generation, or the same one, changes nothing (invariant 8). What the grant leaves above
// a target is returned at once, of all periods that are not used yet (invariant 4).
//
// A sealed share takes no grant (invariant 9).
//
// It fails with ErrContradicted if the grant has the share's generation number with another stamp, names other periods,
// or counts a return that this share never made: one of the two sides lost its history.
func (s Share) Apply(g ShareGrant) (Share, bool, error) {
	if s.Sealed {
		return s, false, nil
	}
	if s.Generation.Number > 0 {
		if g.Budget != s.Budget || g.Periods.Start() != s.Term() || g.Periods.End() != s.Periods.End() {
			return s, false, fmt.Errorf("%s: a grant for the term %s–%s meets the share of %s–%s: %w",
				s.Budget, g.Periods.Start(), g.Periods.End(), s.Term(), s.Periods.End(), ErrContradicted)
		}
		if g.Generation.Number == s.Generation.Number && g.Generation.Stamp != s.Generation.Stamp {
			return s, false, fmt.Errorf("%s: generation %s is stored, %s was sent: %w", s.Budget, s.Generation, g.Generation, ErrContradicted)
		}
		if g.Generation.Number <= s.Generation.Number {
			return s, false, nil
		}
		if e, ok := s.neverReturned(g); ok {
			return s, false, fmt.Errorf("%s, period %s: the ledger counted %d returned, which this share did not return: %w",
				s.Budget, e.From, e.Returned, ErrContradicted)
		}
	}
	out := Share{
		Budget: g.Budget, Version: g.Version, Template: g.Template, Policy: g.Policy, Regions: g.Regions,
		Periods: g.Periods, Generation: g.Generation, OpeningSpent: max(s.OpeningSpent, g.OpeningSpent),
	}
	for _, c := range []Class{General, Protected} {
		out.Entries = append(out.Entries, s.applyClass(g, c)...)
	}
	return out, true, nil
}

// neverReturned finds an entry of a grant by which the ledger counts more as returned than the share says: the share
// lost a return, and would spend what the ledger has long given to others.
func (s Share) neverReturned(g ShareGrant) (GrantEntry, bool) {
	for _, theirs := range g.Entries {
		if theirs.Returned == 0 {
			continue
		}
		covered := theirs.From
		for _, mine := range s.Entries { // sorted by From within a class
			if mine.Class == theirs.Class && mine.From <= covered && covered < mine.Until && mine.Returned >= theirs.Returned {
				covered = mine.Until
			}
		}
		if covered < theirs.Until {
			return theirs, true
		}
	}
	return GrantEntry{}, false
}

// applyClass merges the entries of one class, over the boundaries of both sides.
func (s Share) applyClass(g ShareGrant, c Class) []GrantEntry {
	var cuts []Instant
	for _, e := range slices.Concat(s.Entries, g.Entries) {
		if e.Class == c {
			cuts = append(cuts, e.From, e.Until)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	sent := Share{Entries: g.Entries}
	var out []GrantEntry
	for i := 0; i+1 < len(cuts); i++ {
		mine, have := s.EntryFor(cuts[i], c)
		theirs, granted := sent.EntryFor(cuts[i], c)
		if !have && !granted {
			continue
		}
		e := GrantEntry{
			From: cuts[i], Until: cuts[i+1], Class: c, Limit: mine.Limit, Granted: max(mine.Granted, theirs.Granted),
			// The ledger's count only matters to a share that is made anew, of a term that was forgotten: by a grant that comes
			// late it must not hold again what it returned.
			Returned: max(mine.Returned, theirs.Returned), Target: theirs.Target, Protected: theirs.Protected,
		}
		if granted {
			e.Limit = theirs.Limit
		}
		if excess := e.Granted - e.Returned - e.Target; excess > 0 && !g.Template {
			e.Returned += excess
		}
		if n := len(out); n > 0 && out[n-1].Until == e.From && sameCounts(out[n-1], e) {
			out[n-1].Until = e.Until
			continue
		}
		out = append(out, e)
	}
	return out
}

func sameCounts(a, b GrantEntry) bool {
	a.From, a.Until = b.From, b.Until
	return a == b
}

// Usage makes the account of one period that is used for the first time. It must be stored under the lock of the share
// row that s was read from (invariant 9). ok is false if the share says nothing of that period, as of those before the
// region came into the term: see Locked.None.
func (s Share) Usage(k UsageKey) (u Usage, ok bool) {
	i, ok := s.Periods.Index(k.Period)
	if !ok {
		return Usage{}, false
	}
	e, ok := s.EntryFor(k.Period, k.Class)
	if !ok {
		return Usage{}, false
	}
	return Usage{
		UsageKey: k, Until: s.Periods.At(i).End, Term: s.Term(), Template: s.Template, Version: s.Version,
		Generation: s.Generation.Number, Granted: e.Granted, Returned: e.Returned, Target: e.Target, Protected: e.Protected,
		Sealed: s.Sealed,
	}, true
}

// Statement is the account of the share for the coordinator, from its used periods, sorted by period. All of it must come
// from one snapshot of the owner's database. For a template, used holds the sums over its instances, and nothing is
// returned.
func (s Share) Statement(used []Usage, instances map[Instant]int64) ShareStatement {
	out := ShareStatement{Budget: s.Budget, Term: s.Term(), Generation: s.Generation}
	for _, u := range used {
		out.Usage = append(out.Usage, UsageStatement{
			Period: u.Period, Class: u.Class, Spent: u.Spent, Reserved: u.Reserved, Overdraft: u.Overdraft, Instances: instances[u.Period],
		})
	}
	if s.Template {
		return out
	}
	for _, e := range s.Entries {
		out.Returned = append(out.Returned, returnedOf(e, used)...)
	}
	return out
}

// returnedOf states what was returned of the periods of one entry, as runs that do not overlap: a period whose own usage
// made it differ stands apart, so that nothing is claimed of it that it did not return.
func returnedOf(e GrantEntry, used []Usage) []ReturnedStatement {
	var out []ReturnedStatement
	add := func(from, until Instant, returned int64) {
		if returned > 0 && from < until {
			out = append(out, ReturnedStatement{From: from, Until: until, Class: e.Class, Returned: returned})
		}
	}
	from := e.From
	for _, u := range used {
		if u.Class != e.Class || u.Period < e.From || u.Period >= e.Until || u.Returned == e.Returned {
			continue
		}
		add(from, u.Period, e.Returned)
		add(u.Period, u.Until, u.Returned)
		from = u.Until
	}
	add(from, e.Until, e.Returned)
	return out
}
