package regional

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// What a tenant was charged, over HTTP: the account that tells what a leaked key cost. Another tenant's is not in it, what was
// given back is not, and a figure that is not whole says so.
func TestChargedOverHTTP(t *testing.T) {
	w := newAPIWorld(t)
	wantStatus(t, w.admit("c-1", `{"labels":{"tenant":"acme","metered":"yes"},"costs":{"tokens":1000}}`), 200)
	wantStatus(t, w.admit("c-2", `{"labels":{"tenant":"acme","metered":"yes"},"op":"reserve","costs":{"tokens":500}}`), 200)
	wantStatus(t, w.admit("c-3", `{"labels":{"tenant":"acme","metered":"yes"},"op":"reserve","costs":{"tokens":500}}`), 200)
	wantStatus(t, w.call("POST", "/v1/release", `{"tenant":"acme"}`, "Admission-Id: c-3"), 200)
	const since = "&since=1970-01-01T00:00:01Z"
	wantStatus(t, w.call("GET", "/v1/charged?tenant=acme"+since, ""), 200, `"unit":"tokens","admissions":2,"spent":1000,"reserved":500`, `"complete":true`)
	wantStatus(t, w.call("GET", "/v1/charged?tenant=globex"+since, ""), 200, `"budgets":[]`)
	wantStatus(t, w.call("GET", "/v1/charged?credential=nobody"+since, ""), 200, `"budgets":[]`)
	wantStatus(t, w.call("GET", "/v1/charged?tenant=acme&since=1970-01-01T00:00:00Z", ""), 200, `"complete":false`)
	for query, field := range map[string]string{
		"?since=1970-01-01T00:00:01Z": "tenant", "?tenant=acme": "since", "?tenant=acme&since=yesterday": "since", "?tenant=acme&key=x": "key",
	} {
		wantStatus(t, w.call("GET", "/v1/charged"+query, ""), 400, fmt.Sprintf(`"field":%q`, field))
	}
	for err, status := range map[error]int{ErrTooLong: 503, context.DeadlineExceeded: 503, errors.New("gone"): 503, ErrNotReady: 503} {
		w.owner.fail = err
		wantStatus(t, w.call("GET", "/v1/charged?tenant=acme"+since, ""), status)
	}
}
