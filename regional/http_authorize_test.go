package regional

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
)

// authorize asks as a gateway does.
func (w *apiWorld) authorize(query string, headers ...string) *http.Response {
	return w.call("GET", "/v1/authorize"+query, "", headers...)
}

func wantHeaders(t *testing.T, r *http.Response, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := r.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

// If this failed, a gateway would let through what is refused, or tell a caller nothing of when to come back.
func TestAuthorize(t *testing.T) {
	w := newAPIWorld(t)
	acme := "Tranche-Label-Tenant: acme"
	r := w.authorize("", acme, "Admission-Id: a")
	wantStatus(t, r, 200)
	wantHeaders(t, r, map[string]string{
		"Tranche-Decision": "admitted", "Tranche-Reason": "allow", "Tranche-Status": "200", "Tranche-Region": "us-east", "Admission-Id": "a",
		"Cache-Control": "no-store", "Content-Length": "0", "Ratelimit-Policy": `"acme/requests";q=100;w=60`, "Ratelimit": `"acme/requests";r=59;t=30`,
	})
	// The gateway asks again: with HEAD, and with the alias of the id.
	r = w.call("HEAD", "/v1/authorize", "", acme, `Idempotency-Key: "a"`)
	wantStatus(t, r, 200)
	if w.owner.charged() != 1 {
		t.Errorf("charged %d for one id", w.owner.charged())
	}
	wantStatus(t, w.authorize("", acme, "Admission-Id: b", "Tranche-Cost-Requests: 59"), 200)
	r = w.authorize("", acme, "Admission-Id: c")
	wantStatus(t, r, 429, `"status":429`, `"reason":"region_share_spent"`, `"retry_after_seconds":1`, `"admission_id":"c"`)
	if body := bodyOf(t, r); strings.Contains(body, "evidence") || strings.Contains(body, "budgets") || strings.Contains(body, "detail") {
		t.Errorf("a caller is shown what is the gateway's: %s", body)
	}
	wantHeaders(t, r, map[string]string{
		"Tranche-Decision": "refused", "Tranche-Reason": "region_share_spent", "Tranche-Status": "429", "Retry-After": "1",
		"Content-Type": "application/problem+json", "Cache-Control": "no-store",
	})
	// nginx takes no other status for a refusal than 403.
	r = w.authorize("?denied=403&deadline_ms=50", acme, "Admission-Id: c")
	wantStatus(t, r, 403, `"status":429`)
	wantHeaders(t, r, map[string]string{"Tranche-Status": "429", "Retry-After": "1"})
	if d := w.owner.deadlines[len(w.owner.deadlines)-1].Sub(time.UnixMicro(apiStart)); d != 50*time.Millisecond {
		t.Errorf("decided within %s", d)
	}
	wantStatus(t, w.authorize("?denied=403", acme), 403, `"status":400`, `"admission_id_missing"`)
	if w.owner.charged() != 60 {
		t.Errorf("charged %d", w.owner.charged())
	}
}

// Undecided is never the status that a gateway takes for a decision. If this failed, nginx would tell a caller of a broken
// region that the budget is used up.
func TestAuthorizeUndecided(t *testing.T) {
	w := newAPIWorld(t)
	for _, row := range allocation.Answers() {
		if row.Reason == allocation.Allow {
			continue
		}
		w.owner.force = row.Reason
		for query, want := range map[string]int{"": row.Status, "?denied=403": 403} {
			r := w.authorize(query, "Tranche-Label-Tenant: acme", "Admission-Id: a")
			decision := "refused"
			if row.Status == 503 {
				want, decision = 503, "undecided"
			}
			wantStatus(t, r, want, `"reason":"`+string(row.Reason)+`"`)
			wantHeaders(t, r, map[string]string{"Tranche-Decision": decision, "Tranche-Status": fmt.Sprint(row.Status)})
		}
	}
}

// If this failed, a caller could choose what it is charged, or a gateway's mistake would pass unseen.
func TestAuthorizeIsStrict(t *testing.T) {
	w := newAPIWorld(t)
	for what, c := range map[string]struct {
		query, says string
		headers     []string
	}{
		"unknown header":    {"", "Tranche-Lable-Tenant: is not known", []string{"Tranche-Lable-Tenant: a"}},
		"a caller's label":  {"", "let no such header of a caller through", []string{"Tranche-Label-Tenant: acme", "Tranche-Label-Tenant: evil"}},
		"a caller's op":     {"", "Tranche-Op: is given twice", []string{"Tranche-Op: spend", "Tranche-Op: check"}},
		"op":                {"", "use spend, reserve or check", []string{"Tranche-Op: settle"}},
		"cost":              {"", "is not a cost", []string{"Tranche-Cost-Tokens: -1"}},
		"fraction":          {"", "is not a cost", []string{"Tranche-Cost-Tokens: 1.5"}},
		"plus":              {"", "is not a cost", []string{"Tranche-Cost-Tokens: +1"}},
		"large":             {"", "is not a cost", []string{"Tranche-Cost-Tokens: 9007199254740993"}},
		"unit":              {"", "is not a unit", []string{"Tranche-Cost-1: 1"}},
		"lifetime":          {"", "is not a lifetime", []string{"Tranche-Op: reserve", "Tranche-Lifetime: 1000h"}},
		"lifetime of spend": {"", "is for reservations", []string{"Tranche-Lifetime: 1m"}},
		"label":             {"", "is not printable", []string{"Tranche-Label-Tenant: a\u200bb"}},
		"two ids":           {"", "names another admission id", []string{"Admission-Id: a", "Idempotency-Key: b"}},
		"two originals":     {"", "a second time", []string{"X-Forwarded-Uri: /a", "X-Original-Uri: /b"}},
		"original twice":    {"", "a second time", []string{"X-Forwarded-Uri: /a", "X-Forwarded-Uri: /b"}},
		"parameter":         {"?denied=429", "is not a status that a refusal can have", nil},
		"other parameter":   {"?op=check", "is not known", nil},
		"pairs":             {"?labels_from=tenant", "is not label:Header pairs", nil},
		"pairs twice":       {"?labels_from=a:X-A,a:X-B", "is not label:Header pairs", []string{"X-A: a"}},
		"pair and header":   {"?labels_from=tenant:X-Tenant", "keep one of the two", []string{"X-Tenant: acme", "Tranche-Label-Tenant: acme"}},
		"pair's header":     {"?labels_from=tenant:X-Tenant", "X-Tenant: is given twice", []string{"X-Tenant: acme", "X-Tenant: evil"}},
		"deadline":          {"?deadline_ms=0", "is not a deadline", nil},
	} {
		t.Run(what, func(t *testing.T) {
			wantStatus(t, w.authorize(c.query, c.headers...), 400, c.says, `"reason":"invalid_request"`)
		})
	}
	wantStatus(t, w.call("POST", "/v1/authorize", "{}"), 405)
	if len(w.owner.asked) != 0 {
		t.Errorf("asked for %v", w.owner.asked)
	}
}

// What the caller asked for is in the labels, as budgets would name it.
func TestAuthorizeOriginalRequest(t *testing.T) {
	w := newAPIWorld(t)
	labels := func(headers ...string) string {
		w.authorize("", append([]string{"Tranche-Label-Tenant: acme", "Tranche-Op: check"}, headers...)...)
		return w.owner.asked[len(w.owner.asked)-1].Labels.String()
	}
	for _, c := range []struct {
		want    string
		headers []string
	}{
		{"tenant=acme", nil},
		{"method=POST, path=/v1/chat, tenant=acme", []string{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /v1/chat?key=secret"}},
		{"method=GET, path=/v1/chat, tenant=acme", []string{"X-Original-Method: GET", "X-Original-URI: /v1/./x/..//%63hat/"}},
		{"path=/, tenant=acme", []string{"X-Original-URI: /"}},
		{"tenant=acme", []string{"X-Original-URI: /" + strings.Repeat("x", 300)}}, // no label can hold it
		{"tenant=acme", []string{"X-Original-URI: %zz"}},
		{"path=chat, tenant=acme", []string{"X-Original-URI: /v1/chat", "Tranche-Label-Path: chat"}},
		{"tenant=acme, user_id=7", []string{"Tranche-Label-User_id: 7", "Tranche-Label-Route: "}},
	} {
		if got := labels(c.headers...); got != c.want {
			t.Errorf("%q: %s, want %s", c.headers, got, c.want)
		}
	}
	w.authorize("?labels_from=tenant:X-Tenant,user:X-User", "X-Tenant: acme", "Tranche-Op: check")
	if got := w.owner.asked[len(w.owner.asked)-1].Labels.String(); got != "tenant=acme" {
		t.Errorf("from other headers: %s", got)
	}
	wantStatus(t, w.authorize("", "Tranche-Label-Tenant: acme", "Tranche-Label-Metered: yes", "Tranche-Op: reserve", "Tranche-Lifetime: 90s",
		"Tranche-Cost-Tokens: 700", "Admission-Id: r"), 200)
	if r := w.owner.asked[len(w.owner.asked)-1]; r.Op != allocation.Reserve || r.Lifetime != 90 || r.Costs["tokens"] != 700 || r.Key.Tenant != "acme" {
		t.Errorf("asked for %+v", r)
	}
}

// A gateway whose token is wrong must not send its callers looking for one, and must refuse them.
func TestAuthorizeToken(t *testing.T) {
	const secret = "0123456789abcdef0123"
	w := newAPIWorld(t, Token{Name: "edge", SHA256: sha256.Sum256([]byte(secret))})
	acme := "Tranche-Label-Tenant: acme"
	for _, headers := range [][]string{{}, {"Authorization: Bearer wrong"}, {"Tranche-Token: wrong"}, {"Tranche-Token: " + secret, "Tranche-Token: " + secret}, {"Tranche-Token: wrong", "Authorization: Bearer " + secret}} {
		r := w.authorize("?denied=403", append(headers, acme, "Admission-Id: a")...)
		wantStatus(t, r, 503, `"reason":"token_`, `"outcome":"none"`)
		if r.Header.Get("WWW-Authenticate") != "" {
			t.Error("the caller is asked for a token")
		}
	}
	wantStatus(t, w.authorize("", "Authorization: Bearer "+secret, acme, "Admission-Id: a"), 200)
	// The caller's own Authorization is no matter where the gateway sends its token apart.
	wantStatus(t, w.authorize("", "Tranche-Token: "+secret, "Authorization: Basic xyz", acme, "Admission-Id: a"), 200)
	if r := w.owner.asked[1]; r.Key.Credential != "edge" {
		t.Errorf("as %q", r.Key.Credential)
	}
}

// Too many at once are refused in the same words.
func TestAuthorizeOverloaded(t *testing.T) {
	w := newAPIWorld(t)
	w.slots = make(chan struct{})
	r := w.authorize("?denied=403", "Tranche-Label-Tenant: acme", "Admission-Id: a")
	wantStatus(t, r, 503, `"reason":"overloaded"`)
	wantHeaders(t, r, map[string]string{"Tranche-Decision": "undecided", "Retry-After": "1"})
}
