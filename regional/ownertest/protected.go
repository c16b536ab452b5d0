package ownertest

import (
	"fmt"
	"slices"

	"tranche/allocation"
)

// protecting is a grant with a floor.
func (o *owner) protecting(budget string, generation, granted, target, protected int64) allocation.ShareGrant {
	g := o.grant(budget, generation, granted, target)
	g.Entries[0].Protected = protected
	return g
}

// What only essential traffic may spend must be in every row that a decision locks, follow each grant, and be returned
// last: one row without it would sell it to anybody.
func testProtected(o *owner) {
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{o.protecting("a", 1, 10, 10, 3)}
	o.apply(answer)
	used, full, unused := o.key("a", 0), o.key("a", 1), o.key("a", 2)
	o.mustCharge(allocation.Spend, "one", 2, used)
	o.mustCharge(allocation.Spend, "two", 6, full)
	if u := o.usage(used); u.Protected != 3 || u.SpendableBy(allocation.Batch, 10) != 5 || u.SpendableBy(allocation.Essential, 10) != 8 {
		o.Fatalf("%+v", u)
	}
	answer.Shares = []allocation.ShareGrant{o.protecting("a", 2, 10, 5, 2)}
	o.apply(answer)
	for k, want := range map[allocation.UsageKey]string{used: "5 returned, 1 for batch, 3", full: "2 returned, 0 for batch, 2"} {
		u := o.usage(k)
		got := fmt.Sprintf("%d returned, %d for batch, %d", u.Returned, u.SpendableBy(allocation.Batch, 10), u.SpendableBy(allocation.Essential, 10))
		if got != want || u.Protected != 2 {
			o.Fatalf("%+v: %s, want %s", u, got, want)
		}
	}
	if s := o.share("a"); s.Entries[0].Protected != 2 || s.Entries[0].Returned != 5 {
		o.Fatalf("%+v", s)
	}
	b := o.begin(o.w, o.want("four", unused))
	if u := b.Seen().Usage[unused]; u.Protected != 2 || u.Returned != 5 {
		o.Fatalf("made later: %+v", u)
	}
	b.Abandon()
	call, _, err := o.Owner.StateHeld(o.Context(), o.w, 0)
	o.must(err)
	for _, st := range call.Statements {
		for _, s := range st.Shares {
			if s.Held == nil || !slices.ContainsFunc(s.Held.Entries, func(e allocation.GrantEntry) bool { return e.Protected == 2 }) {
				o.Fatalf("states %+v", s.Held)
			}
		}
	}
	// A region that gives all back keeps no floor.
	answer.Shares = []allocation.ShareGrant{o.protecting("a", 3, 10, 0, 0)}
	o.apply(answer)
	if u := o.usage(full); u.Returned != 4 || u.Protected != 0 || u.Spendable(10) != 0 {
		o.Fatalf("%+v", u)
	}
	i := o.grant("t/{caller}", 1, 10, 10)
	i.Template, i.Entries[0].Protected = true, 4
	answer.Shares = []allocation.ShareGrant{i}
	o.apply(answer)
	k := o.key("t/{caller}", 0)
	k.Instance = "ann"
	o.mustCharge(allocation.Spend, "five", 1, k)
	if u := o.usage(k); u.Protected != 4 || u.SpendableBy(allocation.Interactive, 10) != 5 {
		o.Fatalf("an instance: %+v", u)
	}
	i.Generation, i.Entries[0].Protected = allocation.Generation{Number: 2, Stamp: "g2"}, 1
	answer.Shares = []allocation.ShareGrant{i}
	o.apply(answer)
	if u := o.usage(k); u.Protected != 1 {
		o.Fatalf("an instance, after a grant: %+v", u)
	}
}
