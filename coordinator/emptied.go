package coordinator

import (
	"slices"
	"time"

	"tranche/allocation"
)

// emptied is what this replica heard of a database that names no incarnation, in the home of one that has never called it.
type emptied struct {
	of    string // the recorded incarnation
	since time.Time
	marks []allocation.Mark // of the first such call
}

// emptiedForLong says whether the database of a region that was registered with its owner has lost that owner before it ever
// called: nothing was stated that could tell its calls from one that was made before the database stored the incarnation, and
// is late. A late one, or its repetition, shows the marks of its time. That database goes on, and shows later ones, for longer
// than any region is waited for, while the recorded incarnation stays silent. Were it never believed, the region would wait
// for good, and with it all that is frozen. Where it is wrong, the incarnation is replaced for nothing, and nothing is spent
// twice (invariant 5).
func (s *Service) emptiedForLong(r *region, call allocation.SyncCall) bool {
	now, e := s.now(), r.emptied
	if of := r.doc.value.Incarnation; e.of != of || len(allocation.LostMarks(e.marks, call.Marks, call.Ended)) > 0 {
		r.emptied = emptied{of: of, since: now, marks: call.Marks}
		return false
	}
	later := slices.ContainsFunc(call.Marks, func(m allocation.Mark) bool { return !slices.Contains(e.marks, m) })
	return later && now.Sub(e.since) >= s.config.ReportUnreachableAfter
}
