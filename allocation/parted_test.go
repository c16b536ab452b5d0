package allocation

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// A change that showed in an older copy would change what a request is being decided by; one that was lost would leave a budget
// unenforced. Both are compared with plain maps, at each step.
func TestPartedCopiesAreApart(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	m, want := newParted[string, int](hashName), map[string]int{}
	var old []parted[string, int]
	var olds []map[string]int
	for step := range 400 {
		if step%40 == 0 {
			old, olds = append(old, m), append(olds, maps.Clone(want))
		}
		e := m.edit()
		for range random.IntN(30) {
			key := fmt.Sprint("budget-", random.IntN(6000))
			if random.IntN(3) == 0 {
				e.drop(key)
				delete(want, key)
				continue
			}
			e.put(key, step)
			want[key] = step
		}
		m = e.parted
	}
	for i, have := range append(old, m) {
		should := append(olds, want)[i]
		if got := maps.Collect(have.all()); !maps.Equal(got, should) || have.len() != len(should) {
			t.Fatalf("copy %d holds %d entries and says %d, want %d", i, len(got), have.len(), len(should))
		}
		for key, value := range should {
			if got, ok := have.get(key); !ok || got != value {
				t.Fatalf("copy %d: %s is %d, %t, want %d", i, key, got, ok, value)
			}
		}
		if _, ok := have.get("none"); ok {
			t.Fatal("what was never there is found")
		}
	}
}

// The parts must stay small, or a change copies much: names differ in a few digits only.
func TestPartsAreSmall(t *testing.T) {
	e := newParted[string, int](hashName).edit()
	for i := range 100_000 {
		e.put(fmt.Sprintf("tenant-%06d/requests", i), i)
	}
	most := 0
	for _, inner := range e.parts {
		for _, part := range inner {
			most = max(most, len(part))
		}
	}
	if most > 100 {
		t.Errorf("a part of %d, where 24 are the mean", most)
	}
}
