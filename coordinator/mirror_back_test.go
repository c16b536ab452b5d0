package coordinator_test

import (
	"context"
	"testing"
)

// An etcd that was put back does not have the write that was acknowledged just before, and its revision may never rise to that
// again. If whoever made it waited on, an only coordinator would wait for ever: it writes nothing else until then.
func TestWaitForWhatTheStoreLostEnds(t *testing.T) {
	store := openEtcd(t)
	commitRaw(t, store, puts(document("a"), "1"))
	m, _ := mirroring(t, store)
	waitFor(t, m, 0)
	shown, _ := m.Evidence()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.WaitFor(ctx, shown+5); err == nil || ctx.Err() != nil {
		t.Errorf("wait for a revision that is not there: %v", err)
	}
}
