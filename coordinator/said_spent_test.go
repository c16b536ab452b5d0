package coordinator_test

import (
	"testing"
	"time"

	"tranche/coordinator"
)

// What a region spent while it was cut off is told also where the term was closed by the call that said so, before anybody looked:
// the report and the mark of a write-off would say for good that nothing was.
func TestSpentLateInATermThatIsClosed(t *testing.T) {
	for name, writtenOff := range map[string]bool{"returned": false, "written off": true} {
		t.Run(name, func(t *testing.T) {
			besideOthers(t)
			w, east, west, r := cutEast(t)
			first := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
			if writtenOff {
				w.must(r, 201, "POST", "/v1/writeoffs", coordinator.WriteOffRequest{Budget: "acme/requests", Region: "us-east", Reason: "it burned down", By: "Ada"})
			}
			if n := east.spend("acme/requests", 30); n != 30 {
				t.Fatalf("us-east spends %d", n)
			}
			w.pass(2*time.Hour, west)
			east.closed, west.closed = first.Until, first.Until
			for range 3 {
				east.untilQuiet(r)
				west.untilQuiet(r)
				w.persist(r)
			}
			if w.closeTerms(r) == 0 {
				t.Fatal("nothing is closed")
			}
			w.pass(10*time.Second, east, west)
			w.pass(10*time.Second, east, west)
			late := int64(-1)
			if writtenOff {
				for _, o := range get[coordinator.WriteOffsList](w, r, "/v1/writeoffs").WriteOffs {
					late = o.LateSpent
				}
			} else {
				for _, e := range get[coordinator.StrandedReport](w, r, "/v1/stranded?history=true&budget=acme/requests").History {
					late = e.LateSpent
				}
			}
			if late != 30 {
				t.Errorf("%d were spent late, not 30", late)
			}
			w.conserved()
		})
	}
}
