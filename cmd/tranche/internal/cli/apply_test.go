package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
)

// Two operators change one budget at once. Whoever was slower decides anew on what he then reads, and gives up after a few
// tries instead of overwriting what he has not seen.
func TestApplyDecidesAnewWhenSomebodyWasFaster(t *testing.T) {
	for _, c := range []struct {
		raced, writes int // how often the write comes too late; how often it is tried
		done          bool
	}{{1, 2, true}, {staleTries, staleTries, false}} {
		version, writes := 1, 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.Header.Get("Authorization") == "": // is this a coordinator?
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, `{"type":"urn:tranche:unauthorized"}`)
			case r.Method == http.MethodGet:
				fmt.Fprintf(w, `{"version":%d}`, version)
			case r.Header.Get("If-Match") != quoted(int64(version)):
				t.Errorf("it wrote on version %s, not on %d, which it read", r.Header.Get("If-Match"), version)
			case r.URL.Query().Has("dry_run"):
				fmt.Fprintf(w, `{"version":%d,"difference":[{"field":"limit","old":1,"new":2}]}`, version+1)
			default:
				if writes++; writes <= c.raced {
					version++ // somebody else's change
					w.WriteHeader(http.StatusPreconditionFailed)
					fmt.Fprint(w, `{"code":"version_stale","detail":"somebody changed it","fix":"read it again and decide anew"}`)
					return
				}
				fmt.Fprintf(w, `{"version":%d}`, version+1)
			}
		}))
		client, err := api.New("coordinator", server.URL, "x", "")
		if err != nil {
			t.Fatal(err)
		}
		done, err := put(t.Context(), client, manifest.Budget{Budget: allocation.Budget{Name: "b"}}, false)
		server.Close()
		if writes != c.writes || (err == nil) != c.done {
			t.Errorf("raced %d times: %d writes, %+v, %v", c.raced, writes, done, err)
		}
		if !c.done && (err == nil || !strings.Contains(err.Error(), "somebody changed it; read it again and decide anew")) {
			t.Errorf("after the last try: %v", err)
		}
	}
}
