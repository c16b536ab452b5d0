package allocation

import (
	"fmt"
	"testing"
)

// If this failed, whoever wonders why a budget does not apply would be shown another one, or one that applies.
func TestNearestMisses(t *testing.T) {
	budget := func(name string, match map[string]string) Budget {
		b := testBudget(name, "requests", 1)
		b.Match = match
		return b
	}
	all := []Budget{
		budget("far", map[string]string{"tenant": "beta", "plan": "pro", "route": "x"}), budget("hit", map[string]string{"tenant": "acme"}), budget("any", nil),
		budget("b", map[string]string{"tenant": "acme", "plan": "pro"}), budget("a", map[string]string{"tenant": "acme", "route": "chat"}),
	}
	got := NearestMisses(all, Labels{"tenant": "acme", "plan": "free"}, 2)
	if text := fmt.Sprint(got); text != "[{a [{route chat }]} {b [{plan pro free}]}]" {
		t.Error(text)
	}
	if got := NearestMisses(all, Labels{"tenant": "acme", "plan": "free"}, 9); len(got) != 3 || got[2].Budget != "far" {
		t.Errorf("%v", got)
	}
}
