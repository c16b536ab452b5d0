package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// acts are the audited acts of one kind.
func (w *world) acts(r *replica, act string) (lines []coordinator.AuditEntry) {
	w.t.Helper()
	for _, l := range get[coordinator.AuditPage](w, r, "/v1/audit?limit=1000").Lines {
		if l.Act == act {
			lines = append(lines, l)
		}
	}
	return lines
}

// flagOf is what a region is flagged with.
func (w *world) flagOf(r *replica, region string) *coordinator.Contradiction {
	w.t.Helper()
	if err := r.Refresh(w.t.Context()); err != nil { // another replica may have flagged it
		w.t.Fatal(err)
	}
	for _, a := range get[coordinator.RegionsList](w, r, "/v1/regions").Regions {
		if a.Region == region {
			return a.Contradiction
		}
	}
	w.t.Fatalf("no region %s", region)
	return nil
}

// beside are the marks of a copy beside the original: the original's writers do not write there.
func beside() []allocation.Mark { return []allocation.Mark{{Writer: "copy's", Count: 1, Value: "c"}} }

// A second database behind a region's token calls for as long as nobody stops it. Without this it fills the audit, and an
// operator who looks between two of its calls sees nothing wrong.
func TestSecondDatabaseStaysVisible(t *testing.T) {
	for name, spoil := range map[string]func(*allocation.SyncCall){
		"empty":       func(c *allocation.SyncCall) { c.Incarnation, c.Home.System = "", "8" },
		"failed over": func(c *allocation.SyncCall) { c.Home.Timeline, c.Marks = 2, beside() },
		"copy":        func(c *allocation.SyncCall) { c.Marks = []allocation.Mark{{Writer: "copy's", Count: 1, Value: "c"}} },
	} {
		t.Run(name, func(t *testing.T) {
			w, east, _ := two(t, 2)
			second := func(r *replica) {
				t.Helper()
				call := east.call()
				spoil(&call)
				if a, err := r.Sync(t.Context(), call); err != nil || a.Refusal == "" {
					t.Fatalf("%+v %v", a, err)
				}
			}
			for i := range 20 {
				w.clock.move(10 * time.Second)
				second(w.replicas[i%2])
				east.sync(w.replicas[(i+1)%2])
				if c := w.flagOf(w.replicas[(i+1)%2], "us-east"); c == nil || !c.Other {
					t.Fatalf("after %d calls the flag is %+v", i, c)
				}
			}
			r := w.replicas[0]
			if n, m := len(w.acts(r, "region.contradicted")), len(w.acts(r, "region.fits")); n != 1 || m != 0 {
				t.Errorf("%d and %d audit lines", n, m)
			}
			if status := fmt.Sprint(get[coordinator.Status](w, r, "/v1/status").Problems); !strings.Contains(status, "another database calls with the token of region us-east") {
				t.Errorf("status says %s", status)
			}
			for range 4 { // seldom enough to be cleared each time
				w.clock.move(6 * time.Minute)
				east.sync(r)
				if c := w.flagOf(r, "us-east"); c != nil {
					t.Errorf("flagged long after the last refused call: %+v", c)
				}
				second(r)
				if w.flagOf(r, "us-east") == nil {
					t.Error("not flagged again")
				}
			}
			if n, m := len(w.acts(r, "region.contradicted")), len(w.acts(r, "region.fits")); n != 1 || m != 1 {
				t.Errorf("%d and %d audit lines in the end", n, m)
			}
		})
	}
}

// Whoever changes its name with every call must not fill the audit either; and the flag stands all the same.
func TestContradictionsAreBounded(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	for i := range 50 {
		call := east.call()
		call.Home.System, call.Marks = fmt.Sprint(i), beside()
		if a, err := r.Sync(t.Context(), call); err != nil || a.Refusal == "" {
			t.Fatalf("%+v %v", a, err)
		}
	}
	if n := len(w.acts(r, "region.contradicted")); n != 16 {
		t.Errorf("%d audit lines", n)
	}
	w.clock.move(80 * time.Second) // the recorded one called less than 90 s ago
	call := east.call()
	call.Home.System, call.Marks = "the last", beside()
	if _, err := r.Sync(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if c := w.flagOf(r, "us-east"); c == nil || c.Home.System != "the last" || !strings.Contains(c.Detail, "7us-east") {
		t.Errorf("flag %+v", c)
	}
}

// A call that a later one overtook is no other database: the next that fits clears it, or every delayed call would be an alarm.
func TestOvertakenCallIsClearedAtOnce(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	for range 3 {
		late := east.call()
		east.sync(r)
		if a, err := r.Sync(t.Context(), late); err != nil || a.Refusal == "" {
			t.Fatalf("%+v %v", a, err)
		}
		if c := w.flagOf(r, "us-east"); c == nil || c.Other {
			t.Errorf("flag %+v", c)
		}
		if east.sync(r); w.flagOf(r, "us-east") != nil {
			t.Error("still flagged")
		}
	}
	if n, m := len(w.acts(r, "region.contradicted")), len(w.acts(r, "region.fits")); n != 1 || m != 1 {
		t.Errorf("%d and %d audit lines", n, m)
	}
}

// The audit says from where a region's acts came, not only what its node calls itself.
func TestAuditNamesTheAddressOfARegion(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east := w.addRegion("us-east")
	if got := w.request(r, "POST", "/v1/sync", east.call(), "Authorization", "Bearer "+east.token); got.Code != 200 {
		t.Fatal(got.Body)
	}
	lines := w.acts(r, "region.incarnation")
	if len(lines) != 1 || lines[0].From != "192.0.2.1" || lines[0].Node != "us-east-node" || lines[0].Who != "region:us-east" {
		t.Errorf("%+v", lines)
	}
}
