package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// When keys were last used is told beside the refusals, and kept in the same documents: for people, nothing rests on it.
const (
	usedWritten = 60  // seconds by which a use must be later to be written
	usedSkew    = 300 // seconds that a region's clock may be ahead
)

// use enters a use of a key, and says whether it is worth writing.
func (h *heardRefusals) use(fingerprint string, at int64) bool {
	if h.used == nil {
		h.used = map[string]int64{}
	}
	had, known := h.used[fingerprint]
	if at < had+usedWritten && known {
		return false
	}
	h.used[fingerprint] = at
	return true
}

// forgetOldest drops a quarter, at least one.
func forgetOldest(used map[string]int64) {
	all := slices.SortedFunc(maps.Keys(used), func(a, b string) int { return cmp.Or(cmp.Compare(used[a], used[b]), cmp.Compare(a, b)) })
	for _, fingerprint := range all[:(len(all)+3)/4] {
		delete(used, fingerprint)
	}
}

// lastUsed is when some region last told of a use of a key; nil: none did.
func (s *state) lastUsed(fingerprint string) *time.Time {
	var last int64
	for _, r := range s.ordered {
		last = max(last, r.refusals.used[fingerprint])
	}
	if last == 0 {
		return nil
	}
	at := time.Unix(last, 0).UTC()
	return &at
}
