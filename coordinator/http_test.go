package coordinator_test

import (
	"strings"
	"testing"
)

// A parameter that nobody reads is a wish that nobody hears: `?dryrun=true` would create the budget.
func TestUnknownParametersAreRefused(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	for _, c := range []struct{ method, path, field, fix string }{
		{"POST", "/v1/budgets?dryrun=true", "dryrun", "dry_run"},
		{"POST", "/v1/budgets?dry_run", "dry_run", "true or false"},
		{"POST", "/v1/budgets?dry_run=false&dry_run=true", "dry_run", "once"},
		{"POST", "/v1/budgets?dry_run=true;x", "query", "escape"},
		{"PUT", "/v1/budgets/new?DRY_RUN=true", "DRY_RUN", "dry_run"},
		{"DELETE", "/v1/budgets/acme/requests?dry-run=true", "dry-run", "dry_run"},
		{"GET", "/v1/budgets?limits=3", "limits", "after, limit, deleted"},
		{"GET", "/v1/budgets/acme/requests?x", "x", "takes none"},
		{"GET", "/v1/status?x=1", "x", "takes none"},
		{"POST", "/v1/regions/us-east/token?dry_run=true", "dry_run", "takes none"},
	} {
		a := w.must(r, 422, c.method, c.path, budgetJSON("new", "5"), "If-Match", `"1"`)
		if fix, _ := a["fix"].(string); a["field"] != c.field || !strings.Contains(fix, c.fix) {
			t.Errorf("%s %s: %v", c.method, c.path, a)
		}
	}
	w.must(r, 404, "GET", "/v1/budgets/new", nil)
	w.must(r, 200, "POST", "/v1/budgets?dry_run=true", budgetJSON("new", "5"))
	w.must(r, 200, "GET", "/v1/budgets?limit=3&after=a&deleted=true", nil)
}

// A known path with a wrong method is there: 404 would send people to look for a typing error in it.
func TestWrongMethod(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	for _, c := range []struct{ method, path, allow string }{
		{"OPTIONS", "/v1/budgets", "GET, HEAD, POST"},
		{"PATCH", "/v1/budgets/acme/requests", "GET, HEAD, PUT, DELETE"},
		{"DELETE", "/v1/status", "GET, HEAD"},
		{"GET", "/v1/sync", "POST"},
	} {
		if got := w.request(r, c.method, c.path, nil); got.Code != 405 || got.Header().Get("Allow") != c.allow || !strings.Contains(got.Body.String(), "use "+c.allow) {
			t.Errorf("%s %s answers %d, Allow %q, %s", c.method, c.path, got.Code, got.Header().Get("Allow"), got.Body)
		}
	}
	w.must(r, 404, "PATCH", "/v1/nothing", nil)
	w.must(r, 404, "GET", "/v2/budgets", nil)
}
