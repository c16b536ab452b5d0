package ownertest

import (
	"math"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

// Whoever judges a leaked key reads here what it cost: of this caller alone, to the unit, and only since the instant in question.
func testCharged(o *owner) {
	o.joined(100, "a", "b")
	a, b := o.key("a", 0), o.key("b", 0)
	me := id("x")
	o.mustCharge(allocation.Spend, "one", 3, a, b)
	o.mustCharge(allocation.Reserve, "two", 5, a)
	o.chargeOther("other", 7, a)
	first := o.found("one").At
	all := o.charged(regional.ChargedQuery{Credential: me.Credential})
	want := []regional.ChargedLine{
		{Budget: "a", Unit: "requests", Admissions: 2, Spent: 3, Reserved: 5, First: first, Last: o.found("two").At},
		{Budget: "b", Unit: "requests", Admissions: 1, Spent: 3, First: first, Last: first},
	}
	if !slices.Equal(all.Lines, want) || all.Kept > first || all.Kept == 0 || all.Now < first || all.More {
		o.Fatalf("%+v, want %+v", all, want)
	}
	if byTenant := o.charged(regional.ChargedQuery{Tenant: me.Tenant}); !slices.Equal(byTenant.Lines, want) {
		o.Fatalf("by tenant %+v", byTenant)
	}
	if others := o.charged(regional.ChargedQuery{Credential: me.Credential, Tenant: "nobody"}); len(others.Lines) != 0 {
		o.Fatalf("of another tenant %+v", others)
	}
	if late := o.charged(regional.ChargedQuery{Tenant: me.Tenant, Since: first + 1}); len(late.Lines) != 1 || late.Lines[0].Admissions != 1 || late.Lines[0].Reserved != 5 {
		o.Fatalf("since the second %+v", late)
	}
	if others := o.charged(regional.ChargedQuery{Tenant: "somebody"}); len(others.Lines) != 1 || others.Lines[0].Spent != 7 {
		o.Fatalf("of the other %+v", others)
	}
}

func (o *owner) charged(q regional.ChargedQuery) regional.Charged {
	o.Helper()
	c, err := o.Owner.Charged(o.Context(), q)
	o.must(err)
	return c
}

// chargeOther is an admission of another caller and tenant.
func (o *owner) chargeOther(name string, n int64, k allocation.UsageKey) {
	o.Helper()
	key := allocation.IDKey{Credential: "another", Tenant: "somebody", ID: name}
	batch := o.begin(o.w, regional.Want{IDs: []allocation.IDKey{key}, Usage: []regional.WantedUsage{o.wanted(k, true)}, Changes: math.MaxInt64})
	writes, ok := admission(batch.Seen(), allocation.Spend, name, n, k)
	if !ok {
		batch.Abandon()
		o.Fatalf("%s does not fit", name)
	}
	writes.Inserted[0].IDKey = key
	o.must(batch.Commit(o.Context(), writes))
}
