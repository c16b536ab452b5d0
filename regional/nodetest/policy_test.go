//go:build unix

package nodetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/nodetest"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const place = "us-east"

// link is the way to the coordinator, which can be cut.
type link struct {
	regional.Coordinator
	cut atomic.Bool
}

func (l *link) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	if l.cut.Load() {
		return allocation.SyncAnswer{}, errors.New("the link is cut")
	}
	return l.Coordinator.Sync(ctx, call)
}

// node is a real node over a real Postgres. Budgets are written without what they all have.
func node(t *testing.T, budgets ...string) (*nodetest.Node, *link) {
	t.Helper()
	l := &link{}
	o := nodetest.Options{Region: place, Config: func(c *regional.Config) { l.Coordinator, c.Coordinator = c.Coordinator, l }}
	for _, b := range budgets {
		o.Budgets = append(o.Budgets, `{"unit":"requests","window":{"once":{"from":"2020-01-01T00:00:00Z"}},"allocation":{"policy":"home","region":"us-east"},`+b+`}`)
	}
	n, err := nodetest.Start(t.Context(), clustertest.Database(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n, l
}

func ask(n *nodetest.Node, op allocation.Op, id string, p allocation.Priority, cost int64) allocation.Decision {
	r := allocation.Request{
		Op: op, Key: allocation.IDKey{Credential: "gateway", Tenant: "acme", ID: id}, Labels: allocation.Labels{"tenant": "acme"},
		Costs: map[string]int64{"requests": cost}, Priority: p,
	}
	return decided(n, r)
}

// decided asks by the same id until somebody has decided: a slow machine may not have got as far in time.
func decided(n *nodetest.Node, r allocation.Request) (d allocation.Decision) {
	for range 20 {
		d = n.Decide(context.Background(), []allocation.Request{r}, time.Now().Add(30*time.Second))[0]
		if d.Reason != allocation.DatabaseUnavailable && d.Reason != allocation.Overloaded && d.Reason != allocation.OutcomeUnknown {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	return d
}

// crowd asks at once, each under its own id, and counts the answers by action and reason.
func crowd(n *nodetest.Node, op allocation.Op, name string, p allocation.Priority, callers int) map[string]int {
	var mu sync.Mutex
	var wait sync.WaitGroup
	out := map[string]int{}
	for i := range callers {
		wait.Go(func() {
			d := ask(n, op, fmt.Sprint(name, "-", i), p, 1)
			mu.Lock()
			defer mu.Unlock()
			out[d.Action+" "+string(d.Reason)]++
		})
	}
	wait.Wait()
	return out
}

// used is what is spent and what is reserved of a budget, by the database.
func used(t *testing.T, n *nodetest.Node, budget string) (spent, reserved int64) {
	t.Helper()
	account, err := n.Export(t.Context(), "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range account.Usage {
		if u.Budget == budget {
			spent, reserved = spent+u.Spent, reserved+u.Reserved
		}
	}
	return spent, reserved
}

// Five hundred at once on the last permits: exactly those that may be had, and what is protected goes to essential traffic
// only. If this fails a race sells a permit twice, or batch work takes what was kept.
func TestLastPermits(t *testing.T) {
	n, _ := node(t, `"budget":"a","limit":400,"protected":150`)
	if d := ask(n, allocation.Spend, "first", allocation.Interactive, 50); !d.Admitted() {
		t.Fatalf("%+v", d)
	}
	var batch, interactive map[string]int
	var wait sync.WaitGroup
	wait.Go(func() { batch = crowd(n, allocation.Reserve, "batch", allocation.Batch, 250) })
	wait.Go(func() { interactive = crowd(n, allocation.Reserve, "interactive", allocation.Interactive, 250) })
	wait.Wait()
	if got := batch["preferred allow"] + interactive["preferred allow"]; got != 200 {
		t.Errorf("%d of 200 were had: %v, %v", got, batch, interactive)
	}
	if got := batch["refused only_protected_left"] + interactive["refused only_protected_left"]; got != 300 {
		t.Errorf("%v, %v", batch, interactive)
	}
	if _, reserved := used(t, n, "a"); reserved != 200 {
		t.Errorf("%d are reserved", reserved)
	}
	essential := crowd(n, allocation.Reserve, "essential", allocation.Essential, 500)
	if essential["preferred allow"] != 150 || essential["refused region_share_spent"] != 350 {
		t.Errorf("%v", essential)
	}
	if spent, reserved := used(t, n, "a"); spent != 50 || reserved != 350 {
		t.Errorf("%d spent, %d reserved of 400", spent, reserved)
	}
	// A batch reservation that cost more takes nothing that is protected, nor what others hold.
	if d := ask(n, allocation.Release, "essential-0", "", 0); !d.Admitted() && d.Reason != allocation.AdmissionIDReleased {
		t.Errorf("%+v", d)
	}
	for i := range 250 {
		ask(n, allocation.Settle, fmt.Sprint("batch-", i), allocation.Essential, 3)
	}
	if spent, reserved := used(t, n, "a"); spent+reserved > 400 {
		t.Errorf("%d spent, %d reserved of 400", spent, reserved)
	}
}

// The exact ceiling passes, and one over does not, for each priority.
func TestExactCeiling(t *testing.T) {
	for p, most := range map[allocation.Priority]int64{allocation.Batch: 7, allocation.Interactive: 7, allocation.Essential: 10} {
		n, _ := node(t, `"budget":"a","limit":10,"protected":3`)
		if d := ask(n, allocation.Spend, "over", p, most+1); d.Admitted() {
			t.Errorf("%s: one over: %+v", p, d)
		}
		if d := ask(n, allocation.Spend, "exact", p, most); !d.Admitted() || d.Budgets[0].Remaining != 0 {
			t.Errorf("%s: the exact ceiling: %+v", p, d)
		}
		if d := ask(n, allocation.Spend, "more", p, 1); d.Admitted() {
			t.Errorf("%s: after it: %+v", p, d)
		}
		if spent, _ := used(t, n, "a"); spent != most {
			t.Errorf("%s: %d are spent", p, spent)
		}
	}
}

// A minute's debit never survives a failed daily debit, however many ask at once. If this fails a caller who is over its day loses
// its minute too, or the other way round.
func TestMinuteAndDay(t *testing.T) {
	n, _ := node(t, `"budget":"day","limit":30,"protected":10`, `"budget":"minute","limit":1000`)
	got := crowd(n, allocation.Spend, "x", allocation.Interactive, 200)
	if got["preferred allow"] != 20 || got["refused only_protected_left"] != 180 {
		t.Errorf("%v", got)
	}
	for _, budget := range []string{"day", "minute"} {
		if spent, reserved := used(t, n, budget); spent != 20 || reserved != 0 {
			t.Errorf("%s: %d spent, %d reserved", budget, spent, reserved)
		}
	}
	again := crowd(n, allocation.Spend, "x", allocation.Interactive, 200) // the same ids: replays, and refusals that bound nothing
	if spent, _ := used(t, n, "minute"); spent != 20 || again["preferred allow"] != 20 {
		t.Errorf("%d spent after a retry of all: %v", spent, again)
	}
}

// What is degraded is charged to each of its budgets, to the last permit, and a replay that is read back from the database names
// the same route. If this fails a cheaper route leads around the limit.
func TestDegradedIsCharged(t *testing.T) {
	n, _ := node(t, `"budget":"a","limit":100,"ladder":{"interactive":{"degrade_at":60,"route":"small"},"batch":{"defer_at":50}}`, `"budget":"b","limit":1000`)
	got := crowd(n, allocation.Spend, "x", allocation.Interactive, 300)
	if got["preferred allow"] != 60 || got["degraded allow"] != 40 || got["refused ceiling_reached"] != 200 {
		t.Errorf("%v", got)
	}
	for _, budget := range []string{"a", "b"} {
		if spent, _ := used(t, n, budget); spent != 100 {
			t.Errorf("%s: %d spent", budget, spent)
		}
	}
	again := crowd(n, allocation.Spend, "x", allocation.Interactive, 300)
	if again["preferred allow"] != 60 || again["degraded allow"] != 40 {
		t.Errorf("replays: %v", again)
	}
}

// Cut off for longer than its budgets allow, a region refuses where the tenant said so, and goes on within its share, and no
// further, where it said that. If this fails one of the two declarations is a word only.
func TestStaleEvidenceInBothModes(t *testing.T) {
	n, l := node(t, `"budget":"strict","limit":50,"match":{"mode":"strict"},"max_evidence_age":"2s"`,
		`"budget":"within","limit":50,"match":{"mode":"within"},"max_evidence_age":"2s","on_stale_evidence":"admit"`)
	look := func(op allocation.Op, mode, id string) allocation.Decision {
		r := allocation.Request{
			Op: op, Key: allocation.IDKey{Credential: "gateway", ID: id}, Labels: allocation.Labels{"mode": mode},
		}
		return decided(n, r)
	}
	of := func(mode, id string) allocation.Decision { return look(allocation.Spend, mode, id) }
	until := func(reason allocation.Reason, what string) allocation.Decision {
		deadline, tick := time.After(60*time.Second), time.NewTicker(20*time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			d := look(allocation.Check, "strict", fmt.Sprint(what, i))
			if d.Reason == reason {
				return d
			}
			select {
			case <-deadline:
				t.Fatalf("%s: still %s", what, d.Reason)
			case <-tick.C:
			}
		}
	}
	until(allocation.Allow, "in contact")
	fresh, tick := look(allocation.Check, "within", "look"), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for tries := 0; tries < 1000 && len(fresh.Budgets) > 0 && fresh.Budgets[0].Stale != nil; tries++ { // for a moment, on a slow machine
		<-tick.C
		fresh = look(allocation.Check, "within", "look")
	}
	if !fresh.Admitted() || fresh.Budgets[0].Stale != nil || fresh.Evidence.ObservedAt == 0 || fresh.Evidence.LedgerRevision == 0 {
		t.Errorf("in contact: %+v", fresh)
	}
	if d := of("within", "fresh"); !d.Admitted() {
		t.Errorf("in contact: %+v", d)
	}
	l.cut.Store(true)
	d := until(allocation.EvidenceStale, "cut off")
	if age := d.At - d.Evidence.ObservedAt; age <= 2_000_000 || d.Evidence.LedgerRevision == 0 || d.Blames != "strict" {
		t.Errorf("%+v", d)
	}
	before, _ := used(t, n, "strict")
	admitted := int64(1)
	for i := range 70 {
		switch d := of("within", fmt.Sprint("w", i)); {
		case d.Admitted():
			if admitted++; d.Budgets[0].Stale == nil || d.Budgets[0].Stale.AtMost != 50 {
				t.Fatalf("%d: it does not say its bound: %+v", i, d)
			}
		case d.Reason != allocation.CeilingReached:
			t.Fatalf("%d: %+v", i, d)
		}
		if d := of("strict", fmt.Sprint("s", i)); d.Reason != allocation.EvidenceStale {
			t.Fatalf("%d: strict admits: %+v", i, d)
		}
	}
	if spent, _ := used(t, n, "within"); spent != 50 || admitted != 50 {
		t.Errorf("%d spent of a share of 50, %d admitted", spent, admitted)
	}
	if after, _ := used(t, n, "strict"); after != before {
		t.Errorf("refusals charged %d", after-before)
	}
	l.cut.Store(false)
	until(allocation.Allow, "in contact again")
}

// Under overload essential traffic is the last to be refused, and is never refused while a permit is left. If this fails a cap turns
// an incident into an outage of what matters most.
func TestEssentialIsRefusedLast(t *testing.T) {
	n, _ := node(t, `"budget":"a","limit":300,"protected":30,"ladder":"standard"`)
	order := []allocation.Priority{allocation.Essential, allocation.Interactive, allocation.Batch}
	admitted, first := map[allocation.Priority]int{}, map[allocation.Priority]int{}
	total := 0
	for i := range 400 {
		for _, p := range order {
			d := ask(n, allocation.Spend, fmt.Sprint(p, i), p, 1)
			switch {
			case d.Admitted():
				admitted[p], total = admitted[p]+1, total+1
			case first[p] == 0:
				first[p] = total
			}
		}
	}
	// 70 percent are 210, and 270 are not protected; who comes earlier in a round has taken one more by then.
	if total != 300 || first[allocation.Batch] != 212 || first[allocation.Interactive] != 271 || first[allocation.Essential] != 300 {
		t.Errorf("%v are admitted, and each was refused first when so many were spent of 300: %v", admitted, first)
	}
	if spent, _ := used(t, n, "a"); spent != 300 {
		t.Errorf("%d are spent of 300", spent)
	}
}
