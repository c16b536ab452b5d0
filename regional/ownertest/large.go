package ownertest

import (
	"fmt"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

// large is how many ids a large batch has: as many as an owner may write in another way than a few.
const large = 150

// names are so many ids of one batch, in their order.
func names(prefix string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return list
}

// beginLarge begins a batch of many ids.
func (o *owner) beginLarge(w regional.Writer, list []string, keys ...allocation.UsageKey) regional.Batch {
	o.Helper()
	want := o.want(list[0], keys...)
	want.IDs = nil
	for _, name := range list {
		want.IDs = append(want.IDs, id(name))
	}
	slices.SortFunc(want.IDs, allocation.IDKey.Compare)
	return o.begin(w, want)
}

// admissions spends a permit of each row for each of the ids.
func (o *owner) admissions(seen *regional.Seen, list []string, keys ...allocation.UsageKey) (all regional.Writes) {
	o.Helper()
	for _, name := range list {
		one, ok := admission(seen, allocation.Spend, name, 1, keys...)
		if !ok {
			o.Fatalf("%s does not fit", name)
		}
		all.Usage = one.Usage
		all.Inserted = append(all.Inserted, one.Inserted...)
	}
	slices.SortFunc(all.Inserted, func(a, b *allocation.Admission) int { return a.Compare(b.IDKey) })
	return all
}

// What a large batch admitted must be there as whole as what a small one did: of rows that are alike and of others.
func testLarge(o *owner) {
	o.joined(10*large, "a", "b")
	a, b := o.key("a", 0), o.key("b", 0)
	list := names("é", large)
	batch := o.beginLarge(o.w, list, a, b)
	writes := o.admissions(batch.Seen(), list, a)
	for i, one := range writes.Inserted {
		switch i % 3 {
		case 1:
			one.Payload, one.Ladder = "another payload.", &allocation.LadderStep{Budget: "a", Action: allocation.ActionDegraded, Percent: 80}
		case 2:
			one.Lines = append(one.Lines, allocation.AdmissionLine{UsageKey: b, Unit: "tokens", OnLapse: "spend", Enforcement: allocation.Shadow, Would: allocation.NotHome})
		}
	}
	writes.Inserted[5].Lines = nil
	o.must(batch.Commit(o.Context(), writes))
	other := o.beginLarge(o.second, list, a)
	defer other.Abandon()
	if got := other.Seen(); len(got.IDs) != large || got.Usage[a].Spent != large {
		o.Fatalf("%d ids and %d spent, of %d", len(got.IDs), got.Usage[a].Spent, large)
	}
	for _, want := range writes.Inserted {
		got := other.Seen().IDs[want.IDKey]
		if (got.Ladder == nil) != (want.Ladder == nil) || got.Ladder != nil && *got.Ladder != *want.Ladder {
			o.Fatalf("%+v", got)
		}
		g, w := *got, *want
		g.Ladder, w.Ladder = nil, nil
		if fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) {
			o.Fatalf("read back\n%+v\nwritten\n%+v", g, w)
		}
	}
}

// One id of a large batch that another node has inserted meanwhile must keep all of the batch out, and nothing else: decided
// once more, all of it goes in, and the id is charged once.
func testLargeSameID(o *owner) {
	o.joined(10*large, "a", "b")
	a, b := o.key("a", 0), o.key("b", 0)
	list, twice := names("id", large), fmt.Sprintf("id-%03d", large/2)
	few, many := o.begin(o.w, o.want(twice, a)), o.beginLarge(o.second, list, b)
	one, _ := admission(few.Seen(), allocation.Spend, twice, 1, a)
	o.must(few.Commit(o.Context(), one))
	o.mustBe(many.Commit(o.Context(), o.admissions(many.Seen(), list, b)), regional.ErrRaced)
	if committed, err := o.second.Resolve(o.Context()); err != nil || committed {
		o.Fatal(committed, err)
	}
	again := o.beginLarge(o.second, list, b)
	seen := again.Seen()
	if len(seen.IDs) != 1 || seen.IDs[id(twice)] == nil || seen.Usage[b].Spent != 0 {
		o.Fatalf("%d ids of a batch that was not committed, %d spent", len(seen.IDs), seen.Usage[b].Spent)
	}
	list = slices.DeleteFunc(list, func(name string) bool { return name == twice })
	o.must(again.Commit(o.Context(), o.admissions(seen, list, b)))
	if o.spent(a) != 1 || o.spent(b) != large-1 {
		o.Fatalf("spent %d and %d", o.spent(a), o.spent(b))
	}
}
