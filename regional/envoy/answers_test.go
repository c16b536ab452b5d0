//go:build unix

package envoy_test

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tranche/allocation"
	"tranche/regional/envoy"
)

// Every reason of the table is told as the table says.
func TestEveryReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	for _, row := range allocation.Answers() {
		if row.Reason == allocation.Allow {
			continue
		}
		w.backend.hook(hooks{force: row.Reason})
		r, err := w.call(ask("edge", one("tenant=acme", "admission_id=x"), one("tenant=acme", "unit=tokens")))
		if row.Envoy == "UNAVAILABLE" {
			w.wantError(codes.Unavailable, string(row.Reason), r, err)
			continue
		}
		if err != nil || r.GetOverallCode() != over || header(r, "tranche-status") != strconv.Itoa(row.Status) || header(r, "cache-control") != "no-store" {
			t.Errorf("%s: %v %v", row.Reason, r, err)
			continue
		}
		for _, s := range r.GetStatuses() {
			if s.GetCode() != over {
				t.Errorf("%s: a status says %s", row.Reason, s.GetCode())
			}
		}
		waits := header(r, "retry-after") != ""
		if soon := row.Retry == allocation.RetrySoon || row.Retry == allocation.RetryNextPeriod; waits != soon {
			t.Errorf("%s: retry-after %q", row.Reason, header(r, "retry-after"))
		}
	}
	w.backend.hook(hooks{force: "from_next_year"})
	r, err := w.call(ask("edge", one("tenant=acme", "admission_id=x")))
	w.wantError(codes.Unavailable, "from_next_year", r, err)
}

// If this failed, a call that the mapping does not know could lose a label, and with it a budget.
func TestWrongCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	limited := one("tenant=acme", "admission_id=a")
	limited.Limit = &descriptorv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	many := make([]*descriptorv3.RateLimitDescriptor, 65)
	for i := range many {
		many[i] = one("tenant=acme")
	}
	for what, c := range map[string]struct {
		req  *servicev3.RateLimitRequest
		says string
	}{
		"domain":            {ask("other", one("tenant=acme", "admission_id=a")), "is not in the node's mapping"},
		"no descriptors":    {ask("edge"), "send 1 to 64"},
		"many":              {ask("edge", many...), "send 1 to 64"},
		"no entries":        {ask("edge", one()), "send 1 to 64"},
		"entry":             {ask("edge", one("tenant=acme", "admission_id=a", "generic_key=x")), "descriptors[0].entries.generic_key: is not in the mapping"},
		"two tenants":       {ask("edge", one("tenant=acme", "admission_id=a"), one("tenant=evil")), "second value"},
		"two ids":           {ask("edge", one("tenant=acme", "admission_id=a"), one("admission_id=b")), "another admission id"},
		"two hits":          {ask("edge", one("tenant=acme", "admission_id=a"), one("tenant=acme", "hits=2")), "one amount of each unit"},
		"hits":              {ask("edge", one("tenant=acme", "admission_id=a", "hits=18446744073709551615")), "send at most"},
		"own limit":         {ask("edge", limited), "declare a budget"},
		"empty label":       {ask("edge", one("tenant=", "admission_id=a")), "is empty"},
		"unit":              {ask("edge", one("tenant=acme", "admission_id=a", "unit=Tokens")), "is no unit"},
		"op":                {ask("edge", one("tenant=acme", "admission_id=a", "op=steal")), "is not an operation"},
		"two ops":           {ask("edge", one("tenant=acme", "admission_id=a", "op=spend"), one("tenant=acme", "op=check")), "one call does one thing"},
		"verdict":           {ask("edge", one("tenant=acme", "admission_id=a", "legacy=perhaps")), "send allow or deny"},
		"two verdicts":      {ask("edge", one("tenant=acme", "admission_id=a", "legacy=allow"), one("tenant=acme", "legacy=deny")), "send allow or deny"},
		"settle without id": {ask("edge", one("tenant=acme", "op=settle")), "send its admission id"},
		"both ways":         {ask("edge", one("tenant=acme", "admission_id=a"), one("tenant=acme", "unit=tokens", "negative")), "give back and charge"},
		"refund of a check": {ask("edge", one("tenant=acme", "admission_id=a", "op=check", "negative")), "are to check"},
	} {
		r, err := w.call(c.req)
		if err != nil || r.GetOverallCode() != over || len(r.GetStatuses()) != len(c.req.GetDescriptors()) || !strings.Contains(string(r.GetRawBody()), c.says) {
			t.Errorf("%s: %v %s, want %q", what, err, r.GetRawBody(), c.says)
		}
	}
	w.wantSpent("acme/requests", 0, 0)
}

// If this failed, somebody without a token could spend, or spend as another gateway.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	req := ask("edge", one("tenant=acme", "admission_id=a"))
	for _, value := range []string{"", "Bearer wrong", "Basic " + edgeToken, edgeToken} {
		ctx := context.Background()
		if value != "" {
			ctx = token(ctx, value)
		}
		r, err := w.client.ShouldRateLimit(ctx, req)
		w.wantError(codes.Unauthenticated, "", r, err)
	}
	r, err := w.client.ShouldRateLimit(token(w.authorized(), "Bearer "+edgeToken), req) // two of them
	w.wantError(codes.Unauthenticated, "", r, err)
	w.wantSpent("acme/requests", 0, 0)

	named := newWorld(t, tenantBudget, func(c *envoy.Config) { c.Credential = "sidecar" })
	if _, err := named.client.ShouldRateLimit(context.Background(), ask("edge", one("tenant=acme", "hits=0"))); status.Code(err) == codes.Unauthenticated {
		t.Errorf("the setting does not count: %v", err)
	}
	named.want(ok, statuses{ok}, req)
	if _, found, err := named.node.Find(named.authorized(), allocation.IDKey{Credential: "sidecar", Tenant: "acme", ID: "a"}); !found || err != nil {
		t.Errorf("not under the setting's name: %v", err)
	}
}

// A limit above what 32 bits hold is told as the most they hold, never as what is left after wrapping.
func TestClamps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.Replace(tenantBudget, `"limit":5`, `"limit":9007199254740992`, 1)+
		`{"budget":"five","unit":"requests","limit":4294967296,"window":{"every":"5m"},"match":{"product":"api"},"allocation":{"policy":"home","region":"us-east"}}`)
	r := w.want(ok, statuses{ok, ok}, ask("edge", one("tenant=acme", "admission_id=a", "hits=1"), one("path=/x", "hits=1")))
	if s := r.GetStatuses()[0]; s.GetLimitRemaining() != math.MaxUint32 || s.GetCurrentLimit().GetRequestsPerUnit() != math.MaxUint32 {
		t.Errorf("%v", s)
	}
	// The second descriptor carries no label of either budget: it is told of the one that is everyone's.
	s := r.GetStatuses()[1]
	if l := s.GetCurrentLimit(); l.GetName() != "five" || l.GetUnit() != servicev3.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 5 ||
		s.GetLimitRemaining() != math.MaxUint32 {
		t.Errorf("%v", s)
	}
}
