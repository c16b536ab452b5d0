package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// overridePrefix is where overrides are recorded: /tranche/overrides/ID. What counts is the budget's own document, which has
// the override in it while it stands.
const overridePrefix = Root + "overrides/"

// Bounds of overrides.
const (
	maxOverrides      = 1000                // that are kept
	overrideRetention = 90 * 24 * time.Hour // of what has ended
)

// The states of an override.
const (
	OverrideActive     = "active"
	OverrideEnded      = "ended"      // the limit is what was declared
	OverrideSuperseded = "superseded" // the budget does not have it any more: it was deleted, stopped with limit 0, or etcd lost history
)

// Override is one temporary raise of a budget, and what became of it.
type Override struct {
	Format     int                `json:"format"`
	ID         string             `json:"id"`
	Budget     string             `json:"budget"`
	Unit       string             `json:"unit"`
	Units      int64              `json:"units"` // of each period
	From       allocation.Instant `json:"from"`
	Until      allocation.Instant `json:"until"`
	Periods    int64              `json:"periods"`               // that it counts in, as the window was when it was made
	Total      int64              `json:"total"`                 // the most that it lets be spent, over all of them
	Limit      int64              `json:"limit"`                 // as declared, when it was made
	Version    int64              `json:"version"`               // of the budget that it made
	EndVersion int64              `json:"end_version,omitempty"` // of the budget that its end made
	State      string             `json:"state"`
	Reason     string             `json:"reason"`
	By         string             `json:"by"` // who approved it
	Token      string             `json:"token"`
	Made       time.Time          `json:"made"`
	Ended      *time.Time         `json:"ended,omitempty"`
	EndedBy    string             `json:"ended_by,omitempty"`
	Why        string             `json:"why,omitempty"` // it ended
}

// counted says whether a version of the budget was made under the override.
func (o Override) counted(version int64) bool {
	return o.Version <= version && (o.EndVersion == 0 && o.State == OverrideActive || version < o.EndVersion)
}

// OverridesList is all that are kept, the latest first.
type OverridesList struct {
	*Evidence
	Overrides []Override `json:"overrides"`
}

func (s *Service) listOverrides() OverridesList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := OverridesList{Evidence: s.evidence(), Overrides: []Override{}}
	for _, d := range sortedOverrides(s.state.overrides) {
		list.Overrides = append(list.Overrides, d.value)
	}
	return list
}

// sortedOverrides is the latest first.
func sortedOverrides(m map[string]*doc[Override]) []*doc[Override] {
	return slices.SortedFunc(maps.Values(m), func(a, b *doc[Override]) int {
		return cmp.Or(b.value.Made.Compare(a.value.Made), cmp.Compare(a.value.ID, b.value.ID))
	})
}

// overrideOf is the record of the override under which a version of a budget was made; nil: none is known.
func (s *state) overrideOf(budget string, version int64) *Override {
	for _, d := range sortedOverrides(s.overrides) {
		if d.value.Budget == budget && d.value.counted(version) {
			return &d.value
		}
	}
	return nil
}

// sweepOverrides is what is not kept any more.
func (s *Service) sweepOverrides() (due []Item) {
	before := s.now().Add(-overrideRetention)
	for i, d := range sortedOverrides(s.state.overrides) {
		if d.value.State != OverrideActive && (i >= maxOverrides || d.value.Ended.Before(before)) {
			due = append(due, d.item)
		}
	}
	return due
}

// periodsUntil counts the periods that run or begin before an instant.
func periodsUntil(w allocation.Window, now, until allocation.Instant) (n int64) {
	p, ok := w.PeriodAt(now)
	if !ok {
		return 0
	}
	if w.Every > 0 {
		return (int64(until-p.Start) + int64(w.Every) - 1) / int64(w.Every)
	}
	for ; ok && p.Start < until; p, ok = w.Next(p) {
		n++
	}
	return n
}
