package regional

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/allocation"
)

const sentBudget = `{"budget":"sent","unit":"requests","limit":3,"window":{"every":"1h"},"match":{"tenant":"sent"},"allocation":{"policy":"home","region":"eu-west","forward":true}}`

// forwarding is a node in us-east that forwards to one in eu-west, through a server that may break.
type forwarding struct {
	from, home *apiWorld
	hops       atomic.Int64
	broken     atomic.Pointer[http.HandlerFunc] // answers instead of the home, which has decided already
}

func newForwarding(t *testing.T, budget string, tokens ...Token) *forwarding {
	t.Helper()
	b, err := allocation.ParseBudget([]byte(budget))
	if err != nil {
		t.Fatal(err)
	}
	f := &forwarding{from: newAPIWorld(t, tokens...), home: newAPIWorld(t, tokens...)}
	for region, w := range map[string]*apiWorld{"us-east": f.from, "eu-west": f.home} {
		w.owner.catalogue = allocation.NewCatalogue(region).With(3, []allocation.ConfiguredBudget{{Budget: b, Version: 7}}, []allocation.Term{termOf(b)}, nil)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.hops.Add(1)
		if broken := f.broken.Load(); broken != nil {
			f.home.ServeHTTP(httptest.NewRecorder(), r)
			(*broken)(w, r)
			return
		}
		f.home.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f.from.config.Forward = mustForward(t, map[string]string{"eu-west": server.URL})
	f.home.config.Forward = mustForward(t, map[string]string{"us-east": server.URL}) // a loop, if a hop could be followed by another
	return f
}

func mustForward(t *testing.T, nodes map[string]string) *Forwarder {
	t.Helper()
	f, err := NewForwarder(nodes, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const sentBody = `{"labels":{"tenant":"sent"},"deadline_ms":2000}`

// A caller that arrives elsewhere gets what its home answers, once: the admission, its replay, and its refusals.
func TestForwardsOnceToTheHome(t *testing.T) {
	f := newForwarding(t, sentBudget)
	wantStatus(t, f.from.admit("id-1", sentBody), 200, `"region":"eu-west"`, `"admission_id":"id-1"`, `"decision":"admitted"`)
	wantStatus(t, f.from.admit("id-1", sentBody), 200, `"replayed":true`)
	r := f.from.admit("id-2", `{"labels":{"tenant":"sent"},"costs":{"requests":3},"deadline_ms":2000}`)
	if wantStatus(t, r, 429, `"reason":"ceiling_reached"`, `"region":"eu-west"`); r.Header.Get("Retry-After") == "" || r.Header.Get("Ratelimit") == "" {
		t.Errorf("headers %v", r.Header)
	}
	if got := f.home.owner.charged(); got != 1 || f.from.owner.charged() != 0 {
		t.Errorf("%d charged at home, %d elsewhere", got, f.from.owner.charged())
	}
	// One that was forwarded already goes no further, whoever forwarded it.
	before := f.hops.Load()
	wantStatus(t, f.from.call("POST", "/v1/admit", sentBody, "Admission-Id: id-3", forwardedHeader+": ap-south"), 421, `"home":"eu-west"`)
	if f.hops.Load() != before {
		t.Error("a forwarded request was forwarded again")
	}
}

// What must stay here does: other budgets, reservations (their settle would not find them), batches, and regions of which
// no address is known.
func TestForwardsNothingElse(t *testing.T) {
	f := newForwarding(t, sentBudget)
	wantStatus(t, f.from.admit("id-1", `{"labels":{"tenant":"sent"},"op":"reserve"}`), 421, `"reason":"not_home"`)
	wantStatus(t, f.from.call("POST", "/v1/admit/batch", `{"items":[{"labels":{"tenant":"sent"},"admission_id":"b"}]}`), 200, `"reason":"not_home"`)
	f.from.config.Forward = mustForward(t, map[string]string{"ap-south": "http://127.0.0.1:1"})
	wantStatus(t, f.from.admit("id-2", sentBody), 421, `"reason":"not_home"`)
	plain := newForwarding(t, strings.Replace(sentBudget, `,"forward":true`, "", 1))
	wantStatus(t, plain.from.admit("id-3", sentBody), 421, `"reason":"not_home"`)
	if f.hops.Load()+plain.hops.Load() != 0 {
		t.Error("something was forwarded")
	}
}

// The caller's own token goes along: a home that does not know it refuses, and is not overruled.
func TestForwardKeepsTheCallersToken(t *testing.T) {
	known, err := ParseTokens([]byte("gateway " + strings.Repeat("a", 40)))
	if err != nil {
		t.Fatal(err)
	}
	f := newForwarding(t, sentBudget, known...)
	token := "Authorization: Bearer " + strings.Repeat("a", 40)
	wantStatus(t, f.from.call("POST", "/v1/admit", sentBody, "Admission-Id: id-1", token), 200, `"region":"eu-west"`, `"credential":"gateway"`)
	other, err := ParseTokens([]byte("other " + strings.Repeat("b", 40)))
	if err != nil || f.home.live.Set(other) != nil {
		t.Fatal(err)
	}
	wantStatus(t, f.from.call("POST", "/v1/admit", sentBody, "Admission-Id: id-2", token), 401, `"reason":"token_unknown"`)
}

// An answer that is lost may be an admission that stands: the caller must hear that nobody knows, and the same id must get
// the truth. One that was never sent charged nothing.
func TestForwardFailsClosed(t *testing.T) {
	f := newForwarding(t, sentBudget)
	for name, broken := range map[string]http.HandlerFunc{
		"cut": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"proxy": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("<html>bad gateway</html>"))
		},
		"moved": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
	} {
		f.broken.Store(&broken)
		wantStatus(t, f.from.admit("lost-"+name, sentBody), 503, `"outcome":"unknown"`, `"reason":"outcome_unknown"`, `"admission_id":"lost-`+name+`"`)
		f.broken.Store(nil)
		wantStatus(t, f.from.admit("lost-"+name, sentBody), 200, `"replayed":true`)
	}
	if got := f.home.owner.charged(); got != 3 {
		t.Errorf("%d charged for 3 ids", got)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := silent.Addr().String()
	_ = silent.Close()
	f.from.config.Forward = mustForward(t, map[string]string{"eu-west": "http://" + address})
	wantStatus(t, f.from.admit("unsent", sentBody), 421, `"reason":"not_home"`, `"outcome":"none"`)
}

// A token must not travel in the clear beyond this machine.
func TestForwarderRefusesBadAddresses(t *testing.T) {
	for region, address := range map[string]string{"eu-west": "http://node.example:7080", "us-east": "node", "US": "https://node:7080"} {
		if _, err := NewForwarder(map[string]string{region: address}, nil); err == nil {
			t.Errorf("%s=%s is taken", region, address)
		}
	}
}
