//go:build unix

package regional_test

import (
	"context"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional/postgres/cluster/clustertest"
)

// askedHub is a hub that answers demand, as every call tells it: a region that lacks permits is given a chunk. A call that
// only asks hears of it with its next one.
type askedHub struct {
	*hub
	heard int // calls that told of demand
	deaf  bool
}

func (h *askedHub) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	h.allot(call)
	if !call.Ask {
		return h.hub.Sync(ctx, call)
	}
	return allocation.SyncAnswer{Format: allocation.SyncFormat}, nil
}

func (h *askedHub) allot(call allocation.SyncCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deaf || len(call.Demand) == 0 {
		return
	}
	h.heard++
	d := call.Demand[0]
	for i, l := range h.ledgers {
		next, changed, err := l.Allot(0, []allocation.Seeker{
			{Holder: h.members.Holders[0], Askable: true, Used: d.Used, Rate: d.Rate, Unmet: d.Unmet},
		}, h.generation(l.Generation.Number))
		if err == nil && changed {
			h.ledgers[i] = next
		}
	}
}

// waitingBudget is a budget whose requests wait for so long.
func waitingBudget(wait string) string {
	return `{"budget":"acme/requests","unit":"requests","limit":40,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},
	"match":{"tenant":"acme"},"allocation":{"policy":"demand"},"wait_for_share":"` + wait + `"}`
}

// A request that finds its region's share spent while others have some is topped up, and its caller never hears of it. It
// is charged once.
func TestWaitForShare(t *testing.T) {
	h := &askedHub{hub: newHub("eu", "us")}
	h.declare(t, waitingBudget("30s"), forEver()) // longer than any machine needs: how fast it is topped up is not judged here
	n := nodeOf(t, h, "eu", "n1", clustertest.Database(t))
	ready(t, n, 1)
	for i := range 25 { // the base is 10
		r := request(allocation.Spend, "id-"+string(rune('a'+i)), acme, nil)
		d := decideWithin(n, r, time.Minute)
		if !d.Admitted() {
			t.Fatalf("spend %d: %s: %s", i, d.Reason, d.Detail)
		}
	}
	if used, _ := spent(t, n, "acme/requests"); used != 25 {
		t.Errorf("%d are spent", used)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard == 0 {
		t.Error("the region never told of its demand")
	}
}

// Where no top-up comes, the wait ends with wait_for_share or the request's own deadline, whichever is sooner, and the
// refusal says what it always said: nothing is charged.
func TestWaitForShareEnds(t *testing.T) {
	for name, c := range map[string]struct {
		wait            string
		deadline, least time.Duration
	}{
		"with the deadline":   {"30s", 4 * time.Second, 3 * time.Second},
		"with wait_for_share": {"2s", 5 * time.Minute, 1900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { waitEnds(t, c.wait, c.deadline, c.least) })
	}
}

// farBelow is how long the sooner of two ends may take here, on a slow machine too: the other one is 30 s away or more.
const farBelow = 25 * time.Second

func waitEnds(t *testing.T, wait string, deadline, least time.Duration) {
	h := &askedHub{hub: newHub("eu", "us"), deaf: true}
	h.declare(t, waitingBudget(wait), forEver())
	n := nodeOf(t, h, "eu", "n1", clustertest.Database(t))
	ready(t, n, 1)
	first := decideWithin(n, request(allocation.Spend, "all", acme, map[string]int64{"requests": 10}), time.Minute)
	if !first.Admitted() {
		t.Fatalf("%+v", first)
	}
	began := time.Now()
	d := decideWithin(n, request(allocation.Spend, "more", acme, nil), deadline)
	if took := time.Since(began); d.Reason != allocation.RegionShareSpent || took < least || took > farBelow {
		t.Errorf("%s after %s", d.Reason, took)
	}
	// A check asks what would be: it never waits.
	began = time.Now()
	d = decideWithin(n, request(allocation.Check, "look", acme, nil), 5*time.Minute)
	if took := time.Since(began); d.Reason != allocation.RegionShareSpent || took > farBelow {
		t.Errorf("a check: %s after %s", d.Reason, took)
	}
	if used, reserved := spent(t, n, "acme/requests"); used != 10 || reserved != 0 {
		t.Errorf("%d spent, %d reserved", used, reserved)
	}
}
