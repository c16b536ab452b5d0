package coordinator_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// The leader does by itself what other tests do by name: without it a region that joins never gets a permit.
func TestLeaderWorks(t *testing.T) {
	w := newWorld(t, 0)
	w.store = openEtcd(t)
	w.start()
	r := w.replicas[0]
	east := w.addRegion("us-east")
	w.must(r, 201, "POST", "/v1/budgets", `{"budget":"b","unit":"requests","limit":7,"window":{"every":"1m"},"allocation":{"policy":"home","region":"us-east"}}`)
	deadline := time.Now().Add(patience)
	for east.spend("b", 7) == 0 {
		call := east.call()
		call.WaitMillis = 1000
		a, err := r.Sync(t.Context(), call)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("no permits: %v", err)
		}
		east.apply(a)
	}
}

// A replica that stops in the middle of everything leaves nothing half done, and another goes on.
func TestReplicaStops(t *testing.T) {
	w, east, west := two(t, 2)
	east.spend("acme/requests", 11)
	east.untilQuiet(w.replicas[0])
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range 20 {
			w.ask(w.replicas[0], "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", fmt.Sprint(100+i)), "If-Match", fmt.Sprintf(`"%d"`, i+1))
		}
	})
	w.replicas[0].stop()
	wait.Wait()
	w.replicas = w.replicas[1:]
	r := w.replicas[0]
	for range 3 {
		w.settle(r)
		east.untilQuiet(r)
		west.untilQuiet(r)
	}
	shares := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests")
	if shares.Terms[0].Version != shares.Version || shares.Terms[0].Regions[1].Spent != 11 {
		t.Errorf("%+v", shares.Terms[0])
	}
	w.conserved()
}

// Many budgets: opening them, bringing them on to a new region and paging them to it must not be quadratic.
func TestManyBudgets(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east := w.addRegion("us-east")
	const many = 700
	budgets := make(chan int)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range budgets {
				status, answer := w.ask(r, "POST", "/v1/budgets", fmt.Sprintf(
					`{"budget":"b%04d","unit":"requests","limit":5,"window":{"calendar":"month"},"match":{"n":"%d"},"allocation":{"policy":"home","region":"us-east"}}`, i, i))
				if status != 201 {
					t.Errorf("%d %v", status, answer)
				}
			}
		})
	}
	for i := range many {
		budgets <- i
	}
	close(budgets)
	wait.Wait()
	east.join(r)
	east.untilQuiet(r)
	if len(east.budgets) != many || len(east.shares) != many {
		t.Errorf("%d budgets, %d shares", len(east.budgets), len(east.shares))
	}
	w.clock.move(28 * 24 * time.Hour)
	east.sync(r)
	w.settle(r)
	east.untilQuiet(r)
	if len(east.shares) != 2*many {
		t.Errorf("%d shares after the next month was opened", len(east.shares))
	}
	for ref, share := range east.shares {
		if e, _ := share.EntryFor(ref.Term, allocation.General); e.Granted != 5 {
			t.Fatalf("%v: %+v", ref, share)
		}
	}
}

// What is known of a shard is bounded in etcd: the oldest usage goes first, and then whole accounts, marked as such.
func TestStatementsAreBounded(t *testing.T) {
	var shares []allocation.ShareStatement
	for term := range 1500 {
		st := allocation.ShareStatement{Budget: "b", Term: allocation.Instant(60 * term), Generation: allocation.Generation{Number: 1, Stamp: "0123456789abcdef"}}
		for range 3 {
			st.Usage = append(st.Usage, allocation.UsageStatement{Period: st.Term, Class: allocation.General, Spent: 1})
		}
		shares = append(shares, st)
	}
	for n, trimmed := range map[int]bool{10: false, 300: true, 1500: true} {
		value := coordinator.StatementValue(shares[:n])
		var d coordinator.StatementDocument
		if err := json.Unmarshal(value, &d); err != nil {
			t.Fatal(err)
		}
		last := d.Shares[len(d.Shares)-1]
		if len(value) > 64<<10 || d.Trimmed != trimmed || last.Term != shares[n-1].Term || n == 300 && (len(d.Shares) != n || len(last.Usage) != 3) {
			t.Errorf("%d shares: %d bytes, %d shares, trimmed %v, last %+v", n, len(value), len(d.Shares), d.Trimmed, last)
		}
	}
}
