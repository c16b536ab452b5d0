package regional

import (
	"net/http"
	"strconv"
	"testing"
)

// When all slots are taken, what is essential and what ends an admission is served all the same, up to a bound of its own;
// a gateway that may not say essential, and what is not, are told so.
func TestSlotsKeptForWhatIsEssential(t *testing.T) {
	tokens := twoTokens(t)
	tokens[0].Essential = true
	w := newAPIWorld(t, tokens...)
	calls := 0
	as := func(token, path, body string) *http.Response {
		calls++
		headers := []string{"Authorization: Bearer " + token}
		if path != batchPath && path != "/v1/match" {
			headers = append(headers, "Admission-Id: call-"+strconv.Itoa(calls))
		}
		return w.call("POST", path, body, headers...)
	}
	w.slots = make(chan struct{}) // none is free
	const essential = `{"labels":{"tenant":"acme"},"priority":"essential"}`
	item := func(priority string) string {
		return `{"admission_id":"i-` + priority + `","labels":{"tenant":"acme"},"priority":"` + priority + `"}`
	}
	for _, c := range []struct {
		what, token, path, body string
		full                    bool
	}{
		{"essential", tokenA, "/v1/admit", essential, false},
		{"batch", tokenA, "/v1/admit", `{"labels":{"tenant":"acme"},"priority":"batch"}`, true},
		{"of no priority", tokenA, "/v1/admit", `{"labels":{"tenant":"acme"}}`, true},
		{"of a gateway that may not say essential", tokenB, "/v1/admit", essential, true},
		{"all essential", tokenA, batchPath, `{"items":[` + item("essential") + `]}`, false},
		{"some essential", tokenA, batchPath, `{"items":[` + item("essential") + `,` + item("batch") + `]}`, true},
		{"a match", tokenA, "/v1/match", `{"labels":{"tenant":"acme"}}`, true},
		{"a release", tokenB, "/v1/release", `{"tenant":"acme"}`, false},
		{"a settlement", tokenB, "/v1/settle", `{"tenant":"acme"}`, false},
	} {
		r := as(c.token, c.path, c.body)
		if full := r.StatusCode == http.StatusServiceUnavailable; full != c.full {
			t.Errorf("%s: %d %s", c.what, r.StatusCode, bodyOf(t, r))
		}
	}
	w.kept = make(chan struct{}) // nor one of those
	wantStatus(t, as(tokenA, "/v1/admit", essential), 503, `"reason":"overloaded"`)
}
