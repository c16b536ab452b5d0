package coordinator_test

import (
	"encoding/json"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// An owner states a term until it hears that it is closed, so some statement comes after. If what it says were kept, it would
// stay in memory and in etcd for ever: within days it would push out of the documents what runs.
func TestStatementsOfClosedTermsAreNotKept(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	r := w.replicas[0]
	ref := allocation.ShareRef{Budget: "acme/requests", Term: first.Term}
	share, used := east.shares[ref], east.used[ref]
	for range 2 {
		east.untilQuiet(r)
		west.untilQuiet(r)
		w.persist(r)
	}
	stated := func() (closed, others int) {
		items, _, err := w.store.Range(t.Context(), coordinator.Root+"statements/us-east/")
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			var d coordinator.StatementDocument
			if err := json.Unmarshal(item.Value, &d); err != nil {
				t.Fatal(err)
			}
			for _, st := range d.Shares {
				if st.Budget == ref.Budget && st.Term == ref.Term {
					closed++
				} else {
					others++
				}
			}
		}
		return closed, others
	}
	if closed, _ := stated(); closed != 1 {
		t.Fatalf("the term stands %d times in the statements before it is closed", closed)
	}
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	east.shares[ref], east.used[ref], east.changed[ref] = share, used, 0
	if a := east.sync(r); len(a.Closed) == 0 {
		t.Error("the owner is not told that the term is closed")
	}
	w.persist(r)
	if closed, others := stated(); closed != 0 || others == 0 {
		t.Errorf("the closed term stands %d times in the statements, others %d times", closed, others)
	}
	w.stillClosed(r, get[coordinator.ClosingsAnswer](w, r, "/v1/closings?budget=acme/requests").Closings[0])
}
