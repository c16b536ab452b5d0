package ownertest

import (
	"fmt"

	"tranche/allocation"
)

// A frozen coordinator thaws by what owners say that they hold: all of it, as it is stored, and with what was spent of it.
func testStateHeld(o *owner) {
	budgets := []string{"a", "b", "c", "d"}
	o.joined(10, budgets...)
	o.mustCharge(allocation.Spend, "one", 3, o.key("a", 0))
	opened := o.grant("b", 2, 12, 12)
	opened.OpeningSpent = 7
	a := o.answer()
	a.Shares = append(a.Shares, opened)
	o.apply(a)
	var shares []allocation.ShareStatement
	numbers := map[int]int64{}
	next := 0
	for next < allocation.Shards {
		var call allocation.SyncCall
		var err error
		call, next, err = o.Owner.StateHeld(o.Context(), o.w, next)
		o.must(err)
		for _, st := range call.Statements {
			if st.Base != 0 {
				o.Fatalf("a part of shard %d is stated", st.Shard)
			}
			numbers[st.Shard] = st.Number
			shares = append(shares, st.Shares...)
		}
	}
	if len(shares) != len(budgets) {
		o.Fatalf("%d shares are stated", len(shares))
	}
	for _, st := range shares {
		want := o.share(st.Budget)
		if st.Held == nil || fmt.Sprint(*st.Held) != fmt.Sprint(want) || st.Generation != want.Generation {
			o.Fatalf("%+v, want %+v", st.Held, want)
		}
		if first := st.Budget == "b"; first != (st.Held.OpeningSpent == 7) {
			o.Fatalf("what was spent before the first period: %+v", st.Held)
		}
		if used := st.Budget == "a"; used != (len(st.Usage) == 1) || used && st.Usage[0].Spent != 3 {
			o.Fatalf("%+v", st)
		}
	}
	call, err := o.Owner.Statements(o.Context(), o.w, nil)
	o.must(err)
	for _, st := range call.Statements {
		if st.Number <= numbers[st.Shard] {
			o.Fatalf("shard %d: %d after %d", st.Shard, st.Number, numbers[st.Shard])
		}
		for _, sh := range st.Shares {
			if sh.Held != nil {
				o.Fatal("what is held is stated to one who did not ask")
			}
		}
	}
}
