package replay

import (
	"cmp"
	"maps"
	"slices"
)

// maxKeys bounds what a tally remembers; TopLength is how much of it a report lists.
const (
	maxKeys   = 20_000
	TopLength = 20
)

// count is what one key met.
type count struct{ requests, refused, units int64 }

// tally counts by key in bounded memory. When it is full it forgets the half that was refused least: what was refused much
// stays, and what it counts for a key that came back after that is too low, never too high.
type tally struct {
	of     map[string]*count
	forgot bool
}

func newTally() *tally { return &tally{of: map[string]*count{}} }

func (t *tally) add(key string, refused bool, units int64) {
	c := t.of[key]
	if c == nil {
		if len(t.of) >= maxKeys {
			t.forget()
		}
		c = &count{}
		t.of[key] = c
	}
	c.requests++
	if refused {
		c.refused++
		c.units += units
	}
}

func (t *tally) forget() {
	t.forgot = true
	for _, key := range t.sorted()[maxKeys/2:] {
		delete(t.of, key)
	}
}

// sorted is the keys, the most refused first.
func (t *tally) sorted() []string {
	return slices.SortedFunc(maps.Keys(t.of), func(a, b string) int {
		x, y := t.of[a], t.of[b]
		return cmp.Or(cmp.Compare(y.refused, x.refused), cmp.Compare(y.requests, x.requests), cmp.Compare(a, b))
	})
}

// Entry is one line of a list.
type Entry struct {
	Name         string `json:"name"`
	Requests     int64  `json:"requests"`
	Refused      int64  `json:"refused"`
	RefusedUnits int64  `json:"refused_units,omitempty"`
}

// top lists the keys that were refused most; with all, also those that were not refused.
func (t *tally) top(all bool) []Entry {
	out := []Entry{}
	for _, key := range t.sorted() {
		c := t.of[key]
		if len(out) == TopLength || c.refused == 0 && !all {
			break
		}
		out = append(out, Entry{key, c.requests, c.refused, c.units})
	}
	return out
}
