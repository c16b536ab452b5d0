package coordinator_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// If this failed, anybody with a file could let traffic above a limit, for ever, and nobody would know why.
func TestShadowAgainNeedsAReasonAndAnEnd(t *testing.T) {
	w, _, _ := two(t, 1)
	r, path := w.replicas[0], "/v1/budgets/acme/requests"
	version := get[coordinator.BudgetAnswer](w, r, path).Version
	body := func(enforcement string, until time.Duration, more string) string {
		text := strings.TrimSuffix(budgetJSON("acme/requests", "100"), "}") + `,"enforcement":"` + enforcement + `"` + more
		if until != 0 {
			text += `,"enforcement_until":"` + allocation.At(w.clock.Now().Add(until)).String() + `"`
		}
		return text + "}"
	}
	put := func(status int, reason, body string) string {
		t.Helper()
		to := path
		if reason != "" {
			to += "?reason=" + url.QueryEscape(reason)
		}
		got := w.request(r, "PUT", to, body, "If-Match", fmt.Sprintf("%q", fmt.Sprint(version)))
		if got.Code != status {
			t.Fatalf("status %d, not %d: %s", got.Code, status, got.Body)
		}
		if status == 200 {
			version++
		}
		return got.Body.String()
	}
	for _, text := range []string{
		put(422, "", body("shadow", time.Hour, "")),
		put(422, "an incident", body("shadow", 0, "")),
		put(422, "an incident", body("meter", 8*24*time.Hour, "")),
		put(422, "an incident", body("shadow", -time.Hour, "")),
		put(422, strings.Repeat("x", 501), body("shadow", time.Hour, "")),
	} {
		if !strings.Contains(text, "enforcement") && !strings.Contains(text, `"reason"`) {
			t.Error(text)
		}
	}
	if text := put(200, "an incident", body("shadow", time.Hour, "")); !strings.Contains(text, "above its limit until") {
		t.Error(text)
	}
	audit := get[coordinator.AuditPage](w, r, "/v1/audit?limit=1000").Lines
	if last := audit[len(audit)-1]; last.Act != "budget.shadow" || last.Reason != "an incident" || last.Who == "" || last.Object != "acme/requests" {
		t.Errorf("%+v", last)
	}
	put(422, "still", body("shadow", 8*24*time.Hour, ""))
	put(200, "", body("enforce", 0, ""))
	put(200, "an incident", body("shadow", time.Hour, `,"enforce_for":{"percent":5}`))
	put(200, "", body("shadow", time.Hour, `,"enforce_for":{"percent":50}`))
	put(422, "", body("shadow", time.Hour, `,"enforce_for":{"percent":5}`))
	put(200, "too many", body("shadow", time.Hour, `,"enforce_for":{"percent":5}`))
}

// If this failed, a team could not watch a new budget before it bites.
func TestANewBudgetMayBeginInShadow(t *testing.T) {
	w, _, _ := two(t, 1)
	w.must(w.replicas[0], 201, "POST", "/v1/budgets", strings.TrimSuffix(budgetJSON("new", "5"), "}")+`,"enforcement":"shadow"}`)
}
