package coordinator

import (
	"slices"
	"testing"
	"time"

	"tranche/allocation"
)

// A portion that always began at the first budget would never come to the last ones while something in front cannot be
// done.
func TestPortionsGoRound(t *testing.T) {
	all := []string{"a", "b", "c", "d", "e"}
	var from cursor
	visit := func(each int) (names []string) {
		portion(all, &from, func(budget string) []int {
			names = append(names, budget)
			return make([]int, each)
		})
		return names
	}
	for _, want := range [][]string{{"a", "b", "c"}, {"d", "e", "a"}, {"b", "c", "d"}, {"e", "a", "b"}} {
		if got := visit(maxPerTick / 2 * 4 / 5); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if got := visit(0); !slices.Equal(got, []string{"c", "d", "e", "a", "b"}) || from != "" {
		t.Errorf("%v, then from %q", got, from)
	}
}

// Regions are told, and woken, in one order, whichever was heard of first.
func TestRegionsAreInOrder(t *testing.T) {
	s := newState(func() time.Time { return time.Time{} })
	s.deployment = &doc[Deployment]{}
	for _, name := range []string{"us-east", "ap-south", "eu-west", "ap-south"} {
		s.region(name).doc = &doc[RegionDocument]{}
	}
	if got, want := s.members().Regions, []string{"ap-south", "eu-west", "us-east"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	refs := sortedRefs(map[allocation.ShareRef]bool{
		{Budget: "b", Term: 1}: true, {Budget: "a", Term: 10}: true, {Budget: "a", Term: 2}: true, {Budget: "c", Term: 1}: true,
	}, map[allocation.ShareRef]bool{{Budget: "c", Term: 1}: false})
	if want := []allocation.ShareRef{{Budget: "a", Term: 2}, {Budget: "a", Term: 10}, {Budget: "b", Term: 1}}; !slices.Equal(refs, want) {
		t.Errorf("%v, want %v", refs, want)
	}
}

// Without this a replica whose clock was ahead for a moment forgot for good that a ledger has to follow its budget: a
// lowered limit, or a region that joined, never reached the periods that were opened already.
func TestBehindOutlivesAWrongClock(t *testing.T) {
	s := &Service{state: newState(func() time.Time { return time.Time{} })}
	l := &doc[allocation.Ledger]{value: allocation.Ledger{Budget: "a", Periods: allocation.Periods{First: 100, Step: 10, Count: 2}}}
	ref := refOf(l.value)
	s.state.terms["a"], s.state.ledgers[ref], s.state.behind[ref] = []*doc[allocation.Ledger]{l}, l, true
	if got := s.behindOf("a", 5000); len(got) != 0 || s.state.countBehind(5000) != 0 {
		t.Errorf("with the clock ahead: %v", got)
	}
	if got := s.behindOf("a", 105); len(got) != 1 || s.state.countBehind(105) != 1 {
		t.Errorf("with the clock right again: %v", got)
	}
}
