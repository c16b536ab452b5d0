package regional

import "testing"

// The loss of a writer is recorded, or another one registered, and the answer to that is lost: there is no writer whose
// transaction could be looked for, and a node that looked for it all the same would end.
func TestNothingToResolve(t *testing.T) {
	ln := &lane{slot: &slot{}}
	if ln.resolve(t.Context(), nil) {
		t.Error("something was committed")
	}
}
