package allocation

import "slices"

// MaxFormer is how many former incarnations of a region are remembered by name; an older one is taken for unknown.
const MaxFormer = 1000

// Residence is what the coordinator records of the one owner of a region: its present incarnation, and its home.
//
//	no incarnation ──asks──▶ given out, recorded with the home ──names it in a call──▶ confirmed: ledgers grant to it
//	                              ▲                                                         │ lost history, sealed
//	                              └──────────── a new one, with nothing ◀───────────────────┘ the old one is former
type Residence struct {
	Incarnation string   `json:"incarnation,omitempty"`
	Home        Home     `json:"home,omitzero"`
	Confirmed   bool     `json:"confirmed,omitempty"` // a call has named it: its owner has stored it
	Former      []string `json:"former,omitempty"`    // replaced and ended ones, oldest first
	Sealing     string   `json:"sealing,omitempty"`   // the one that was ended to be sealed in Home; a seal of it counts
}

// Claim is what a call's incarnation and home come to.
type Claim int

// The claims. Only ClaimFits lets anything else of the call count.
const (
	ClaimFits       Claim = iota // the recorded incarnation in its recorded home
	ClaimNew                     // it has none, or lost its history: give out a new one, with nothing (Replace)
	ClaimAgain                   // the new one was given out to this database and never named: give the same out again
	ClaimMove                    // the recorded incarnation, in another home, and the recorded one is silent: record the move first
	ClaimSecondHome              // another home while the recorded one is in contact: refuse, loudly
	ClaimFormer                  // a former incarnation: nothing that it says counts, it must ask for a new one
	ClaimUnheard                 // one that was never given out here: etcd lost history
)

// Judge says what becomes of a call that names an incarnation and a home; lost says that the caller's database lost its
// history and asks for a new incarnation. inContact says whether a call has come from the recorded home lately: the one
// place where contact decides anything. It moves no permit, since marks must hold besides.
func (r Residence) Judge(incarnation string, home Home, lost, inContact bool) Claim {
	current := incarnation == r.Incarnation
	switch {
	case r.Incarnation == "" && incarnation == "":
		return ClaimNew
	case incarnation != "" && !current && !slices.Contains(r.Former, incarnation):
		return ClaimUnheard
	case home != r.Home && r.Home != (Home{}) && inContact:
		return ClaimSecondHome
	case current && !lost && home == r.Home:
		return ClaimFits
	case current && !lost:
		return ClaimMove
	case (lost || incarnation == "") && !current && r.Incarnation != "" && !r.Confirmed && home == r.Home:
		return ClaimAgain
	case lost || incarnation == "":
		return ClaimNew
	}
	return ClaimFormer
}

// Replace gives out a new incarnation, which holds nothing. What the old one was granted stays out in the ledgers: its
// unspent permits are stranded in each period of its opened terms, to that period's end, and no statement of it counts.
func (r Residence) Replace(incarnation string, home Home) Residence {
	next := Residence{Incarnation: incarnation, Home: home, Former: r.Former}
	if r.Incarnation != "" {
		next.Former = append(slices.Clone(r.Former), r.Incarnation)
		next.Former = next.Former[max(0, len(next.Former)-MaxFormer):]
	}
	return next
}

// End makes the present incarnation a former one, so that it can be sealed, and gives out no other. It is recorded before
// the seal is made: from then on nobody is vouched for as that incarnation. A seal that was made first could be read, the
// database restored to before it, and its nodes go on with what the seal already proves to be returned.
func (r Residence) End() Residence {
	next := r.Replace("", r.Home)
	next.Sealing = r.Incarnation
	return next
}

// MoveTo records that the incarnation lives in another home: a database that holds all marks is the incarnation, whatever
// its timeline. Until this is durable the owner stays closed there.
func (r Residence) MoveTo(home Home) Residence {
	r.Home = home
	return r
}

// Heard remembers an incarnation that etcd never heard of as a former one, when the region gets a new one.
func (r Residence) Heard(incarnation string) Residence {
	if incarnation != "" && incarnation != r.Incarnation && !slices.Contains(r.Former, incarnation) {
		r.Former = append(slices.Clone(r.Former), incarnation)
	}
	return r
}

// StartOver is what a usage row becomes when its owner starts a new incarnation: it holds nothing. What was counted
// before is the old incarnation's; the caller keeps it for reports, and it never speaks for the new one.
func (u Usage) StartOver() Usage {
	return Usage{
		UsageKey: u.UsageKey, Until: u.Until, Term: u.Term, Template: u.Template, Version: u.Version,
	}
}

// StartOver is what an admission becomes: an open reservation counts as spent, since what was held is stranded with the
// old incarnation. A settle is still answered and recorded; what it charges above the estimate is charged as it fits.
func (a Admission) StartOver() Admission {
	if a.State != StateReserved {
		return a
	}
	a.State, a.Lines = StateLapsedSpent, slices.Clone(a.Lines)
	for i := range a.Lines {
		line := &a.Lines[i]
		line.Spent, line.Held = line.Spent+line.Held, 0
	}
	return a
}
