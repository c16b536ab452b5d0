package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

const exposedExports = `{"budget":"acme/exports","unit":"requests","limit":50,"window":{"calendar":"day","zone":"UTC"},"match":{"tenant":"acme","capability":"export"},"allocation":{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}}`

func exposedBudget(t *testing.T, e coordinator.Exposure, name string) coordinator.ExposedBudget {
	t.Helper()
	for _, b := range e.Budgets {
		if b.Budget == name {
			return b
		}
	}
	t.Fatalf("%s is not in %+v", name, e.Budgets)
	return coordinator.ExposedBudget{}
}

func regionOf(t *testing.T, b coordinator.ExposedBudget, name string) coordinator.ExposedRegion {
	t.Helper()
	for _, r := range b.Regions {
		if r.Region == name {
			return r
		}
	}
	t.Fatalf("%s is not in %+v", name, b.Regions)
	return coordinator.ExposedRegion{}
}

// A person who finds a leaked key decides by these numbers whether to block an account: what was spent, the most that can
// still be spent, and what a revocation leaves, also where nobody can be told.
func TestExposureOfAKey(t *testing.T) {
	w, east, west := two(t, 2)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", exposedExports)
	w.must(r, 201, "POST", "/v1/budgets", strings.ReplaceAll(exposedExports, "acme", "globex"))
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", `{"name":"acme","tenant":"acme","capabilities":["export"]}`)
	east.untilQuiet(r)
	west.untilQuiet(r)
	east.spend("acme/exports", 10)
	west.spend("acme/exports", 5)
	east.untilQuiet(r)
	west.untilQuiet(r)
	e := get[coordinator.Exposure](w, r, "/v1/exposure?key="+k.Fingerprint)
	if len(e.Budgets) != 2 || e.Cut != nil || e.Subject.Tenant != "acme" || *e.Since != k.Made {
		t.Fatalf("%+v", e)
	}
	b := exposedBudget(t, e, "acme/exports")
	if b.Charged != coordinator.EveryRequest || b.Spent != (coordinator.Figure{Units: 15, Kind: coordinator.FigureAtMost}) || b.Now.Units != 35 || b.AfterCut != (coordinator.Figure{Kind: coordinator.FigureExact}) {
		t.Fatalf("%+v", b)
	}
	if len(e.Bound) != 1 || e.Bound[0].Now != 35 || e.Bound[0].AfterCut != 0 {
		t.Fatalf("%+v", e.Bound)
	}

	// The west is cut off, and then the key is revoked: there it goes on, with what the region holds, in this period and ahead.
	w.clock.move(2 * time.Minute)
	east.untilQuiet(r)
	w.must(r, 200, "POST", "/v1/keys/acme/revoke", `{"reason":"leaked"}`)
	before := get[coordinator.Exposure](w, r, "/v1/exposure?key="+k.Fingerprint)
	if before.Cut == nil || before.Cut.How != coordinator.CutRevoked || enforcedIn(before, "us-east") || exposedBudget(t, before, "acme/exports").AfterCut.Units != 35 {
		t.Fatalf("before any region heard of it: %+v", before)
	}
	east.untilQuiet(r)
	e = get[coordinator.Exposure](w, r, "/v1/exposure?key="+k.Fingerprint)
	b = exposedBudget(t, e, "acme/exports")
	if !enforcedIn(e, "us-east") || enforcedIn(e, "eu-west") || b.AfterCut.Units != 15 || b.AfterCut.Kind != coordinator.FigureAtMost {
		t.Fatalf("%+v", e)
	}
	far := regionOf(t, b, "eu-west")
	if near := regionOf(t, b, "us-east"); near.AfterCut.Units != 0 || near.AfterCut.Kind != coordinator.FigureExact || near.Now.Units != 20 {
		t.Errorf("%+v", near)
	}
	if far.Cause != coordinator.CauseUnreachable || far.AfterCut.Units != 15 || far.AfterAhead.Units == 0 || far.AfterAhead != far.Ahead || far.StatedAt == nil {
		t.Errorf("%+v", far)
	}
	west.untilQuiet(r)
	e = get[coordinator.Exposure](w, r, "/v1/exposure?key="+k.Fingerprint)
	if b = exposedBudget(t, e, "acme/exports"); !enforcedIn(e, "eu-west") || b.AfterCut.Units != 0 || b.AfterCutAhead.Units != 0 {
		t.Errorf("%+v", b)
	}
}

// reserve holds some of the running period's permits.
func (f *fakeRegion) reserve(budget string, n int64) {
	f.w.t.Helper()
	f.spend(budget, 0) // makes the row
	for ref, rows := range f.used {
		for key, u := range rows {
			if ref.Budget == budget && key.Period <= allocation.At(f.w.clock.now()) && allocation.At(f.w.clock.now()) < u.Until {
				u.Reserved = n
				rows[key], f.changed[ref] = u, 0
			}
		}
	}
}

// What is reserved is settled after a revocation too, at its true cost, as far as that fits: so it bounds nothing. If this fails the
// report says that 2 can still be spent, and the next settlement spends 20.
func TestExposureOfAReservation(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", exposedExports)
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", `{"name":"acme","tenant":"acme","capabilities":["export"]}`)
	east.untilQuiet(r)
	west.untilQuiet(r)
	east.spend("acme/exports", 10)
	east.reserve("acme/exports", 2)
	w.must(r, 200, "POST", "/v1/keys/acme/revoke", `{"reason":"leaked"}`)
	east.untilQuiet(r)
	west.untilQuiet(r)
	e := get[coordinator.Exposure](w, r, "/v1/exposure?key="+k.Fingerprint)
	b := exposedBudget(t, e, "acme/exports")
	if near := regionOf(t, b, "us-east"); near.Reserved != 2 || near.Now.Units != 20 || near.AfterCut != near.Now || near.AfterAhead != (coordinator.Figure{Kind: coordinator.FigureExact}) {
		t.Errorf("%+v", near)
	}
	if far := regionOf(t, b, "eu-west"); far.AfterCut != (coordinator.Figure{Kind: coordinator.FigureExact}) || b.AfterCut != (coordinator.Figure{Units: 20, Kind: coordinator.FigureAtMost}) {
		t.Errorf("%+v, in all %+v", far, b.AfterCut)
	}
}

func enforcedIn(e coordinator.Exposure, region string) bool {
	for _, r := range e.Regions {
		if r.Region == region {
			return r.Enforced
		}
	}
	return false
}

// Which budgets bound a subject: all that it may be charged to are shown, and only those that each of its requests is charged
// to bound it. An unknown figure says that it is unknown.
func TestExposureOfTenantsAndCapabilities(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", exposedExports)
	w.must(r, 201, "POST", "/v1/budgets", strings.NewReplacer("acme/exports", "shy", `"match"`, `"enforcement":"shadow","match"`).Replace(exposedExports))
	east.untilQuiet(r)
	west.untilQuiet(r)
	e := get[coordinator.Exposure](w, r, "/v1/exposure?tenant=acme")
	if b := exposedBudget(t, e, "acme/exports"); b.Charged != coordinator.SomeRequests || b.Now.Units != 50 {
		t.Errorf("%+v", b)
	}
	e = get[coordinator.Exposure](w, r, "/v1/exposure?tenant=acme&capability=export")
	if b := exposedBudget(t, e, "acme/exports"); b.Charged != coordinator.EveryRequest {
		t.Errorf("%+v", b)
	}
	if b := exposedBudget(t, e, "shy"); b.Enforced {
		t.Errorf("%+v", b)
	}
	if e = get[coordinator.Exposure](w, r, "/v1/exposure?tenant=acme&capability=search"); len(e.Budgets) != 1 {
		t.Errorf("%+v", e.Budgets)
	}
	long := get[coordinator.Exposure](w, r, "/v1/exposure?capability=export&since=2020-01-01T00:00:00Z")
	if b := exposedBudget(t, long, "acme/exports"); b.Spent.Kind != coordinator.FigureUnknown || b.Charged != coordinator.SomeRequests {
		t.Errorf("%+v", b)
	}
	w.must(r, 201, "POST", "/v1/blocks", `{"match":{"tenant":"acme"},"for":"2h","reason":"leaked"}`)
	east.untilQuiet(r)
	west.untilQuiet(r)
	e = get[coordinator.Exposure](w, r, "/v1/exposure?tenant=acme&capability=export")
	if b := exposedBudget(t, e, "acme/exports"); e.Cut == nil || e.Cut.How != coordinator.CutBlocked || b.AfterCut.Units != 0 || b.AfterCutAhead.Units != 0 {
		t.Errorf("%+v", e)
	}
	if e = get[coordinator.Exposure](w, r, "/v1/exposure?capability=export"); e.Cut != nil {
		t.Errorf("a block of one tenant is no cut of all: %+v", e.Cut)
	}
	for query, field := range map[string]string{
		"": "key", "?key=x&tenant=acme": "key", "?key=" + allocation.KeyText("a", "b"): "key", "?tenant=acme&since=now": "since",
		"?key=fp_00000000000000000000": "key", "?tenant=" + strings.Repeat("x", 300): "tenant", "?ky=1": "ky",
	} {
		if answer := w.request(r, "GET", "/v1/exposure"+query, nil); answer.Code != 422 || !strings.Contains(answer.Body.String(), `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
}
