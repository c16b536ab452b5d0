package fleet

import (
	"math"
	"testing"

	"github.com/anishathalye/porcupine"
)

// A counter that takes everything for possible would find nothing, and one that knows no open end would cry wolf.
func TestCounterModel(t *testing.T) {
	set := func(at, units int64) porcupine.Operation {
		return porcupine.Operation{Input: step{capacity: units}, Output: true, Call: at, Return: at}
	}
	ask := func(from, to, cost int64, admitted bool) porcupine.Operation {
		return porcupine.Operation{Input: step{capacity: -1, cost: cost}, Output: admitted, Call: from, Return: to}
	}
	for name, c := range map[string]struct {
		history []porcupine.Operation
		fits    bool
	}{
		"spent to the last":             {[]porcupine.Operation{set(0, 5), ask(1, 2, 3, true), ask(3, 4, 2, true), ask(5, 6, 1, false)}, true},
		"one too many":                  {[]porcupine.Operation{set(0, 5), ask(1, 2, 3, true), ask(3, 4, 3, true)}, false},
		"refused with room":             {[]porcupine.Operation{set(0, 5), ask(1, 2, 3, true), ask(3, 4, 2, false)}, false},
		"refused before it was granted": {[]porcupine.Operation{set(3, 5), ask(1, 2, 1, false), ask(4, 5, 5, true)}, true},
		"one that overlaps took it":     {[]porcupine.Operation{set(0, 5), ask(1, 9, 5, true), ask(2, 3, 5, false)}, true},
		"nobody was told":               {[]porcupine.Operation{set(0, 5), ask(1, math.MaxInt64, 5, true), ask(2, 3, 1, true), ask(4, 5, 5, false), set(6, 10)}, true},
		"admitted before it was there":  {[]porcupine.Operation{set(3, 5), ask(1, 2, 1, true)}, false},
	} {
		if got := porcupine.CheckOperations(counterModel, c.history); got != c.fits {
			t.Errorf("%s: fits %v, want %v", name, got, c.fits)
		}
	}
}
