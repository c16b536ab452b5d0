package cli

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Who follows the feed must still be there when it matters most: a coordinator that is restarted, or has no etcd, is asked again
// from the same cursor, and the outage is told once. A token that is refused ends it.
func TestEventsGoOnAfterAnOutage(t *testing.T) {
	page := func(id string) string {
		return `{"events":[{"format":1,"id":"` + id + `","at":"2026-05-04T10:00:00Z","kind":"frozen","change":"began","text":"event ` + id + `"}],"cursor":"` + id + `"}`
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var asked atomic.Int64
	after := make([]string, 6)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" { // as a coordinator answers who asks without a token
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"type":"urn:tranche:unauthorized","code":"unauthorized"}`))
			return
		}
		n := asked.Add(1)
		after[n] = r.URL.Query().Get("after")
		switch n {
		case 1:
			_, _ = w.Write([]byte(page("1")))
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			c, _, _ := http.NewResponseController(w).Hijack() // no answer at all
			_ = c.Close()
		case 4:
			_, _ = w.Write([]byte(page("2")))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	var out, errs strings.Builder
	a := &App{in: strings.NewReader(""), out: &out, err: &errs, now: time.Now}
	status := a.run(ctx, []string{"events", "--follow", "--coordinator", server.URL, "--token", "x"})
	if status != exitFailed || asked.Load() != 5 {
		t.Fatalf("it ended with %d after %d calls: %s", status, asked.Load(), errs.String())
	}
	if !strings.Contains(out.String(), "event 1") || strings.Count(out.String(), "event 2") != 1 || strings.Count(errs.String(), "going on as soon as it answers") != 1 {
		t.Errorf("printed %s, and %s", out.String(), errs.String())
	}
	if after[2] != "1" || after[3] != "1" || after[4] != "1" || after[5] != "2" {
		t.Errorf("it went on from %q", after)
	}
}
