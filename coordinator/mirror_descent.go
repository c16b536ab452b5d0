package coordinator

import (
	"bytes"
	"encoding/json"
	"slices"

	"tranche/allocation"
)

// An etcd that was taken back counts its revisions anew, and soon they are higher than those that a mirror has seen: its
// watch goes on as if nothing had happened, over a picture that mixes two lines of descent. Whoever notices first begins a
// new history, and by that the others see it too:
//
//	the watch says that the history is another     what was written before it may be missing here: read everything again
//	a read shows another standing, written at a    it was written while the watch was elsewhere, so it is missing here:
//	revision that the mirror has passed            read everything again

// descends notes what events say of the standing, and whether they say that the history is another than before.
func (m *Mirror) descends(events []Event, whole bool) (another bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.standing
	if whole {
		m.standing = Item{}
	}
	for _, e := range events {
		if e.Key == historyKey {
			m.standing = e.Item
		}
	}
	return before.Value != nil && m.standing.Value != nil && historyIn(before) != historyIn(m.standing)
}

// noteStanding compares a read, begun when the mirror was at the revision before, with what the mirror shows.
func (m *Mirror) noteStanding(items []Item, before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(items, func(i Item) bool { return i.Key == historyKey })
	if !m.loaded || i < 0 || items[i].Revision > before || items[i].Revision <= m.standing.Revision && bytes.Equal(items[i].Value, m.standing.Value) {
		return
	}
	if m.standing.Revision > before {
		return // the mirror has gone on since
	}
	m.giveUp(errReread)
}

func historyIn(i Item) allocation.History {
	var d struct {
		History allocation.History `json:"history"`
	}
	_ = json.Unmarshal(i.Value, &d) // what cannot be read is no history
	return d.History
}
