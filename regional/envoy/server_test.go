//go:build unix

package envoy_test

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"

	"tranche/allocation"
	"tranche/regional/envoy"
)

type statuses = []servicev3.RateLimitResponse_Code

const tenantBudget = `{"budget":"acme/requests","unit":"requests","limit":5,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"acme"},"allocation":{"policy":"home","region":"us-east"}}
`

const userBudget = `{"budget":"users/{user}","unit":"requests","limit":2,"window":{"every":"1h"},"match":{"tenant":"acme"},"missing_label":"unchecked","allocation":{"policy":"home","region":"us-east"}}
`

const tokenBudget = `{"budget":"acme/tokens","unit":"tokens","limit":1000,"window":{"calendar":"day"},"match":{"tenant":"acme"},"allocation":{"policy":"home","region":"us-east"}}
`

// If this failed, Envoy would let through what the budgets refuse, or count what it refuses.
func TestOneStatusEachAndAllOrNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget+userBudget)
	both := func(id, user string) *servicev3.RateLimitRequest {
		return ask("edge", one("tenant=acme", "admission_id="+id), one("tenant=acme", "user="+user, "admission_id="+id, "remote_address=192.0.2.1"))
	}
	r := w.want(ok, statuses{ok, ok}, both("a", "bob"))
	if s := r.GetStatuses(); s[0].GetLimitRemaining() != 4 || s[1].GetLimitRemaining() != 1 || s[1].GetCurrentLimit().GetName() != "users/{user}" ||
		s[0].GetCurrentLimit().GetRequestsPerUnit() != 5 || s[0].GetDurationUntilReset() != nil || s[0].GetCurrentLimit().GetUnit() != 0 ||
		s[1].GetCurrentLimit().GetUnit() != servicev3.RateLimitResponse_RateLimit_HOUR || s[1].GetDurationUntilReset().GetSeconds() < 1 {
		t.Errorf("statuses: %v", s)
	}
	w.want(ok, statuses{ok, ok}, both("b", "bob"))
	// bob's two are spent: his descriptor refuses, and the tenant's is not charged for it.
	r = w.want(over, statuses{ok, over}, both("c", "bob"))
	w.wantSpent("acme/requests", 2, 0)
	if header(r, "retry-after") == "" || header(r, "ratelimit-policy") == "" || header(r, "tranche-reason") != "ceiling_reached" {
		t.Errorf("headers: %v", r.GetResponseHeadersToAdd())
	}
	if n, err := strconv.Atoi(header(r, "retry-after")); err != nil || n < 1 {
		t.Errorf("retry-after: %q", header(r, "retry-after"))
	}
	var body map[string]any
	if err := json.Unmarshal(r.GetRawBody(), &body); err != nil || body["status"] != 429.0 || body["evidence"] != nil || body["budgets"] != nil {
		t.Errorf("the body shows a caller what is the gateway's, or is none: %s", r.GetRawBody())
	}
	// The order is that of the call.
	w.want(over, statuses{over, ok}, ask("edge", one("user=bob", "tenant=acme", "admission_id=d"), one("tenant=acme")))
	for i := range 3 {
		w.want(ok, statuses{ok}, ask("edge", one("tenant=acme", "admission_id=e-"+strconv.Itoa(i))))
	}
	w.want(over, statuses{over}, ask("edge", one("tenant=acme", "admission_id=f")))
	w.wantSpent("acme/requests", 5, 0)
}

// If this failed, a repeated call would be charged again, or an answer that nobody read would be lost.
func TestRepeatedAndCancelledCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	a := ask("edge", one("tenant=acme", `admission_id="a"`))
	w.want(ok, statuses{ok}, a)
	if r := w.want(ok, statuses{ok}, ask("edge", one("tenant=acme", "admission_id=a"))); !r.GetDynamicMetadata().GetFields()["replayed"].GetBoolValue() ||
		header(r, "ratelimit") != "" {
		t.Errorf("not a replay: %v", r)
	}
	w.wantSpent("acme/requests", 1, 0)

	// The caller goes away while its decision is made: it stands under its id.
	ctx, cancel := context.WithCancel(w.authorized())
	decided := make(chan struct{})
	var once sync.Once
	w.backend.hook(hooks{
		before: func(context.Context, time.Time) { once.Do(cancel) },
		after:  func(at context.Context, _ time.Time) { <-at.Done(); close(decided) }, // so that no answer overtakes that
	})
	_, err := w.client.ShouldRateLimit(ctx, ask("edge", one("tenant=acme", "admission_id=lost")))
	w.wantError(codes.Canceled, "", nil, err)
	<-decided
	w.backend.hook(hooks{})
	key := allocation.IDKey{Credential: "edge-1", Tenant: "acme", ID: "lost"}
	w.want(ok, statuses{ok}, ask("edge", one("tenant=acme", "admission_id=lost")))
	d, found, err := w.node.Find(w.authorized(), key)
	if err != nil || !found || !d.Admitted() {
		t.Errorf("not found again: %+v %v %v", d, found, err)
	}
	w.wantSpent("acme/requests", 2, 0)

	// The answer was made, and its reader had gone: a repeated call is told the same, and nothing more is charged.
	ctx, cancel = context.WithCancel(w.authorized())
	decided = make(chan struct{})
	w.backend.hook(hooks{after: func(at context.Context, _ time.Time) { cancel(); <-at.Done(); close(decided) }})
	_, err = w.client.ShouldRateLimit(ctx, ask("edge", one("tenant=acme", "admission_id=late")))
	<-decided
	w.wantError(codes.Canceled, "", nil, err)
	w.backend.hook(hooks{})
	w.wantSpent("acme/requests", 3, 0)
	if r := w.want(ok, statuses{ok}, ask("edge", one("tenant=acme", "admission_id=late"))); !r.GetDynamicMetadata().GetFields()["replayed"].GetBoolValue() {
		t.Errorf("charged again: %v", r)
	}
	w.wantSpent("acme/requests", 3, 0)
}

// A trap: with skip_if_absent false Envoy does not call at all when the header with the id is missing, so it is set, and
// the id may be absent here. If this failed, such a request would pass and be charged twice when it is repeated.
func TestIDRequiredAndAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget+strings.Replace(strings.Replace(tenantBudget, "acme", "open", 2), `"match"`, `"admission_id":"generated","match"`, 1))
	r := w.want(over, statuses{over}, ask("edge", one("tenant=acme")))
	if header(r, "tranche-reason") != "admission_id_missing" || header(r, "retry-after") != "" {
		t.Errorf("headers: %v", r.GetResponseHeadersToAdd())
	}
	w.wantSpent("acme/requests", 0, 0)
	// Where the budget allows it an id is made, and the upstream is told.
	r = w.want(ok, statuses{ok}, ask("edge", one("tenant=open")))
	if valueOf(r.GetRequestHeadersToAdd(), "admission-id") == "" {
		t.Errorf("nobody can settle it: %v", r)
	}
	// An id is the credential's and the tenant's.
	w.want(over, statuses{over}, ask("edge", one("tenant=acme", "admission_id=")))
}

// If this failed, hits would not cost what Envoy says, or a check would be charged.
func TestHits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget+tokenBudget)
	req := ask("edge", one("tenant=acme", "admission_id=a", "hits=2"), one("tenant=acme", "unit=tokens", "admission_id=a"))
	req.HitsAddend = 300 // of each descriptor that has none of its own
	r := w.want(ok, statuses{ok, ok}, req)
	w.wantSpent("acme/requests", 2, 0)
	w.wantSpent("acme/tokens", 300, 0)
	if s := r.GetStatuses(); s[0].GetLimitRemaining() != 3 || s[1].GetLimitRemaining() != 700 ||
		s[1].GetCurrentLimit().GetUnit() != servicev3.RateLimitResponse_RateLimit_DAY || s[1].GetDurationUntilReset().GetSeconds() < 1 {
		t.Errorf("statuses: %v", s)
	}
	// 0 everywhere is a check: it needs no id and charges nothing.
	w.want(ok, statuses{ok, ok}, ask("edge", one("tenant=acme", "hits=0"), one("tenant=acme", "unit=tokens", "hits=0")))
	w.wantSpent("acme/requests", 2, 0)
	// Charged in one unit, and only looked at in another.
	mixed := func(id string) *servicev3.RateLimitRequest {
		return ask("edge", one("tenant=acme", "admission_id="+id), one("tenant=acme", "unit=tokens", "hits=0"))
	}
	w.want(ok, statuses{ok, ok}, mixed("b"))
	w.wantSpent("acme/requests", 3, 0)
	w.wantSpent("acme/tokens", 300, 0)
	w.want(ok, statuses{ok, ok}, ask("edge", one("tenant=acme", "admission_id=c"), one("tenant=acme", "admission_id=c", "unit=tokens", "hits=700")))
	// No token is left: to look at it refuses, and nothing is charged; but what was admitted before stays admitted.
	w.want(over, statuses{ok, over}, mixed("d"))
	w.want(over, statuses{over}, ask("edge", one("tenant=acme", "unit=tokens", "hits=0")))
	w.wantSpent("acme/requests", 4, 0)
	w.want(ok, statuses{ok, ok}, mixed("b"))
	w.wantSpent("acme/requests", 4, 0)
}

// If this failed, somebody could mint budget by giving back what was never charged, or twice.
func TestRefunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenBudget+tenantBudget)
	reserve := func(id, hits string) *servicev3.RateLimitRequest {
		return ask("llm", one("tenant=acme", "admission_id="+id, "hits="+hits))
	}
	back := func(id, hits string) *servicev3.RateLimitRequest {
		return ask("llm", one("tenant=acme", "admission_id="+id, "hits="+hits, "negative"))
	}
	refused := func(reason string, req *servicev3.RateLimitRequest) {
		t.Helper()
		if r := w.want(over, statuses{over}, req); header(r, "tranche-reason") != reason {
			t.Errorf("%v: %s, want %s", req, header(r, "tranche-reason"), reason)
		}
	}
	w.want(ok, statuses{ok}, reserve("a", "600"))
	w.wantSpent("acme/tokens", 0, 600)
	refused("invalid_request", ask("llm", one("tenant=acme", "hits=10", "negative"))) // no id: it could be anybody's
	refused("admission_id_unknown", back("never", "10"))
	refused("cost_exceeds_limit", back("a", "601"))
	w.want(ok, statuses{ok}, back("a", "200"))
	w.wantSpent("acme/tokens", 400, 0)
	w.want(ok, statuses{ok}, back("a", "200")) // repeated: the same answer, given back once
	w.wantSpent("acme/tokens", 400, 0)
	refused("admission_id_conflict", back("a", "300")) // it is final by now
	w.want(ok, statuses{ok}, reserve("b", "500"))
	all := ask("llm", one("tenant=acme", "admission_id=b", "hits=500", "negative"), one("tenant=acme", "unit=requests", "negative"))
	w.want(ok, statuses{ok, ok}, all) // nothing is left of it: released
	w.want(ok, statuses{ok, ok}, all)
	w.wantSpent("acme/tokens", 400, 0)
	refused("admission_id_released", back("b", "100")) // a part of nothing: to settle it would charge
	refused("admission_id_released", reserve("b", "500"))
	w.wantSpent("acme/tokens", 400, 0)
	// What was spent is final.
	w.want(ok, statuses{ok}, ask("llm", one("tenant=acme", "admission_id=c", "op=spend", "hits=100")))
	refused("admission_id_conflict", back("c", "50"))
	w.wantSpent("acme/tokens", 500, 0)
	// Another tenant's id is another id.
	refused("admission_id_unknown", ask("llm", one("tenant=other", "admission_id=a", "hits=10", "negative")))
	// The true cost at the end of a stream, and one that is above the estimate.
	w.want(ok, statuses{ok}, reserve("d", "100"))
	settle := ask("llm", one("tenant=acme", "admission_id=d", "op=settle", "hits=130"))
	w.want(ok, statuses{ok}, settle)
	w.want(ok, statuses{ok}, settle)
	w.wantSpent("acme/tokens", 630, 0)
	w.want(ok, statuses{ok}, reserve("e", "100"))
	w.want(ok, statuses{ok}, ask("llm", one("tenant=acme", "admission_id=e", "op=release")))
	w.wantSpent("acme/tokens", 630, 0)
}

// A reservation whose time is over holds nothing to give back, whether it lapsed as spent or as released.
func TestRefundsAfterLapse(t *testing.T) {
	t.Parallel()
	short := strings.Replace(tokenBudget, `"match"`, `"longest_reservation":"1s","match"`, 1)
	w := newWorld(t, short+strings.Replace(strings.Replace(short, "acme", "mild", 2), `"match"`, `"on_lapse":"release","match"`, 1))
	for tenant, want := range map[string]struct {
		state  allocation.State
		reason string
		spent  int64
	}{
		"acme": {allocation.StateLapsedSpent, "admission_id_settled", 600}, "mild": {allocation.StateLapsedReleased, "admission_id_released", 0},
	} {
		w.want(ok, statuses{ok}, ask("llm", one("tenant="+tenant, "admission_id=a", "hits=600")))
		key := allocation.IDKey{Credential: "edge-1", Tenant: tenant, ID: "a"}
		eventually(t, "the reservation lapses", func() bool {
			d, _, err := w.node.Find(w.authorized(), key)
			return err == nil && d.State == want.state
		})
		r := w.want(over, statuses{over}, ask("llm", one("tenant="+tenant, "admission_id=a", "hits=100", "negative")))
		if header(r, "tranche-reason") != want.reason {
			t.Errorf("%s: %s, want %s", tenant, header(r, "tranche-reason"), want.reason)
		}
		w.wantSpent(tenant+"/tokens", want.spent, 0)
	}
}

// 150 callers race for the last 5 permits: without one statement that decides and records, more would get through.
func TestLastPermits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	var admitted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 150 {
		all.Go(func() {
			r, err := w.tried(ask("edge", one("tenant=acme", "admission_id=id-"+strconv.Itoa(i))))
			switch {
			case err != nil:
				t.Error(err)
			case r.GetOverallCode() == ok:
				admitted.Add(1)
			default:
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if admitted.Load() != 5 || refused.Load() != 145 {
		t.Errorf("admitted %d, refused %d", admitted.Load(), refused.Load())
	}
	w.wantSpent("acme/requests", 5, 0)
}

// A limit of 0 refuses all, also what costs nothing, and never counts as unlimited.
func TestLimitZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.Replace(tenantBudget, `"limit":5`, `"limit":0`, 1))
	w.want(over, statuses{over}, ask("edge", one("tenant=acme", "admission_id=a")))
	w.want(over, statuses{over}, ask("edge", one("tenant=acme", "hits=0")))
}

// Two of one tenant's calls give the same reservation back at once: once is enough.
func TestRefundsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tokenBudget)
	w.want(ok, statuses{ok}, ask("llm", one("tenant=acme", "admission_id=a", "hits=600")))
	var given atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			r, err := w.tried(ask("llm", one("tenant=acme", "admission_id=a", "hits="+strconv.Itoa(100+i%4), "negative")))
			if err == nil && r.GetOverallCode() == ok {
				given.Add(1)
			}
		})
	}
	all.Wait()
	if s, r := w.spent("acme/tokens"); s < 497 || s > 500 || r != 0 || given.Load() != 10 {
		t.Errorf("spent %d, reserved %d, %d were told that it was given back", s, r, given.Load())
	}
}

// If this failed, an Envoy that waits 20 ms could be told OK after it had gone, or wait for ever.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	var left atomic.Int64
	w.backend.hook(hooks{before: func(_ context.Context, deadline time.Time) { left.Store(int64(time.Until(deadline))) }})
	within := func(name string, low, high time.Duration) {
		t.Helper()
		if d := time.Duration(left.Load()); d < low || d > high {
			t.Errorf("%s: %s to decide, want %s to %s", name, d, low, high)
		}
	}
	ctx := token(context.Background(), "Bearer "+edgeToken)
	_, _ = w.client.ShouldRateLimit(ctx, ask("edge", one("tenant=acme", "admission_id=a"))) // no deadline of its own
	within("no deadline", -time.Second, envoy.DefaultDeadline)
	_, _ = w.call(ask("edge", one("tenant=acme", "admission_id=a")))
	within("10 s", 8*time.Second, 10*time.Second-time.Millisecond)

	// What cannot be decided in time is UNAVAILABLE, never OK: here nothing was begun.
	w.backend.hook(hooks{before: func(ctx context.Context, deadline time.Time) {
		select {
		case <-time.After(time.Until(deadline) + time.Millisecond):
		case <-ctx.Done():
		}
	}})
	r, err := w.client.ShouldRateLimit(ctx, ask("edge", one("tenant=acme", "admission_id=slow")))
	w.wantError(codes.Unavailable, "", r, err)
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if r, err := w.client.ShouldRateLimit(short, ask("edge", one("tenant=acme", "admission_id=slow"))); err == nil {
		t.Errorf("decided after its deadline: %v", r)
	}
	w.backend.hook(hooks{})
	if _, found, _ := w.node.Find(w.authorized(), allocation.IDKey{Credential: "edge-1", Tenant: "acme", ID: "slow"}); found {
		t.Error("it was charged, though it was told that nothing was")
	}
}
