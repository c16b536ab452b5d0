package coordinator

import (
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of what is remembered, written and audited of calls that are refused. A second database behind a region's token
// calls as often as the first, for as long as nobody stops it.
const (
	// maxContradicted is how many refused callers of one region are remembered; those beyond are flagged and not audited.
	// So a region has at most twice as many audit lines of contradictions in contradictedKept.
	maxContradicted = 16
	// contradictedKept is how long a caller that is refused no more is remembered.
	contradictedKept = 24 * time.Hour
	// contradictionStands is how long another database must be silent before a call of the recorded one clears the flag.
	contradictionStands = 5 * time.Minute
	// contradictionRefresh is how often the time of the latest refused call is written.
	contradictionRefresh = time.Minute
)

// The kinds of contradictions.
const (
	contradictsHistory     = "history"     // the owner has stored another history of etcd
	contradictsConfig      = "config"      // the owner has stored a later configuration than etcd has
	contradictsEmpty       = "empty"       // a database without incarnation where one is recorded
	contradictsIncarnation = "incarnation" // another incarnation than the recorded one
	contradictsHome        = "home"        // the recorded incarnation in another database
	contradictsMarks       = "marks"       // writers' marks are gone
	contradictsTerm        = "term"        // a share of a term that was never opened
	contradictsGeneration  = "generation"  // a generation that the ledger never had
	contradictsReturn      = "return"      // more returned than was granted
)

// contradictionOf is what a refused call is, by itself.
func contradictionOf(r *region, call allocation.SyncCall, v verdict, now time.Time) Contradiction {
	d := r.doc.value
	itself := call.Home == d.Home && (call.Incarnation == d.Incarnation || call.Incarnation == "")
	return Contradiction{
		At: now.UTC(), Last: now.UTC(), Kind: v.kind, Detail: v.detail, Incarnation: call.Incarnation, Home: call.Home,
		Other: !itself || v.kind == contradictsMarks && wentOn(r.contact, call),
	}
}

// wentOn says whether a call whose database lacks marks shows others that were never stated: then it is no earlier call of
// the same database, which a later one overtook, but one that went on from an earlier state of it.
func wentOn(c Contact, call allocation.SyncCall) bool {
	return slices.ContainsFunc(call.Marks, func(m allocation.Mark) bool {
		return !slices.Contains(c.Ended, m.Writer) && !slices.ContainsFunc(c.Marks, func(known allocation.Mark) bool { return m.Holds(known) })
	})
}

// caller is whom a contradiction came from, and why.
func (c Contradiction) caller() Contradicted {
	return Contradicted{Kind: c.Kind, Incarnation: c.Incarnation, Home: c.Home, Last: c.Last}
}

// is says whether both are one caller, refused for one reason.
func (c Contradicted) is(o Contradicted) bool {
	return c.Kind == o.Kind && c.Incarnation == o.Incarnation && c.Home == o.Home
}

// contradict enters a refused call. Most change nothing: the flag stands already, and was written a moment ago. A caller is
// audited once for each kind, however often it comes.
func (d RegionDocument) contradict(c Contradiction) (next RegionDocument, write, audit bool) {
	before := d.Contradiction
	d.Contradicted, audit = remember(d.Contradicted, c.caller())
	switch {
	case before == nil, audit, c.Other && !before.Other:
	case c.Last.Sub(before.Last) < contradictionRefresh:
		return d, false, false
	}
	if before != nil && before.Other && !c.Other {
		return d, audit, audit // what another database does is the worse news, and the next fitting call must not clear it
	}
	if before != nil && before.caller().is(c.caller()) {
		c.At = before.At
	}
	d.Contradiction = &c
	return d, true, audit
}

// remember notes a refused caller; audit says that it is a new one.
func remember(list []Contradicted, c Contradicted) (next []Contradicted, audit bool) {
	next = slices.DeleteFunc(slices.Clone(list), func(o Contradicted) bool { return c.Last.Sub(o.Last) > contradictedKept })
	if i := slices.IndexFunc(next, c.is); i >= 0 {
		next[i].Last = c.Last
		return next, false
	}
	if len(next) == maxContradicted {
		return next, false
	}
	return append(next, c), true
}

// fitsAgain says whether a call that fits clears the flag. One of the recorded database clears what that database was
// refused for itself, such as a call that a later one overtook; it says nothing of another database that still calls.
func (d RegionDocument) fitsAgain(now time.Time) bool {
	c := d.Contradiction
	return c != nil && (!c.Other || now.Sub(c.Last) >= contradictionStands)
}

// clear takes the flag away. It is audited once for each caller whose contradiction was.
func (d RegionDocument) clear() (next RegionDocument, audit bool) {
	d.Contradiction, d.Contradicted = nil, slices.Clone(d.Contradicted)
	for i := range d.Contradicted {
		audit = audit || !d.Contradicted[i].Cleared
		d.Contradicted[i].Cleared = true
	}
	return d, audit
}

// text is the contradiction for a status.
func (c Contradiction) text(region string) string {
	if c.Other {
		return fmt.Sprintf("another database calls with the token of region %s, since %s, last at %s: %s",
			region, c.At.Format(timeForm), c.Last.Format(timeForm), c.Detail)
	}
	return fmt.Sprintf("region %s contradicts what is known since %s: %s", region, c.At.Format(timeForm), c.Detail)
}

// next is what to do about it.
func (c Contradiction) next() string {
	if c.Other {
		return "stop the nodes of the database that does not belong there; the recorded one goes on"
	}
	return "stop the nodes of the database that is not known; see 'a wrong database' in deploy/docs/failures.md"
}
