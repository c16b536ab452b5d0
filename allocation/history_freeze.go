package allocation

import (
	"cmp"
	"slices"
)

// Standing is what etcd holds of its own descent: one small document, compared by every transaction that opens a term or
// changes a ledger. A replica whose picture is older than a freeze is so refused, not believed.
//
//	           a contradiction, or a start that nobody vouches for
//	┌────────┐ ──────────────────────────────────────────────────────▶ ┌────────┐ ◀─┐ another contradiction:
//	│ thawed │                                                         │ frozen │ ──┘ a newer history, all over again
//	└────────┘ ◀────────────────────────────────────────────────────── └────────┘
//	           every region has stated, whole, under this history
//
// An example. The ledger of a limit of 10 is restored to where region a held 6 and b nothing. In what was lost a had
// returned 5 of them and b had got them. a states 6 − 5 under the new history, b states 5: the ledger reads a 6 5, b 5 0,
// unallocated 4, and that is the truth. Had the coordinator believed a alone, it would have granted b's 5 once more.
type Standing struct {
	History History `json:"history"`
	Freeze  *Freeze `json:"freeze,omitempty"` // nil: nothing is frozen
	// Lost are incarnations whose holdings nobody can state: those that were replaced, or turned out to be unknown, while
	// a history was frozen. In terms that begin before Through they may hold all that is not proven to be elsewhere.
	Lost []LostHolder `json:"lost,omitempty"`
	// Replaced are incarnations that were replaced lately while nothing was frozen: see Replace.
	Replaced []ReplacedHolder `json:"replaced,omitempty"`
}

// ReplacedHolder is an incarnation that was replaced, and when, by a coordinator's clock.
type ReplacedHolder struct {
	Holder
	At Instant `json:"at"`
}

// ReplacedFor is for how many seconds an incarnation that was replaced is looked at once more if it is found that etcd went back.
const ReplacedFor = 3600

// Freeze is the state of a history that not all regions have stated under yet.
type Freeze struct {
	Why     string   `json:"why"`              // for a person
	Through Instant  `json:"through"`          // terms that begin before it are frozen: see FurthestOpened
	Stated  []Holder `json:"stated,omitempty"` // those that have stated all their shares, by region
}

// LostHolder is an incarnation that may hold more than the ledgers know, in terms that begin before Through.
type LostHolder struct {
	Holder
	Through Instant `json:"through"`
	// LimitsKnown says that a person declared that it spent under no higher limit than the ledgers know: see KnowLimits.
	LimitsKnown bool `json:"limits_known,omitempty"`
}

// FurthestOpened is the furthest that any term can have been opened in a history that was lost: a term is opened while the
// last end lies within the horizon of now, so that none begins later. What was declared in that history is not known
// either, so the horizon is the longest that a budget can have. latest is the latest clock that anybody states: a
// coordinator whose clock lies far from its regions' opens nothing.
func FurthestOpened(latest Instant) Instant {
	ahead := Instant(max(MaxRunsAloneFor, Day))
	if latest > Never-ahead {
		return Never
	}
	return latest + ahead
}

// Frozen says whether nothing may be granted in, nor opened as, the term that begins at start.
func (s Standing) Frozen(start Instant) bool {
	return s.Freeze != nil && start < s.Freeze.Through
}

// Contradict freezes all that etcd holds under a new history, whose number is above every one that was heard of. It is
// for any contradiction: a mark of the coordinator's own that is gone; an owner that knows a history, a generation, a
// term, a configuration, a return or an incarnation that etcd never had; a start without memory that nobody vouches for.
//
// The new history is what makes late messages harmless: whatever was said before a region stored it does not count, for
// either side. A start that only waited, under the history that etcd shows, would let a grant of the lost line arrive
// after its owner had stated that it holds nothing.
func (s Standing) Contradict(why string, heard History, through Instant, stamp string) Standing {
	next := Standing{
		History: History{Number: max(s.History.Number, heard.Number) + 1, Stamp: stamp},
		Freeze:  &Freeze{Why: why, Through: through},
		Lost:    s.Lost, Replaced: s.Replaced,
	}
	if s.Freeze != nil {
		next.Freeze.Through = max(through, s.Freeze.Through)
	}
	return next
}

// Lose records that an incarnation cannot state what it holds: it was replaced by a new one before it stated under this
// history, or etcd never heard of it. A new incarnation does not speak for the one before it. While nothing is frozen the
// ledgers know all that it was ever granted, and nothing is recorded.
func (s Standing) Lose(h Holder) Standing {
	if s.Freeze == nil || h.Incarnation == "" || slices.Contains(s.Freeze.Stated, h) {
		return s
	}
	for i, l := range s.Lost {
		if l.Holder == h {
			s.Lost = slices.Clone(s.Lost)
			s.Lost[i].Through = max(l.Through, s.Freeze.Through)
			return s
		}
	}
	s.Lost = append(slices.Clone(s.Lost), LostHolder{Holder: h, Through: s.Freeze.Through})
	return s
}

// Replace records that an incarnation was replaced, and so can state nothing any more. While all is frozen it is lost. Otherwise the
// ledgers know all that it was ever granted, unless etcd went back together with its database, and nobody has noticed that yet: so it
// is remembered for a while, and is lost if a freeze begins meanwhile (LoseReplaced).
//
// An example. Etcd and region a's database go back to where a held 60 of 100 and b 40. In what was lost b had returned 30 of them, and
// a had got them and spent 80. a asks for a new incarnation first, and then b states its return: 60 and 10 are out by the ledger, and
// the 30 that nobody seems to hold are spent.
func (s Standing) Replace(h Holder, now Instant) Standing {
	if s.Freeze != nil {
		return s.Lose(h)
	}
	s.Replaced = slices.DeleteFunc(slices.Clone(s.Replaced), func(r ReplacedHolder) bool { return !r.lately(now) })
	s.Replaced = append(s.Replaced, ReplacedHolder{h, now})
	return s
}

// LoseReplaced is for a freeze that has just begun: what was replaced lately may have been replaced in a line that was not the true one.
func (s Standing) LoseReplaced(now Instant) Standing {
	for _, r := range s.Replaced {
		if r.lately(now) {
			s = s.Lose(r.Holder)
		}
	}
	s.Replaced = nil
	return s
}

// lately is true also of what a clock that was ahead has dated.
func (r ReplacedHolder) lately(now Instant) bool { return now-r.At <= ReplacedFor }

// Stated enters that an incarnation has stated, under this history, all shares that it holds. It thaws when one of every
// region that must speak has: those that etcd knows and those that any statement names. What its statements said must be
// durable in the ledgers (Reconcile) before this is.
func (s Standing) Stated(h Holder, regions []string) (next Standing, thawed bool) {
	if s.Freeze == nil {
		return s, false
	}
	f := *s.Freeze
	if !slices.Contains(f.Stated, h) {
		f.Stated = append(slices.Clone(f.Stated), h)
		slices.SortFunc(f.Stated, func(a, b Holder) int {
			return cmp.Or(compare(a.Region, b.Region), compare(a.Incarnation, b.Incarnation))
		})
	}
	s.Freeze = &f
	for _, r := range regions {
		if !slices.ContainsFunc(f.Stated, func(h Holder) bool { return h.Region == r }) {
			return s, false
		}
	}
	s.Freeze = nil
	return s, true
}

// Forget drops lost incarnations of terms that are all over: closedBefore is the instant that every region has passed.
func (s Standing) Forget(closedBefore Instant) Standing {
	if s.Freeze == nil {
		s.Lost = slices.DeleteFunc(slices.Clone(s.Lost), func(l LostHolder) bool { return l.Through <= closedBefore })
	}
	return s
}
