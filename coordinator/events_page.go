package coordinator

import (
	"fmt"
	"slices"
	"strings"
)

// EventsPage is events in their order. Cursor is where to go on, always: keep it, and ask with it as `after`.
type EventsPage struct {
	*Evidence
	Events []FeedEvent `json:"events"`
	Cursor string      `json:"cursor,omitempty"` // empty: nothing was ever told
	More   bool        `json:"more,omitempty"`   // there are more behind the cursor
	Oldest string      `json:"oldest,omitempty"` // the oldest that is kept
	// Missed says that something may lie between the cursor that was given and the first event of the answer.
	Missed string `json:"missed,omitempty"`
}

// eventsPage lists what came after a cursor; without one, from the oldest that is kept.
func (s *Service) eventsPage(after string, limit int) (EventsPage, error) {
	number, known := parseEventID(after)
	if after != "" && !known {
		return EventsPage{}, invalid(pageAfter, fmt.Sprintf("%.60q is no cursor", after), "give the id of an event, or the cursor of an answer, as it was; without it the oldest come first")
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	page := EventsPage{Evidence: s.evidence(), Events: []FeedEvent{}, Cursor: after}
	all, from := s.state.feed.events, 0
	if len(all) > 0 {
		page.Oldest = all[0].ID
	}
	if after != "" {
		from, page.Missed = s.state.feed.behind(after, number)
	}
	last := min(len(all), from+limit)
	page.Events, page.More = append(page.Events, all[from:last]...), last < len(all)
	if last > from {
		page.Cursor = all[last-1].ID
	}
	return page, nil
}

// behind finds where the events after a cursor begin. One that names none of them is either older than what is kept, or of
// what etcd lost.
func (f *feed) behind(after string, number int64) (from int, missed string) {
	i, found := slices.BinarySearchFunc(f.events, after, func(e FeedEvent, id string) int { return strings.Compare(e.ID, id) })
	if found {
		return i + 1, ""
	}
	head := FeedDocument{}
	if f.head != nil {
		head = f.head.value
	}
	switch {
	case head.ID == after:
		return len(f.events), "" // all are gone
	case number > head.Last || i > 0:
		return 0, "etcd went back to before this cursor: all that is kept follows, also what was told before; compare the ids"
	case len(f.events) > 0 && f.events[0].ID == eventID(number+1, f.events[0].ID[21:]):
		return i, ""
	}
	return i, "events behind this cursor are not kept any more"
}
