//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"tranche/allocation"
	"tranche/regional/postgres/cluster/clustertest"
)

// strandedHub is a hub that tells a region which asks for it that the whole budget is stranded.
type strandedHub struct{ *hub }

func (h *strandedHub) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	a, err := h.hub.Sync(ctx, call)
	if err != nil || !slices.Contains(call.Low, "acme/requests") {
		return a, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.ledgers[0]
	a.Elsewhere = []allocation.Elsewhere{{
		Budget: l.Budget, Period: l.Periods.At(0).Start, Limit: 40, Generation: l.Generation.Number, Stranded: 40,
	}}
	return a, nil
}

// A region that holds nothing of a budget, since a former incarnation or another region holds all, must learn why, or its
// callers would be told to come again soon for as long as the period lasts.
func TestARegionWithoutAShareHearsThatItIsStranded(t *testing.T) {
	h := &strandedHub{newHub("eu", "us")}
	h.declare(t, `{"budget":"acme/requests","unit":"requests","limit":40,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},
	"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"us":1}}}`, forEver())
	n := node(t, h, "eu", "n1", clustertest.Database(t))
	ready(t, n, 1)
	i := 0
	eventually(t, "the refusal says that the rest is stranded", func() bool {
		i++
		d := decide(n, request(allocation.Spend, fmt.Sprint("id-", i), allocation.Labels{"tenant": "acme"}, nil))
		if d.Admitted() || d.Reason != allocation.RegionShareSpent && d.Reason != allocation.CapacityStranded {
			t.Fatalf("%+v", d)
		}
		return d.Reason == allocation.CapacityStranded
	})
}
