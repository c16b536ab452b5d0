package regional

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"tranche/allocation"
)

// limits reads a RateLimit field back, by policy.
func limits(t *testing.T, h http.Header, name string) map[string]map[string]any {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(name))
	if err != nil {
		t.Fatalf("%s: %v in %q", name, err, h.Values(name))
	}
	out := map[string]map[string]any{}
	for _, member := range list {
		item := member.(httpsfv.Item)
		params := map[string]any{}
		for _, key := range item.Params.Names() {
			params[key], _ = item.Params.Get(key)
		}
		out[item.Value.(string)] = params
	}
	return out
}

// If this failed, a client would read another limit than the one it has.
func TestRateLimitFields(t *testing.T) {
	w := newAPIWorld(t)
	r := w.admit("a", `{"labels":{"tenant":"acme","metered":"yes"},"costs":{"tokens":1200}}`)
	if got := fmt.Sprint(limits(t, r.Header, "RateLimit-Policy")); got != "map[acme/requests:map[q:100 w:60] acme/tokens:map[q:10000 qu:tokens w:3600]]" {
		t.Error(got)
	}
	if got := fmt.Sprint(limits(t, r.Header, "RateLimit")); got != "map[acme/requests:map[r:59 t:30] acme/tokens:map[r:4800 t:3570]]" {
		t.Error(got)
	}
	// A replay's remainder is an old one.
	r = w.admit("a", `{"labels":{"tenant":"acme","metered":"yes"},"costs":{"tokens":1200}}`)
	if len(r.Header.Values("RateLimit")) != 0 || len(r.Header.Values("RateLimit-Policy")) != 1 {
		t.Errorf("replay: %v", r.Header)
	}
	// A period without end has no length and no reset.
	r = w.admit("b", `{"labels":{"tenant":"trial"}}`)
	if got := fmt.Sprint(limits(t, r.Header, "RateLimit-Policy"), limits(t, r.Header, "RateLimit")); got != "map[trial:map[q:5]] map[trial:map[r:4]]" {
		t.Error(got)
	}
	// Retry-After is earlier than the reset: then it counts.
	w.admit("c", `{"labels":{"tenant":"acme"},"costs":{"requests":59}}`)
	r = w.admit("d", `{"labels":{"tenant":"acme"}}`)
	if got := fmt.Sprint(limits(t, r.Header, "RateLimit")); got != "map[acme/requests:map[r:0]]" || r.Header.Get("Retry-After") != "1" {
		t.Error(got, r.Header)
	}
}

// If this failed, a caller would come back before it can pass, or all refused callers at once.
func TestRetryAfter(t *testing.T) {
	w := newAPIWorld(t)
	for _, c := range []struct {
		reason   allocation.Reason
		retry    int64
		from, to int64
	}{
		{allocation.CeilingReached, 30, 30, 33},
		{allocation.CeilingReached, 3600, 3600, 3960},
		{allocation.CeilingReached, 0, 0, 0},
		{allocation.RegionShareSpent, 1, 1, 1},
		{allocation.RegionShareSpent, 0, 1, 1},
		{allocation.OutcomeUnknown, 0, 1, 1},
		{allocation.CostExceedsLimit, 0, 0, 0},
		{allocation.NotHome, 0, 0, 0},
		{allocation.Allow, 5, 0, 0},
	} {
		least, most := int64(math.MaxInt64), int64(0)
		for _, random := range []func(int64) int64{func(int64) int64 { return 0 }, func(n int64) int64 { return n - 1 }} {
			w.random = random
			got := w.retryAfter(&allocation.Decision{Reason: c.reason, Retry: c.retry}, allocation.AnswerTo(c.reason).Retry)
			least, most = min(least, got), max(most, got)
		}
		if least != c.from || most != c.to {
			t.Errorf("%s, %d: %d to %d, want %d to %d", c.reason, c.retry, least, most, c.from, c.to)
		}
	}
	for range 100 {
		if n := randomBelow(3); n < 0 || n > 2 {
			t.Fatal(n)
		}
	}
}

// If this failed, an answer's header would be dropped by a proxy, or be no structured field.
func TestRateLimitBounds(t *testing.T) {
	d := allocation.Decision{Reason: allocation.RegionShareSpent, Blames: "z/last [x]"}
	for i := range allocation.MaxBudgetsPerRequest - 1 {
		d.Budgets = append(d.Budgets, allocation.BudgetDecision{
			UsageKey: allocation.UsageKey{Budget: strings.Repeat("b", 190) + strconv.Itoa(i), Instance: strings.Repeat("i", 400)},
			Until:    60, Unit: "requests", Limit: 1, Reason: allocation.Allow,
		})
	}
	d.Budgets = append(d.Budgets, allocation.BudgetDecision{
		UsageKey: allocation.UsageKey{Budget: "z/last", Instance: "x"}, Until: 60, Unit: "usd_micros", Limit: math.MaxInt64, Remaining: -5,
		Reason: allocation.RegionShareSpent,
	})
	h := http.Header{}
	setRateLimit(h, &d, 90, 0)
	policies, remaining := limits(t, h, "RateLimit-Policy"), limits(t, h, "RateLimit")
	if len(policies) != len(remaining) || len(policies) < 2 || len(h.Get("RateLimit")) > maxFieldBytes || len(h.Get("RateLimit-Policy")) > maxFieldBytes {
		t.Errorf("%d policies, %d limits", len(policies), len(remaining))
	}
	// Integers have at most 15 digits, and none is negative, also when the period is over.
	if got := fmt.Sprint(policies["z/last [x]"], remaining["z/last [x]"]); got != "map[q:999999999999999 qu:usd_micros w:60] map[r:0 t:0]" {
		t.Error(got)
	}
	// A name that no field can hold, a period that no term holds, and a budget whose remainder is another region's.
	h = http.Header{}
	setRateLimit(h, &allocation.Decision{Budgets: []allocation.BudgetDecision{
		{UsageKey: allocation.UsageKey{Budget: "a\"b\n"}, Until: 60, Reason: allocation.Allow},
		{UsageKey: allocation.UsageKey{Budget: "x"}, Reason: allocation.Allow},
		{UsageKey: allocation.UsageKey{Budget: "y"}, Until: 60, Reason: allocation.NotHome},
	}}, 0, 0)
	if len(h) != 0 {
		t.Errorf("%v", h)
	}
}

// If this failed, a decision could not be found beside the traces of its caller, or a caller write into our logs.
func TestCorrelation(t *testing.T) {
	trace := "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct{ parent, request, want string }{
		{"00-" + trace + "-00f067aa0ba902b7-01", "r", trace},
		{"cc-" + trace + "-00f067aa0ba902b7-01-more", "r", trace},
		{"00-" + strings.ToUpper(trace) + "-00f067aa0ba902b7-01", "r", "r"},
		{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "r", "r"},
		{"garbage", "r", "r"},
		{"", "a b", "a b"},
		{"", "a\x1bb", ""},
		{"", strings.Repeat("r", maxCorrelation+1), ""},
	} {
		h := http.Header{"Traceparent": {c.parent}, "X-Request-Id": {c.request}}
		if got := correlationOf(h); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
