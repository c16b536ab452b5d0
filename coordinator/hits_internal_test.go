package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// If it found too few, a request could come to hit more budgets than one commit charges; if it kept some that are gone,
// budgets would be refused for what nobody declares any more.
func TestHitsAgainstALookAtAll(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	random := func() map[string]string {
		match := map[string]string{}
		for _, label := range []string{"tenant", "tool", "capability", "caller"} {
			if r.IntN(2) == 0 {
				match[label] = string(rune('a' + r.IntN(3)))
			}
		}
		return match
	}
	fits := func(a, b map[string]string) bool {
		for label, value := range a {
			if other, asked := b[label]; asked && other != value {
				return false
			}
		}
		return true
	}
	h, all := hits{}, map[string]map[string]string{}
	for step := range 3000 {
		name := fmt.Sprintf("b%d", r.IntN(60))
		if old, there := all[name]; there {
			h.drop(name, old)
			delete(all, name)
		}
		if r.IntN(3) > 0 {
			all[name] = random()
			h.put(name, all[name])
		}
		match := random()
		want := []string{}
		for name, m := range all {
			if fits(match, m) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		if got := h.with(match); !slices.Equal(got, want) {
			t.Fatalf("seed %d, step %d: %v hits %v, want %v", seed, step, match, got, want)
		}
	}
	for name, match := range all {
		h.drop(name, match)
	}
	if len(h) > 0 {
		t.Errorf("%d groups stay", len(h))
	}
}
