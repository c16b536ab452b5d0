//go:build unix

package gateways

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional/postgres/cluster/clustertest"
)

// nginx with its printed block, included as its first lines say.
func TestNginx(t *testing.T) { try(t, "nginx", (*station).trial) }

// HAProxy with its two printed files.
func TestHAProxy(t *testing.T) { try(t, "haproxy", (*station).trial) }

// Caddy with its printed Caddyfile.
func TestCaddy(t *testing.T) { try(t, "caddy", (*station).trial) }

// try starts a gateway with its printed block, if it is installed.
func try(t *testing.T, gateway string, trial func(*station), change ...func(*station)) {
	t.Helper()
	program, found := find(t, gateway)
	if !found {
		return
	}
	s, dir, listen := newStation(t, change...), clustertest.Dir(t), freeAddress(t)
	switch gateway {
	case "nginx":
		s.block(dir, "tranche.conf", gateway, "config", listen)
		s.start(listen, dir, program, "-p", dir, "-c", s.file(dir, "nginx.conf", nginxAround), "-e", "stderr")
	case "haproxy":
		s.block(dir, "tranche.lua", gateway, "lua", listen)
		s.start(listen, dir, program, "-db", "-C", dir, "-f", s.block(dir, "haproxy.cfg", gateway, "config", listen))
	case "caddy":
		s.start(listen, dir, program, "run", "--adapter", "caddyfile", "--config", s.block(dir, "Caddyfile", gateway, "config", listen))
	}
	trial(s)
}

// nginxAround is what nginx needs around the block to be one process that writes nowhere but into its folder.
const nginxAround = `daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    include tranche.conf;
}
`

// trial is what every gateway must do.
func (s *station) trial() {
	s.admitted()
	s.refusals()
	s.legacy()
	s.spoofed()
	s.hopByHop()
	s.failures()
	s.keepsConnections()
	s.leaksNothing()
}

func (s *station) admitted() {
	s.t.Helper()
	a := s.ask("POST", "/chat?key=secret", "a body", "X-Tenant: acme", "Admission-Id: first", "Authorization: "+callerSecret)
	if a.status != 200 || a.body != "served" || s.lastBody.Load() != "a body" || s.lastSeen.Load() != callerSecret {
		s.t.Fatalf("%+v; what is protected saw %q and %q", a, s.lastBody.Load(), s.lastSeen.Load())
	}
	// The caller repeats its request, and so may the gateway: charged once, to the budget of the tenant and of the path.
	if a := s.ask("POST", "/chat?key=other", "", "X-Tenant: acme", "Admission-Id: first"); a.status != 200 {
		s.t.Errorf("repeated: %+v", a)
	}
	if s.spent("acme") != 1 || s.spent("chat") != 1 {
		s.t.Errorf("charged %d and %d, want 1 and 1", s.spent("acme"), s.spent("chat"))
	}
	// A caller that knows the id by its other name only: the same admission.
	if a := s.ask("POST", "/chat", "", "X-Tenant: acme", "Idempotency-Key: first"); a.status != 200 {
		s.t.Errorf("under its other name: %+v", a)
	}
	if s.spent("acme") != 1 || s.spent("chat") != 1 {
		s.t.Errorf("charged %d and %d, want 1 and 1", s.spent("acme"), s.spent("chat"))
	}
	// What is protected has a 403 of its own, which is not the budget's.
	if a := s.ask("GET", "/forbidden", "", "X-Tenant: acme", "Admission-Id: own-403"); a.status != 403 || a.body != "served" {
		s.t.Errorf("its own 403: %+v", a)
	}
}

func (s *station) refusals() {
	s.t.Helper()
	for i := range 2 { // the region's share of 4
		if a := s.ask("GET", "/", "", "X-Tenant: small", fmt.Sprint("Admission-Id: small-", i)); a.status != 200 {
			s.t.Fatalf("%+v", a)
		}
	}
	before := s.served.Load()
	a := s.ask("GET", "/", "", "X-Tenant: small", "Admission-Id: small-3")
	s.refused("spent", a, http.StatusTooManyRequests, "region_share_spent", before)
	if a.header.Get("Retry-After") != "1" || a.header.Get("Ratelimit") == "" || a.header.Get("Ratelimit-Policy") == "" {
		s.t.Errorf("spent: %v", a.header)
	}
	a = s.ask("GET", "/", "", "X-Tenant: nobody", "Admission-Id: x")
	s.refused("no budget", a, http.StatusUnprocessableEntity, "no_budget", before)
	if a.header.Get("Retry-After") != "" {
		s.t.Errorf("a retry cannot help, and is advised: %v", a.header)
	}
	// A request's own id is new for every retry, so it is none.
	s.refused("no id", s.ask("GET", "/", "", "X-Tenant: acme", "X-Request-Id: r-1"), http.StatusBadRequest, "admission_id_missing", before)
	s.refused("no tenant", s.ask("GET", "/", "", "Admission-Id: x"), http.StatusUnprocessableEntity, "no_budget", before)
	s.refused("conflict", s.ask("GET", "/", "", "X-Tenant: acme", "Admission-Id: first"), http.StatusUnprocessableEntity, "admission_id_conflict", before)
}

// legacy: the limiter that is still in force denies what Tranche admits. The report says so, and only the report.
func (s *station) legacy() {
	s.t.Helper()
	if a := s.ask("GET", "/", "", "X-Tenant: acme", "Admission-Id: legacy-1", "X-Old-Limiter: deny"); a.status != 200 {
		s.t.Errorf("%+v", a)
	}
	if a := s.ask("GET", "/", "", "X-Tenant: acme", "Admission-Id: legacy-2", "X-Old-Limiter: allow"); a.status != 200 {
		s.t.Errorf("%+v", a)
	}
	if got := s.looser("acme"); got != 1 {
		s.t.Errorf("the report has %d that the other limiter denied, want 1", got)
	}
}

// spoofed: a caller says itself what only the gateway may say. It is charged all the same, or refused.
func (s *station) spoofed() {
	s.t.Helper()
	for i, headers := range [][]string{
		{"Tranche-Op: check"},
		{"Tranche-Cost-Requests: 0"},
		{"Tranche-Label-Tenant: other"},
		{"tranche-label-tenant: other", "Tranche-Op: check"},
		{"Tranche-Token: wrong"},
		{"Tranche-Priority: essential", "Tranche-Legacy: allow"},
		{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /elsewhere"},
		{"X-Original-Method: POST", "X-Original-Uri: /elsewhere"},
	} {
		acme, other, served := s.spent("acme"), s.spent("other"), s.served.Load()
		a := s.once("GET", "/", "", append(headers, "X-Tenant: acme", fmt.Sprint("Admission-Id: spoof-", i))...)
		through := s.served.Load() - served
		if charged := s.spent("acme") - acme; s.spent("other") != other || charged != through || through != 0 != (a.status == 200) {
			s.t.Errorf("%q: %+v, charged %d, went through %d times", headers, a, charged, through)
		}
	}
}

// hopByHop: a caller names the header that says who it is as one of its own connection. It is charged as who it is.
func (s *station) hopByHop() {
	s.t.Helper()
	for i, name := range []string{"X-Tenant", "close, x-tenant", "Admission-Id"} {
		acme := s.spent("acme")
		a := s.ask("GET", "/", "", "Connection: "+name, "X-Tenant: acme", fmt.Sprint("Admission-Id: hop-", i))
		if charged := s.spent("acme") - acme; a.status != http.StatusOK || charged != 1 {
			s.t.Errorf("Connection: %s: %+v, charged %d", name, a, charged)
		}
	}
}

// failures: a node that does not know, is slow, or is down. None of them lets a request through.
func (s *station) failures() {
	s.t.Helper()
	ask := func(what string) answer {
		s.t.Helper()
		before := s.served.Load()
		a := s.once("GET", "/", "", "X-Tenant: acme", "Admission-Id: failure-"+what)
		if a.status != http.StatusServiceUnavailable || s.served.Load() != before || a.header.Get("Retry-After") != "1" || a.header.Get("Content-Type") != "application/problem+json" {
			s.t.Errorf("%s: %+v, went through %d times", what, a, s.served.Load()-before)
		}
		return a
	}
	s.before.Store(undecided)
	ask("undecided")
	s.before.Store(slow)
	if a := ask("slow"); a.took > slowAnswer {
		s.t.Errorf("slow: the caller waited %s", a.took)
	}
	s.before.Store(passes)
	s.down()
	if a := ask("down"); a.took > slowAnswer {
		s.t.Errorf("down: the caller waited %s", a.took)
	}
	s.up()
	// The same id gets the truth now, whatever became of it then.
	for _, what := range []string{"undecided", "slow", "down"} {
		if a := s.ask("GET", "/", "", "X-Tenant: acme", "Admission-Id: failure-"+what); a.status != 200 {
			s.t.Errorf("%s, and then: %+v", what, a)
		}
	}
}

// keepsConnections: the gateway asks over connections that it has.
func (s *station) keepsConnections() {
	s.t.Helper()
	before := s.opened.Load()
	for i := range 100 {
		if a := s.ask("GET", "/", "", "X-Tenant: acme", fmt.Sprint("Admission-Id: keep-", i)); a.status != 200 {
			s.t.Fatalf("%+v", a)
		}
	}
	if opened := s.opened.Load() - before; opened > 10 {
		s.t.Errorf("100 requests one after the other opened %d connections to the node", opened)
	}
}

// leaksNothing: so many requests, from so many callers at once, each charged once.
func (s *station) leaksNothing() {
	s.t.Helper()
	spent, goroutines := s.spent("acme"), runtime.NumGoroutine()
	s.rush("warm", many/20)
	files := s.files()
	began := time.Now()
	s.rush("many", many)
	s.t.Logf("%d requests in %s; %d files open before, %d after; %d connections to the node", many, time.Since(began).Round(time.Millisecond), files, s.files(), s.open.Load())
	if got := s.spent("acme") - spent; got != many+many/20 {
		s.t.Errorf("charged %d for %d requests", got, many+many/20)
		s.known("warm", many/20)
		s.known("many", many)
	}
	// What is pooled may differ a little; what leaked would be thousands.
	if after := s.files(); after > files+2*atOnce {
		s.t.Errorf("%d files open before, %d after", files, after)
	}
	if open := s.open.Load(); open > 4*atOnce {
		s.t.Errorf("%d connections to the node", open)
	}
	s.stop()
	s.client.CloseIdleConnections()
	s.eventually("the node's connections are closed", func() bool { return s.open.Load() == 0 })
	s.eventually("no goroutine is left", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// known: the node knows each request that was let through, by its id.
func (s *station) known(name string, requests int) {
	s.t.Helper()
	for i := 1; i <= requests; i++ {
		key := allocation.IDKey{Credential: "gateway", Tenant: "acme", ID: fmt.Sprintf("%s-%d", name, i)}
		if d, found, err := s.node.Find(s.t.Context(), key); err != nil || !found || !d.Admitted() {
			s.t.Errorf("%s was let through: known %v, %+v, %v", key.ID, found, d, err)
		}
	}
}

func (s *station) rush(name string, requests int) {
	s.t.Helper()
	var all sync.WaitGroup
	var next, failed atomic.Int64
	for range atOnce {
		all.Go(func() {
			for i := next.Add(1); i <= int64(requests); i = next.Add(1) {
				a, err := s.decided("GET", "/", "", "X-Tenant: acme", fmt.Sprintf("Admission-Id: %s-%d", name, i))
				if (err != nil || a.status != 200 || a.body != "served") && failed.Add(1) == 1 {
					s.t.Errorf("request %d: %v %+v", i, err, a)
				}
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n > 0 {
		s.t.Errorf("%d of %d failed", n, requests)
	}
}

// If HAProxy's action cannot run, HAProxy goes on with the line after it: that line must refuse.
func TestHAProxyActionFails(t *testing.T) {
	program, found := find(t, "haproxy")
	if !found {
		return
	}
	s, dir, listen := newStation(t), clustertest.Dir(t), freeAddress(t)
	s.file(dir, "tranche.lua", `core.register_action("tranche", { "http-req" }, function(txn) error("broken") end)`)
	s.start(listen, dir, program, "-db", "-C", dir, "-f", s.block(dir, "haproxy.cfg", "haproxy", "config", listen))
	s.refused("the action failed", s.once("GET", "/", "", "X-Tenant: acme", "Admission-Id: a"), http.StatusServiceUnavailable, "outcome_unknown", 0)
}
