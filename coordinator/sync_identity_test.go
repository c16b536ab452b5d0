package coordinator_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// The answer that gives out an incarnation may be lost. The same database gets it again, since nothing was granted to it.
func TestFirstAnswerLost(t *testing.T) {
	w := newWorld(t, 1)
	east, r := w.addRegion("us-east"), w.replicas[0]
	first, err := r.Sync(t.Context(), east.call())
	if err != nil || first.Incarnation == "" || len(first.Shares) > 0 {
		t.Fatalf("%+v %v", first, err)
	}
	again := east.sync(r)
	if again.Incarnation != first.Incarnation || again.Refusal != "" {
		t.Errorf("incarnation %s, then %s %s", first.Incarnation, again.Incarnation, again.Detail)
	}
	east.sync(r)
	// From now on an empty database in its place has lost its history: it is another incarnation.
	empty := east.call()
	empty.Incarnation = ""
	if a, err := r.Sync(t.Context(), empty); err != nil || a.Refusal != "" || a.Incarnation == first.Incarnation {
		t.Errorf("%+v %v", a, err)
	}
}

// What an owner says of itself must be what was recorded: anything else is another database.
func TestWrongIdentityIsRefused(t *testing.T) {
	w, east, _ := two(t, 1)
	for name, c := range map[string]struct {
		spoil func(*allocation.SyncCall)
		says  string
	}{
		"home":      {func(c *allocation.SyncCall) { c.Home.System = "8" }, "system 8"},
		"timeline":  {func(c *allocation.SyncCall) { c.Home.Timeline = 2 }, "timeline 2"},
		"no writer": {func(c *allocation.SyncCall) { c.Marks = nil }, "lost commits"},
		"value":     {func(c *allocation.SyncCall) { c.Marks[0].Count--; c.Marks[0].Value = "zz" }, "lost commits"},
	} {
		t.Run(name, func(t *testing.T) {
			east.sync(w.replicas[0])
			call := east.call()
			c.spoil(&call)
			a, err := w.replicas[0].Sync(t.Context(), call)
			if err != nil || a.Refusal != string(allocation.HistoryLost) || !strings.Contains(a.Detail, c.says) || len(a.Shares) > 0 {
				t.Errorf("%+v %v", a, err)
			}
		})
	}
	lines := get[coordinator.AuditPage](w, w.replicas[0], "/v1/audit?limit=1000").Lines
	n := 0
	for _, l := range lines {
		if l.Act == "region.contradicted" {
			n++
		}
	}
	if n == 0 || n > 4 {
		t.Errorf("%d audit lines for 4 refusals", n)
	}
}

// A writer that ended cleanly may go; one that only vanished is lost history. The mark is forgotten durably before the
// owner is told so.
func TestEndedWriters(t *testing.T) {
	w, east, _ := two(t, 2)
	east.marks = append(east.marks, allocation.Mark{Writer: "second", Count: 1, Value: "b1"})
	east.sync(w.replicas[0])
	w.persist(w.replicas[0])
	gone := east.call()
	gone.Marks = gone.Marks[:1]
	if a, err := w.replicas[1].Sync(t.Context(), gone); err != nil || a.Refusal == "" {
		t.Fatalf("a writer vanished unnoticed: %+v %v", a, err)
	}
	east.ended = []string{"second"}
	if a := east.sync(w.replicas[0]); a.Refusal != "" || len(a.EndedAcknowledged) != 1 {
		t.Fatalf("%+v", a)
	}
	east.marks, east.ended = east.marks[:1], nil
	for _, r := range w.replicas {
		if a := east.sync(r); a.Refusal != "" {
			t.Errorf("a forgotten writer is missed: %s", a.Detail)
		}
	}
}

// Nobody learns from a refusal what was wrong with a token, and no role does what is another's.
func TestTokensAndRoles(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	with := func(token string) []string { return []string{"Authorization", token} }
	viewer := w.must(r, 201, "POST", "/v1/tokens", map[string]string{"name": "ops", "role": "viewer"})["token"].(string)
	for name, c := range map[string]struct {
		token, method, path string
		want                int
	}{
		"none":           {"", "GET", "/v1/status", 401},
		"garbage":        {"Bearer x", "GET", "/v1/status", 401},
		"unknown name":   {"Bearer tranche_admin_nobody_00", "GET", "/v1/status", 401},
		"wrong secret":   {"Bearer tranche_admin_first_00", "GET", "/v1/status", 401},
		"other scheme":   {"Basic " + w.admin, "GET", "/v1/status", 401},
		"viewer reads":   {"Bearer " + viewer, "GET", "/v1/status", 200},
		"viewer writes":  {"Bearer " + viewer, "POST", "/v1/regions", 403},
		"region reads":   {"Bearer " + east.token, "GET", "/v1/status", 403},
		"admin syncs":    {"Bearer " + w.admin, "POST", "/v1/sync", 403},
		"viewer tokens":  {"Bearer " + viewer, "GET", "/v1/tokens", 403},
		"metrics":        {"", "GET", "/metrics", 200},
		"health":         {"", "GET", "/healthz", 200},
		"ready":          {"", "GET", "/readyz", 200},
		"no such path":   {"Bearer " + w.admin, "GET", "/v2/x", 404},
		"no such budget": {"Bearer " + w.admin, "GET", "/v1/budgets/nope", 404},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.request(r, c.method, c.path, `{"region":"x"}`, with(c.token)...)
			if got.Code != c.want {
				t.Errorf("%d %s", got.Code, got.Body)
			}
			if got.Code == 401 && !strings.Contains(got.Body.String(), "a valid bearer token is required") {
				t.Errorf("says %s", got.Body)
			}
		})
	}
	w.must(r, 409, "DELETE", "/v1/tokens/first", nil)
	w.must(r, 201, "POST", "/v1/tokens", map[string]string{"name": "second", "role": "admin"})
	w.must(r, 200, "DELETE", "/v1/tokens/ops", nil)
	if r.Authenticate(viewer) != "" {
		t.Error("a revoked token is taken")
	}
	w.must(r, 200, "DELETE", "/v1/tokens/first", nil)
	if status, _ := w.ask(r, "GET", "/v1/status", nil); status != 401 {
		t.Errorf("revoked: %d", status)
	}
	items, _, err := w.store.Range(t.Context(), coordinator.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		for _, secret := range []string{w.admin, viewer, east.token} {
			if strings.Contains(string(item.Value), secret[strings.LastIndexByte(secret, '_')+1:]) {
				t.Errorf("%s holds a secret", item.Key)
			}
		}
	}
}

// A region's token is good for its own calls to its own deployment, and ends when it is replaced.
func TestRegionTokens(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	sync := func(token string, call allocation.SyncCall) int {
		return w.request(r, "POST", "/v1/sync", call, "Authorization", "Bearer "+token).Code
	}
	if got := sync(east.token, east.call()); got != 200 {
		t.Errorf("own call: %d", got)
	}
	if got := sync(west.token, east.call()); got != http.StatusForbidden {
		t.Errorf("another region's token: %d", got)
	}
	other := east.call()
	other.Deployment = "elsewhere"
	if got := sync(east.token, other); got != http.StatusConflict {
		t.Errorf("another deployment: %d", got)
	}
	w.must(r, 409, "POST", "/v1/regions", map[string]string{"region": "us-east"})
	renewed := w.must(r, 200, "POST", "/v1/regions/us-east/token", nil)["token"].(string)
	if sync(east.token, east.call()) != 401 || sync(renewed, east.call()) != 200 {
		t.Error("the old token is taken, or the new one is not")
	}
	w.must(r, 404, "POST", "/v1/regions/nowhere/token", nil)
	if want := fmt.Sprintf("tranche_region_%s_us-east_", east.deployment); !strings.HasPrefix(renewed, want) {
		t.Errorf("%s does not begin with %s", renewed, want)
	}
}

// Two nodes of a new region call at once, and the call of one is late: it names no incarnation, which the region has by
// now. If this fails, a healthy region is stopped for good, or an emptied database is not.
func TestLateFirstCall(t *testing.T) {
	w := newWorld(t, 1)
	f := w.addRegion("us-east")
	late := f.call()
	f.join(w.replicas[0])
	a, err := w.replicas[0].Sync(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	if a.Refusal == "" || len(a.Contradicted) == 0 {
		t.Fatalf("refusal %q, in doubt are %v; want the marks by which the owner can tell", a.Refusal, a.Contradicted)
	}
	for _, m := range a.Contradicted {
		if !m.Holds(f.marks[0]) {
			t.Errorf("mark %+v is in doubt, and the owner that holds %+v would stop", m, f.marks[0])
		}
	}
	late.Home.System = "another"
	if a, err := w.replicas[0].Sync(t.Context(), late); err != nil || a.Refusal == "" || len(a.Contradicted) > 0 {
		t.Errorf("from another database: refusal %q, in doubt %v, %v; want a refusal that no mark takes back", a.Refusal, a.Contradicted, err)
	}
}
