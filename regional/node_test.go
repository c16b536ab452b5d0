//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

var acme = allocation.Labels{"tenant": "acme"}

const shared = `{"budget":"acme/requests","unit":"requests","limit":%d,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},
	"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"eu":1}}}`

// Without this the last permits of a shared budget could be sold twice: 150 spenders race through two nodes for 40.
func TestLastPermitsThroughTwoNodes(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 40), forEver())
	nodes := []*regional.Node{node(t, h, "eu", "n1", url), node(t, h, "eu", "n2", url)}
	for _, n := range nodes {
		ready(t, n, 1)
	}
	var admitted, refused, other atomic.Int64
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			d := decide(nodes[i%2], request(allocation.Spend, fmt.Sprint("id-", i), acme, nil))
			switch d.Reason {
			case allocation.Allow:
				admitted.Add(1)
			case allocation.RegionShareSpent, allocation.CeilingReached:
				refused.Add(1)
			default:
				other.Add(1)
				t.Errorf("%s: %s", d.Reason, d.Detail)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 40 || refused.Load() != 110 {
		t.Errorf("admitted %d, refused %d, other %d; want 40 and 110", admitted.Load(), refused.Load(), other.Load())
	}
	if s, r := spent(t, nodes[0], "acme/requests"); s != 40 || r != 0 {
		t.Errorf("spent %d, reserved %d; want 40 and 0", s, r)
	}
}

// Without this a retry could be charged again: one id goes through both nodes at once, many times, and again later.
func TestOneIDThroughBothNodes(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 1000), forEver())
	nodes := []*regional.Node{node(t, h, "eu", "n1", url), node(t, h, "eu", "n2", url)}
	for _, n := range nodes {
		ready(t, n, 1)
	}
	for round := range 20 {
		id := fmt.Sprint("round-", round)
		var first atomic.Int64
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				d := decide(nodes[i%2], request(allocation.Spend, id, acme, nil))
				if d.Reason != allocation.Allow {
					t.Errorf("%s: %s", d.Reason, d.Detail)
				}
				if !d.Replayed {
					first.Add(1)
				}
			})
		}
		all.Wait()
		if first.Load() != 1 {
			t.Errorf("%d first answers of %s; want 1", first.Load(), id)
		}
	}
	if s, _ := spent(t, nodes[0], "acme/requests"); s != 20 {
		t.Errorf("spent %d for 20 ids", s)
	}
}

// Without this one tenant's ids could shadow another's.
func TestOneIDOfTwoTenants(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, `{"budget":"all","unit":"requests","limit":10,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},
		"allocation":{"policy":"fixed","weights":{"eu":1}}}`, forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	for _, tenant := range []string{"a", "b"} {
		if d := decide(n, request(allocation.Spend, "same", allocation.Labels{"tenant": tenant}, nil)); !d.Admitted() || d.Replayed {
			t.Errorf("tenant %s: %s, replayed %v", tenant, d.Reason, d.Replayed)
		}
	}
	if s, _ := spent(t, n, "all"); s != 2 {
		t.Errorf("spent %d; want 2", s)
	}
}

// Without this a request could be charged to one budget and refused by another.
func TestFitsOneOfTwoBudgets(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 100), forEver())
	h.declare(t, `{"budget":"acme/tokens","unit":"tokens","limit":1000,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},
		"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"eu":1}}}`, forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 2)
	if d := decide(n, request(allocation.Spend, "big", acme, map[string]int64{"requests": 1, "tokens": 900})); !d.Admitted() {
		t.Fatalf("%s: %s", d.Reason, d.Detail)
	}
	if d := decide(n, request(allocation.Spend, "more", acme, map[string]int64{"requests": 1, "tokens": 900})); d.Admitted() || d.Blames != "acme/tokens" {
		t.Errorf("%s blames %q; want a refusal by acme/tokens", d.Reason, d.Blames)
	}
	requests, _ := spent(t, n, "acme/requests")
	tokens, _ := spent(t, n, "acme/tokens")
	if requests != 1 || tokens != 900 {
		t.Errorf("spent %d requests and %d tokens; want 1 and 900", requests, tokens)
	}
}

// Without this a region would stop with its link, or go on without a share.
func TestCutOffRegionSpendsItsShareAndNoMore(t *testing.T) {
	h, url := newHub("eu", "us"), clustertest.Database(t)
	h.declare(t, `{"budget":"acme/requests","unit":"requests","limit":10,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},
		"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"eu":6,"us":4}}}`, forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	h.setCut(true)
	var answers []allocation.Decision
	for i := range 6 {
		answers = append(answers, decide(n, request(allocation.Spend, fmt.Sprint("id-", i), acme, nil)))
		if d := answers[i]; !d.Admitted() {
			t.Fatalf("spend %d: %s: %s", i, d.Reason, d.Detail)
		}
	}
	d := decide(n, request(allocation.Spend, "one-more", acme, nil))
	if d.Reason != allocation.RegionShareSpent {
		t.Errorf("%s; want region_share_spent", d.Reason)
	}
	if d := decide(n, request(allocation.Spend, "id-3", acme, nil)); !d.Admitted() || !d.Replayed {
		t.Errorf("a retry while cut off: %s, replayed %v", d.Reason, d.Replayed)
	}
	if d := decide(n, request(allocation.Spend, "id-3", acme, nil)); !reflect.DeepEqual(d.Budgets, answers[3].Budgets) {
		t.Errorf("a retry is told %+v, first it was %+v", d.Budgets, answers[3].Budgets)
	}
}

// Without this a reservation whose caller died would hold its permits for ever.
func TestReservationLapses(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 10), forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	r := request(allocation.Reserve, "r", acme, map[string]int64{"requests": 4})
	r.Lifetime = 1
	if d := decide(n, r); !d.Admitted() || d.State != allocation.StateReserved {
		t.Fatalf("%s %s", d.Reason, d.State)
	}
	eventually(t, "the reservation lapses as spent", func() bool {
		d, ok, err := n.Find(context.Background(), r.Key)
		return err == nil && ok && d.State == allocation.StateLapsedSpent
	})
	if s, res := spent(t, n, "acme/requests"); s != 4 || res != 0 {
		t.Errorf("spent %d, reserved %d; want 4 and 0", s, res)
	}
}

// overdue tells how long ago a timer for d rang that was set beside a call: what the call was late beyond the machine itself.
func overdue(d time.Duration) (late func() time.Duration) {
	rang := make(chan time.Time, 1)
	time.AfterFunc(d, func() { rang <- time.Now() })
	return func() time.Duration {
		now := time.Now()
		return now.Sub(<-rang)
	}
}

// Without this an answer could come after its deadline, or a request that was refused in time be charged later.
func TestDatabaseAway(t *testing.T) {
	h, c := newHub("eu"), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	h.declare(t, fmt.Sprintf(shared, 100), forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		late := overdue(300 * time.Millisecond)
		d := n.Decide(context.Background(), []allocation.Request{request(allocation.Spend, fmt.Sprint("away-", i), acme, nil)}, time.Now().Add(300*time.Millisecond))[0]
		if a := allocation.AnswerTo(d.Reason); a.Status != 503 || late() > 300*time.Millisecond {
			t.Errorf("%s; want 503 within the deadline", d.Reason)
		}
	}
	eventually(t, "the node says that it is not ready", func() bool { return !n.Status().Ready })
	if err := c.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node admits again by itself", func() bool {
		return decide(n, request(allocation.Spend, "after", acme, nil)).Admitted()
	})
	for i := range 5 { // the truth, whatever the first answer was
		decide(n, request(allocation.Spend, fmt.Sprint("away-", i), acme, nil))
	}
	if s, _ := spent(t, n, "acme/requests"); s != 6 {
		t.Errorf("spent %d for 6 ids", s)
	}
}

// Without this a retry on the other side of a boundary would be charged to the next period as well; or the share of a new
// period would not be there.
func TestReplayAcrossABoundary(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, `{"budget":"acme/requests","unit":"requests","limit":3,"window":{"every":"2s"},
		"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"eu":1}}}`, periodsOf(2))
	nodes := []*regional.Node{node(t, h, "eu", "n1", url), node(t, h, "eu", "n2", url)}
	for _, n := range nodes {
		ready(t, n, 1)
	}
	var first allocation.Decision
	eventually(t, "a period is open to spend in", func() bool {
		first = decide(nodes[0], request(allocation.Spend, "old", acme, nil))
		return first.Admitted()
	})
	period := first.Budgets[0].Period
	var attempts atomic.Int64
	var all sync.WaitGroup
	for i := range 8 { // on both sides of the boundary, through both nodes
		all.Go(func() {
			eventually(t, "the next period is spent", func() bool {
				if d := decide(nodes[i%2], request(allocation.Spend, "old", acme, nil)); !d.Replayed || d.Budgets[0].Period != period {
					t.Errorf("%s, replayed %v, period %s; want the first answer, of %s", d.Reason, d.Replayed, d.Budgets[0].Period, period)
					return true
				}
				d := decide(nodes[i%2], request(allocation.Spend, fmt.Sprint("new-", attempts.Add(1)), acme, nil))
				return d.Reason == allocation.CeilingReached && d.Budgets[0].Period > period
			})
		})
	}
	all.Wait()
	account, err := nodes[0].Export(context.Background(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range account.Usage {
		if u.Spent > 3 {
			t.Errorf("period %s: %d spent of 3", u.Period, u.Spent)
		}
	}
}

// Without this a region that stopped by itself would look merely silent from outside, as if it went on alone.
func TestLostHistoryIsTold(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 10), forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	aside(t, url, "update tranche.writers set value = 'not what was written'")
	eventually(t, "admissions stop", func() bool {
		return decide(n, request(allocation.Spend, "x", acme, nil)).Reason == allocation.HistoryLost
	})
	eventually(t, "the coordinator hears it", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.stopped == string(allocation.HistoryLost)
	})
}

// Without this a window that has not begun, or is over, would make a healthy region look as if it could not go on.
func TestRunwayCountsWhatRuns(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 10), forEver())
	h.declare(t, `{"budget":"later","unit":"requests","limit":1,"window":{"once":{"from":"2099-01-01T00:00:00Z"}},
		"match":{"tenant":"later"},"allocation":{"policy":"fixed","weights":{"eu":1}}}`,
		allocation.Periods{Instants: []allocation.Instant{4070908800, allocation.Never}})
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 2)
	if r := n.Status().Runway; r != nil {
		t.Errorf("runway %+v; want none, since nothing that runs ends", *r)
	}
}
