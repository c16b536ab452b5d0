//go:build unix

package postgres

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
)

func recordOf(name, tenant, id string, at time.Time, reason allocation.Reason) *allocation.Record {
	return &allocation.Record{
		Format: allocation.RecordFormat, Name: name,
		Request: allocation.RecordedRequest{
			Op: allocation.Spend, Key: allocation.IDKey{Credential: "edge", Tenant: tenant, ID: id}, Labels: allocation.Labels{"tenant": tenant},
			Correlation: "c-" + name, Fingerprint: "fp_0f3a9c61d2b84e75a610",
		},
		Decision: allocation.Decision{Reason: reason, Action: allocation.ActionRefused, Op: allocation.Spend, At: at.UnixMicro()},
	}
}

func names(list []allocation.Record) (out []string) {
	for _, r := range list {
		out = append(out, r.Name)
	}
	return out
}

// A refusal is found again by whatever an operator has in hand, whole, the newest first, a page at a time. If this fails
// the sample is kept for nobody.
func TestRecordsAreFound(t *testing.T) {
	o := newOwner(t)
	now := time.Now()
	var records []*allocation.Record
	for i := range 5 {
		tenant := []string{"acme", "globex"}[i%2]
		records = append(records, recordOf(fmt.Sprint("d", i), tenant, fmt.Sprint("a", i), now.Add(time.Duration(i)*time.Second), allocation.CeilingReached))
	}
	records[4].Decision.Reason, records[4].Request.Correlation = allocation.Blocked, "not \xff text \x00"
	if err := o.store.KeepRecords(t.Context(), records, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    regional.RecordQuery
		want []string
	}{
		{regional.RecordQuery{}, []string{"d4", "d3", "d2", "d1", "d0"}},
		{regional.RecordQuery{Decision: "d1"}, []string{"d1"}},
		{regional.RecordQuery{AdmissionID: "a2"}, []string{"d2"}},
		{regional.RecordQuery{Correlation: "c-d3"}, []string{"d3"}},
		{regional.RecordQuery{Tenant: "acme"}, []string{"d4", "d2", "d0"}},
		{regional.RecordQuery{Reason: "blocked"}, []string{"d4"}},
		{regional.RecordQuery{Fingerprint: "fp_0f3a9c61d2b84e75a610", Tenant: "globex"}, []string{"d3", "d1"}},
		{regional.RecordQuery{Fingerprint: "fp_ffffffffffffffffffff"}, nil},
		{regional.RecordQuery{From: now.Add(time.Second).UnixMicro(), Until: now.Add(3 * time.Second).UnixMicro()}, []string{"d2", "d1"}},
	} {
		c.q.Limit = 10
		list, next, err := o.store.FindRecords(t.Context(), c.q)
		if err != nil || next != 0 || !slices.Equal(names(list), c.want) {
			t.Errorf("%+v: %v, next %d, %v; want %v", c.q, names(list), next, err, c.want)
		}
	}
	list, next, err := o.store.FindRecords(t.Context(), regional.RecordQuery{Limit: 2})
	if err != nil || next == 0 || !reflect.DeepEqual(list[1], *records[3]) {
		t.Fatalf("%+v, next %d, %v", list, next, err)
	}
	list, next, err = o.store.FindRecords(t.Context(), regional.RecordQuery{Limit: 3, Before: next})
	if err != nil || next != 0 || !slices.Equal(names(list), []string{"d2", "d1", "d0"}) {
		t.Errorf("%v, next %d, %v", names(list), next, err)
	}
}

// The sample is bounded in rows and in age. If this fails it fills the disk of the database that admissions need.
func TestRecordsAreBounded(t *testing.T) {
	o := newOwner(t)
	now := time.Now()
	var records []*allocation.Record
	var counts []regional.RefusedCount
	for i := range 20 {
		at := now.Add(time.Duration(i-20) * time.Hour)
		records = append(records, recordOf(fmt.Sprint("d", i), "acme", "a", at, allocation.CeilingReached))
		counts = append(counts, regional.RefusedCount{At: at.Unix() / 60 * 60, Tenant: "acme", Reason: allocation.CeilingReached, Requests: 1})
	}
	if err := o.store.KeepRecords(t.Context(), records, counts); err != nil {
		t.Fatal(err)
	}
	prune := func(b regional.RecordBounds) (rows, sums int) {
		if err := o.store.PruneRecords(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return int(o.number("select count(*) from tranche.refusals")), int(o.number("select count(*) from tranche.refused"))
	}
	if rows, sums := prune(regional.RecordBounds{Rows: 100, Age: 10 * allocation.Hour, Count: 100}); rows < 9 || rows > 10 || sums < 9 || sums > 10 {
		t.Errorf("by age: %d, %d", rows, sums)
	}
	if rows, sums := prune(regional.RecordBounds{Rows: 3, Age: 10 * allocation.Hour, Count: 4}); rows != 3 || sums != 4 {
		t.Errorf("by rows: %d, %d", rows, sums)
	}
	list, _, err := o.store.FindRecords(t.Context(), regional.RecordQuery{Limit: 9})
	if err != nil || !slices.Equal(names(list), []string{"d19", "d18", "d17"}) {
		t.Errorf("what is left: %v, %v", names(list), err)
	}
}

// A storm of one tenant, and one of many, leave what was refused before them: a person who looks an hour later for another tenant's
// refusal finds it. If this fails, whoever makes noise makes evidence disappear.
func TestStormsLeaveOlderRecords(t *testing.T) {
	o := newOwner(t)
	start := time.Now().Add(-time.Hour).Truncate(time.Minute)
	serial := 0
	refuse := func(minute, n int, tenant func(i int) string) {
		t.Helper()
		var records []*allocation.Record
		for i := range n {
			serial++
			records = append(records, recordOf(fmt.Sprint("d", serial), tenant(i), "a", start.Add(time.Duration(minute)*time.Minute+time.Duration(i)*time.Millisecond), allocation.CeilingReached))
		}
		if err := o.store.KeepRecords(t.Context(), records, nil); err != nil {
			t.Fatal(err)
		}
		if err := o.store.PruneRecords(t.Context(), regional.RecordBounds{Rows: 100, Age: 10 * allocation.Hour, Count: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	left := func(where string) int64 { return o.number("select count(*) from tranche.refusals where " + where) }
	refuse(0, 3, func(int) string { return "quiet" })
	refuse(1, 90, func(int) string { return "acme" })
	refuse(2, 500, func(int) string { return "acme" })
	if all, quiet, storm := left("true"), left("tenant = 'quiet'"), left("tenant = 'acme' and at < "+fmt.Sprint(start.Add(2*time.Minute).UnixMicro())); all != 100 || quiet != 3 || storm < 5 {
		t.Errorf("after a storm of one tenant %d are left, %d of the quiet one, %d of its first minute", all, quiet, storm)
	}
	refuse(3, 500, func(i int) string { return fmt.Sprint("made-up-", i) })
	if all, quiet, storm := left("true"), left("tenant = 'quiet'"), left("tenant like 'made-up-%'"); all != 100 || quiet != 3 || storm < 20 || left("tenant = 'acme'") < 10 {
		t.Errorf("after a storm of many %d are left, %d of the quiet one, %d of the storm", all, quiet, storm)
	}
	refuse(4, 2, func(int) string { return "quiet" })
	if quiet := left("tenant = 'quiet'"); quiet != 5 {
		t.Errorf("%d of the quiet one are left: nothing new is kept", quiet)
	}
}

// Counts of several nodes add up, and are told apart by what is asked for.
func TestRefusedAddsUp(t *testing.T) {
	o := newOwner(t)
	minute := time.Now().Unix() / 3600 * 3600
	count := func(at int64, capability, tenant string, reason allocation.Reason, requests, units int64) regional.RefusedCount {
		return regional.RefusedCount{At: at, Capability: capability, Tenant: tenant, Priority: allocation.Batch, Reason: reason, Unit: "tokens", Requests: requests, Units: units}
	}
	for range 2 { // two nodes
		err := o.store.KeepRecords(t.Context(), nil, []regional.RefusedCount{
			count(minute, "model", "acme", allocation.CeilingReached, 2, 20), count(minute, "model", "globex", allocation.CeilingReached, 1, 5),
			count(minute+60, "export", "acme", allocation.Deferred, 1, 1<<62),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := regional.RefusedBy{Capability: true, Tenant: true, Priority: true, Reason: true}
	for name, c := range map[string]struct {
		q    regional.RefusedQuery
		want []regional.RefusedCount
	}{
		"all apart": {regional.RefusedQuery{Every: 60, By: all}, []regional.RefusedCount{
			count(minute, "model", "acme", allocation.CeilingReached, 4, 40), count(minute, "model", "globex", allocation.CeilingReached, 2, 10),
			count(minute+60, "export", "acme", allocation.Deferred, 2, 1<<63-1),
		}},
		"by tenant": {regional.RefusedQuery{By: regional.RefusedBy{Tenant: true}, Until: minute + 60}, []regional.RefusedCount{
			{Tenant: "acme", Unit: "tokens", Requests: 4, Units: 40}, {Tenant: "globex", Unit: "tokens", Requests: 2, Units: 10},
		}},
		"of one": {regional.RefusedQuery{Tenant: "globex", Every: 3600, By: regional.RefusedBy{Reason: true}}, []regional.RefusedCount{
			{At: minute, Reason: allocation.CeilingReached, Unit: "tokens", Requests: 2, Units: 10},
		}},
	} {
		if list, err := o.store.RefusedOver(t.Context(), c.q); err != nil || !slices.Equal(list, c.want) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
}

// A tenant is kept until its time is over, and only so many are.
func TestKeptTenants(t *testing.T) {
	o := newOwner(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	keep := func(tenant string, until time.Time) bool {
		kept, err := o.store.KeepTenant(t.Context(), regional.KeptTenant{Tenant: tenant, Since: now, Until: until, By: "kim"})
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	keep("over", now.Add(-time.Second))
	for i := range regional.MaxKeptTenants {
		if !keep(fmt.Sprintf("t%02d", i), now.Add(time.Hour)) {
			t.Fatalf("%d is refused", i)
		}
	}
	if keep("more", now.Add(time.Hour)) {
		t.Error("one too many is taken")
	}
	if !keep("t00", now.Add(2*time.Hour)) {
		t.Error("one that is kept cannot be given another end")
	}
	list, err := o.store.KeptTenants(t.Context())
	if err != nil || len(list) != regional.MaxKeptTenants || list[0].Tenant != "t00" || !list[0].Until.Equal(now.Add(2*time.Hour)) || list[0].By != "kim" {
		t.Errorf("%+v, %v", list, err)
	}
}
