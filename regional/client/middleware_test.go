//go:build unix

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional/client"
)

// byHeader is how the tests say whose request it is.
func byHeader(r *http.Request) (client.Request, error) {
	if r.Header.Get("Tenant") == "" {
		return client.Request{}, errors.New("send the header Tenant")
	}
	return client.Request{
		Labels: map[string]string{"tenant": r.Header.Get("Tenant"), "metered": "yes"}, Costs: map[string]int64{"tokens": 100},
	}, nil
}

func serve(t *testing.T, m client.Middleware, ctx context.Context, name string, h http.HandlerFunc) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
	r.Header.Set("Tenant", name)
	r.Header.Set("X-Request-Id", "request-9")
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil && p != "on purpose" {
				panic(p)
			}
		}()
		m.Wrap(h).ServeHTTP(w, r)
	}()
	return w.Result()
}

// If this failed, the true cost of a request would be lost: when nothing is told, when the handler panics, or when the
// caller hangs up.
func TestMiddlewareSettles(t *testing.T) {
	m := client.Middleware{Client: newClient(t, client.Options{}), Request: byHeader, Reserve: true}
	for name, c := range map[string]struct {
		do     func(http.ResponseWriter, *http.Request)
		tokens int64
		state  allocation.State
	}{
		"told": {func(_ http.ResponseWriter, r *http.Request) {
			client.SetCosts(r.Context(), map[string]int64{"tokens": 7})
		}, 7, allocation.StateSettled},
		"not told": {func(http.ResponseWriter, *http.Request) {}, 100, allocation.StateSettled},
		"panics":   {func(http.ResponseWriter, *http.Request) { panic("on purpose") }, 100, allocation.StateSettled},
		"released": {func(_ http.ResponseWriter, r *http.Request) { client.SetReleased(r.Context()) }, 0, allocation.StateReleased},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, hangUp := context.WithCancel(t.Context())
			var d client.Decision
			before := spent(t, "acme/tokens")
			serve(t, m, ctx, "acme", func(w http.ResponseWriter, r *http.Request) {
				d, _ = client.FromContext(r.Context())
				if n := spent(t, "acme/tokens") - before; n != 100 {
					t.Errorf("%d tokens are held while it is served", n)
				}
				hangUp()
				c.do(w, r)
			})
			if n := spent(t, "acme/tokens") - before; n != c.tokens {
				t.Errorf("%d tokens charged, want %d", n, c.tokens)
			}
			f, err := m.Client.Find(t.Context(), d.Ref())
			if err != nil || f.State != c.state {
				t.Errorf("%+v, %v", f, err)
			}
		})
	}
}

// If this failed, a caller would be served without an admission, or told what only operators may know.
func TestMiddlewareRefuses(t *testing.T) {
	answers := newHop(t, says(503, stopped), says(401, `{"reason":"token_unknown","status":401}`))
	for name, c := range map[string]struct {
		tenant     string
		node       string
		status     int
		reason     string
		retryAfter bool
	}{
		"refused":   {"nobody", nodeURL, 422, "no_budget", false},
		"elsewhere": {"eu", nodeURL, 421, "not_home", false},
		"whose?":    {"", nodeURL, 400, "invalid_request", false},
	} {
		t.Run(name, func(t *testing.T) {
			m := client.Middleware{Client: newClient(t, client.Options{Nodes: []string{c.node}}), Request: byHeader}
			checkProblem(t, serve(t, m, t.Context(), c.tenant, mustNotRun(t)), c.status, c.reason, c.retryAfter)
		})
	}
	m := client.Middleware{Client: newClient(t, client.Options{Nodes: []string{answers.URL}, Tries: 1}), Request: byHeader}
	checkProblem(t, serve(t, m, t.Context(), "acme", mustNotRun(t)), 503, "undecided", true)
	checkProblem(t, serve(t, m, t.Context(), "acme", mustNotRun(t)), 500, "invalid_request", false)
	spentUp := newHop(t, says(429, `{"decision":"refused","reason":"ceiling_reached","status":429,"title":"Spent","detail":"a secret","retry_after_seconds":9,"region":"us-east"}`,
		"RateLimit", `"a";r=0`, "Retry-After", "9"))
	m = client.Middleware{Client: newClient(t, client.Options{Nodes: []string{spentUp.URL}}), Request: byHeader, ShowLimits: true}
	r := serve(t, m, t.Context(), "acme", mustNotRun(t))
	if r.Header.Get("Retry-After") != "9" || r.Header.Get("RateLimit") != `"a";r=0` {
		t.Errorf("header %v", r.Header)
	}
	checkProblem(t, r, 429, "ceiling_reached", true)
}

func mustNotRun(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler runs without an admission") }
}

func checkProblem(t *testing.T, r *http.Response, status int, reason string, retryAfter bool) {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Reason, Type string }
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != status || p.Reason != reason || p.Type == "" || r.Header.Get("Content-Type") != "application/problem+json" ||
		r.Header.Get("Cache-Control") != "no-store" || (r.Header.Get("Retry-After") != "") != retryAfter {
		t.Errorf("%d %v %s", r.StatusCode, r.Header, text)
	}
	for _, secret := range []string{"secret", "evidence", "share", "us-east"} {
		if strings.Contains(strings.TrimPrefix(string(text), `"title"`), secret) {
			t.Errorf("tells %s: %s", secret, text)
		}
	}
}

// If this failed, a decision could not be found from a caller's trace.
func TestMiddlewareTellsTheCorrelation(t *testing.T) {
	m := client.Middleware{Client: newClient(t, client.Options{}), Request: byHeader, Reserve: true}
	var d client.Decision
	serve(t, m, t.Context(), "acme", func(_ http.ResponseWriter, r *http.Request) {
		d, _ = client.FromContext(r.Context())
		list, err := node.Reservations(r.Context(), allocation.IDKey{}, 1000)
		i := slices.IndexFunc(list, func(a allocation.Admission) bool { return a.ID == d.AdmissionID }) // others may hold some too
		if err != nil || i < 0 || list[i].First.Correlation != "request-9" {
			t.Errorf("%+v, %v", list, err)
		}
	})
	if client.SetCosts(t.Context(), nil) || client.SetReleased(t.Context()) {
		t.Error("tells costs where nothing is held")
	}
}

// If this failed, a request that failed open would be settled although nothing was reserved.
func TestMiddlewareFailsOpenWithoutSettling(t *testing.T) {
	h := newHop(t, says(503, stopped))
	m := client.Middleware{
		Client:  newClient(t, client.Options{Nodes: []string{h.URL}, Tries: 1, FailOpen: "a test", Patience: time.Second}),
		Request: byHeader, Reserve: true,
	}
	ran := false
	r := serve(t, m, t.Context(), "acme", func(_ http.ResponseWriter, r *http.Request) {
		d, _ := client.FromContext(r.Context())
		ran = d.FailedOpen
	})
	if !ran || r.StatusCode != 200 || len(h.calls()) != 1 {
		t.Errorf("ran %v, status %d, %d calls", ran, r.StatusCode, len(h.calls()))
	}
}
