package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

const zonedJSON = `{"budget":"acme/daily","unit":"requests","limit":100,"window":{"calendar":"day","zone":"Europe/Berlin"},"match":{"tenant":"acme"},` +
	`"allocation":{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}}`

// withoutBerlin is time-zone data that does not know the zone of zonedJSON: an older one, or one without its alias.
func withoutBerlin(name string) (*time.Location, error) {
	if name == "Europe/Berlin" {
		return nil, errors.New("unknown time zone Europe/Berlin")
	}
	return time.LoadLocation(name)
}

// A term that nobody opens ends in no_allocation for every request of a budget, hours later. Whoever looks before must be told
// of it by every replica, and by the one that cannot open it why.
func TestStatusNamesTermsThatAreNotOpened(t *testing.T) {
	w, east, west := two(t, 1)
	knows := w.replicas[0]
	w.spoil = func(c *coordinator.Config) { c.Zones = withoutBerlin }
	lacks := w.start()
	w.must(knows, 201, "POST", "/v1/budgets", zonedJSON)
	through := get[coordinator.SharesAnswer](w, knows, "/v1/shares/acme/daily").OpenedThrough
	untilNext := func(before time.Duration) {
		w.clock.move(through.Time().Add(-before).Sub(w.clock.now()))
		for _, r := range w.replicas {
			if err := r.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			east.sync(r)
			west.sync(r)
		}
		w.settle(lacks) // the other budget's terms, and what it can of this one
		if err := knows.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		before     time.Duration // the end of what is opened; the next term is due 24 h before
		lacks, has string
	}{
		{24*time.Hour + time.Minute, "", ""},
		{24*time.Hour - 10*time.Second, "", ""},
		{
			24*time.Hour - time.Minute, "warning: budget acme/daily: a term is due since 2026-05-04T22:00:01Z and is not opened: the time-zone data of this coordinator's machine does not know Europe/Berlin; " +
				"regions can spend what they hold until 2026-05-05T22:00:00Z; bring the time-zone data there up to date",
			"warning: budget acme/daily: a term is due since 2026-05-04T22:00:01Z and is not opened; regions can spend what they hold until 2026-05-05T22:00:00Z; ask the coordinator that leads",
		},
		{-time.Minute, "critical: budget acme/daily: a term is due", "critical: budget acme/daily: a term is due"},
	} {
		untilNext(c.before)
		for r, want := range map[*replica]string{lacks: c.lacks, knows: c.has} {
			got := strings.Join(problemsOf(w, r, "budget acme/daily: "), "\n")
			late := get[coordinator.Status](w, r, "/v1/status").Late
			if !strings.HasPrefix(got, want) || (got == "") != (want == "") || len(late) != min(1, len(want)) {
				t.Errorf("%s before its end, on the replica that lacks the zone: %v: %q, not %q; %+v", c.before, r == lacks, got, want, late)
			}
		}
	}
	w.settle(knows)
	for _, r := range w.replicas {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := problemsOf(w, r, "budget acme/daily: "); len(got) > 0 {
			t.Errorf("it is opened: %q", got)
		}
	}
}

// A replica whose clock was ahead may have written when a budget was changed last. That lies in the future, and hid for as long
// that a term was late: the leader that could not open it kept the others from it.
func TestTermIsLateWhoeverChangedTheBudget(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", zonedJSON)
	w.spoil = func(c *coordinator.Config) { c.Runtime, c.Zones = ahead{w.clock, 30 * time.Hour}, withoutBerlin }
	fast := w.start()
	east.sync(fast)
	answer := w.must(fast, 200, "PUT", "/v1/budgets/acme/daily", strings.Replace(zonedJSON, "100", "90", 1), "If-Match", `"1"`)
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.clock.move(12*time.Hour + time.Minute) // 22:01: the term of the day after tomorrow is due
	east.sync(r)
	west.sync(r)
	if got := problemsOf(w, r, "budget acme/daily: "); len(got) != 1 || !strings.HasPrefix(got[0], "warning: budget acme/daily: a term is due since 2026-05-04T22:00:01Z and is not opened") {
		t.Errorf("%q; it was changed by %v", got, answer)
	}
}

// ahead is a clock that goes wrong.
type ahead struct {
	*clock
	by time.Duration
}

func (a ahead) Now() time.Time { return a.now().Add(a.by) }

// A leader that cannot open terms, and keeps the others from it for as long as it lives, stops every region when the opened terms
// end. It leaves the work to another replica.
func TestUnfitLeaderLeavesTheWorkToAnother(t *testing.T) {
	for name, unfit := range map[string]func(*coordinator.Config, *clock){
		"it lacks a zone": func(c *coordinator.Config, _ *clock) { c.Zones = withoutBerlin },
		"its clock is a minute ahead": func(c *coordinator.Config, at *clock) {
			c.Runtime = ahead{at, time.Minute}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			w.store = w.store.(followers).Store // they lead
			w.spoil = func(c *coordinator.Config) { unfit(c, w.clock) }
			first := w.start()
			w.until("the unfit replica leads", func() bool { return get[coordinator.Status](w, first, "/v1/status").Leading })
			w.spoil = nil
			other := w.start()
			east, west := w.addRegion("us-east"), w.addRegion("eu-west")
			for range 2 {
				east.sync(other)
				west.sync(other)
			}
			w.must(other, 201, "POST", "/v1/budgets", zonedJSON)
			through := get[coordinator.SharesAnswer](w, other, "/v1/shares/acme/daily").OpenedThrough
			w.clock.move(through.Time().Add(-24*time.Hour + time.Second).Sub(w.clock.now()))
			w.until("the next term is opened", func() bool {
				east.sync(other)
				west.sync(other)
				w.persist(other) // three seconds later; the one that leads compares its clock with calls that it did not take itself
				return get[coordinator.SharesAnswer](w, other, "/v1/shares/acme/daily").OpenedThrough > through
			})
			if now := allocation.At(w.clock.now()); now >= through {
				t.Errorf("it was opened at %s, when the one before it was over", now)
			}
			w.until("the other one leads", func() bool { return get[coordinator.Status](w, other, "/v1/status").Leading })
			w.conserved()
		})
	}
}

// until asks again and again, until it is so.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		for _, r := range w.replicas {
			_ = r.Refresh(ctx) // so that it does not spin; what it cannot read now it reads the next time
		}
		if is() {
			return
		}
	}
	w.t.Fatalf("%s: not so after %s", what, patience)
}
