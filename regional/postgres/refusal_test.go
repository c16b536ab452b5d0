//go:build unix

package postgres

import (
	"testing"

	"tranche/allocation"
)

// Without this a call that a later one of another node overtook would stop a healthy region; or a restored database that
// lost a mark would go on.
func TestRefusalByMarks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *allocation.Mark)
		stops  bool
	}{
		"overtaken: the mark is still there": {func(*allocation.Mark) {}, false},
		"overtaken: a higher count is there": {func(m *allocation.Mark) { m.Count--; m.Value = "an older one" }, false},
		"lost: another value":                {func(m *allocation.Mark) { m.Value = "other" }, true},
		"lost: a lower count":                {func(m *allocation.Mark) { m.Count++ }, true},
		"lost: no such writer":               {func(m *allocation.Mark) { m.Writer = "gone" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t)
			m := o.w.Mark()
			c.change(&m)
			o.apply(allocation.SyncAnswer{
				Incarnation: "life-1", Refusal: string(allocation.HistoryLost), Detail: "why", Contradicted: []allocation.Mark{m},
			})
			loaded, err := o.store.Load(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			if (loaded.Stopped != "") != c.stops {
				t.Errorf("stopped %q; want stopped: %v", loaded.Stopped, c.stops)
			}
		})
	}
}
