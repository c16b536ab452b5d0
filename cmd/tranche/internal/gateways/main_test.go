//go:build unix

package gateways

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/stage"
	"tranche/regional"
	"tranche/regional/nodetest"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	gatewayToken = "0123456789abcdef-gateway"
	callerSecret = "Basic the-callers-own"
	many         = 10_000
	atOnce       = 64
)

var testBudgets = []string{
	`{"budget":"acme","unit":"requests","limit":1000000,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"acme"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"small","unit":"requests","limit":4,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"small"},"allocation":{"policy":"fixed","weights":{"us-east":1,"eu-west":1}}}`,
	`{"budget":"other","unit":"requests","limit":1000,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"other"},"admission_id":"generated","allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"chat","unit":"requests","limit":1000,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"path":"/chat","method":"POST"},"allocation":{"policy":"home","region":"us-east"}}`,
}

// What stands before the node's API.
const (
	passes    int32 = iota
	undecided       // the node's answer to a request whose time is over before it is begun
	slow            // no answer for longer than a gateway waits
)

// slowAnswer is how long a caller may wait for the refusal at most: the gateway's patience is 0.7 s, and the machine may be busy;
// a node that is slow says nothing for 5 s.
const slowAnswer = 4500 * time.Millisecond

// triesMost bounds how often a request is repeated that a busy machine could not decide in time.
const triesMost = 20

// station is a gateway between a client and what is protected, with a node to ask. The node's server can be taken down.
type station struct {
	t       *testing.T
	node    *nodetest.Node
	api     http.Handler
	before  atomic.Int32
	opened  atomic.Int64 // connections that the gateway made to the node
	open    atomic.Int64 // of which so many are open
	address string       // of the node's API
	server  *http.Server
	secured *tls.Config // of the node's API; nil: plain http
	ca      string      // file of its authority

	upstream *httptest.Server
	served   atomic.Int64 // requests that went through
	lastBody atomic.Value
	lastSeen atomic.Value // the Authorization that what is protected saw

	gateway string // URL
	process *exec.Cmd
	client  *http.Client
	ended   chan struct{}
}

func newStation(t *testing.T, change ...func(*station)) *station {
	t.Helper()
	tokens, err := regional.ParseTokens([]byte("gateway " + gatewayToken))
	if err != nil {
		t.Fatal(err)
	}
	s := &station{t: t, client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}}
	s.node, err = nodetest.Start(t.Context(), clustertest.Database(t), nodetest.Options{
		Region: "us-east", Tokens: tokens, Budgets: testBudgets,
		Wrap: func(h http.Handler) http.Handler { s.api = h; return h },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		if err := s.node.Close(); err != nil {
			t.Error(err)
		}
	})
	s.address = freeAddress(t)
	for _, c := range change {
		c(s)
	}
	s.up()
	t.Cleanup(s.down)
	s.upstream = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.lastBody.Store(string(body))
		s.lastSeen.Store(r.Header.Get("Authorization"))
		s.served.Add(1)
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprint(w, "served")
	}))
	t.Cleanup(s.upstream.Close)
	return s
}

// up starts the node's server, on the same address every time.
func (s *station) up() {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.secured != nil {
		listener = tls.NewListener(listener, s.secured)
	}
	s.server = regional.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch s.before.Load() {
		case undecided:
			over, cancel := context.WithCancel(r.Context())
			cancel()
			r = r.WithContext(over)
		case slow:
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
			}
		}
		s.api.ServeHTTP(w, r)
	}))
	s.server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.opened.Add(1)
			s.open.Add(1)
		case http.StateClosed:
			s.open.Add(-1)
		}
	}
	go func(server *http.Server) { _ = server.Serve(listener) }(s.server)
}

func (s *station) down() { _ = s.server.Close() }

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := stage.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// options are those of the block.
func (s *station) options(listen string) Options {
	node := "http://" + s.address
	if s.secured != nil {
		node = "https://" + s.address
	}
	return Options{
		Node: node, CA: s.ca, Envoy: "127.0.0.1:7090", Token: gatewayToken, Listen: listen,
		Upstream: strings.TrimPrefix(s.upstream.URL, "http://"), Labels: []Pair{{"tenant", "X-Tenant"}}, Deadline: 400 * time.Millisecond, Domain: "edge",
		Legacy: "X-Old-Limiter",
	}
}

// block writes a printed block into a file, as it is printed.
func (s *station) block(dir, file, gateway, part, listen string) string {
	s.t.Helper()
	text, err := Write(gateway, part, s.options(listen))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.file(dir, file, text)
}

func (s *station) file(dir, name, text string) string {
	s.t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// requiredVariable makes a gateway that is not installed an error. CI sets it, and so may anybody.
const requiredVariable = "TRANCHE_GATEWAYS"

// find is the gateway's program. Where there is none the test says what to install, and fails if it is required.
func find(t *testing.T, program string) (string, bool) {
	t.Helper()
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return path, true
		}
	}
	say := fmt.Sprintf("%s is not installed, so its block was not tried; apt-get install -y %s, or brew install %s", program, program, program)
	if os.Getenv(requiredVariable) == "required" || os.Getenv("CI") != "" {
		t.Fatal(say)
	}
	t.Log(say)
	return "", false
}

// start starts the gateway's program and waits until it listens.
func (s *station) start(listen, dir, program string, args ...string) {
	s.t.Helper()
	output := &lockedBuffer{}
	s.process = exec.Command(program, args...)
	dieWithUs(s.process)
	s.process.Dir = dir
	s.process.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	s.process.Stdout, s.process.Stderr = output, output
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.ended = make(chan struct{})
	go func() {
		_ = s.process.Wait()
		close(s.ended)
	}()
	s.t.Cleanup(func() {
		s.stop()
		if s.t.Failed() {
			s.t.Logf("%s said:\n%s", filepath.Base(program), output.String())
		}
	})
	s.gateway = "http://" + listen
	s.eventually(filepath.Base(program)+" listens", func() bool {
		select {
		case <-s.ended:
			s.t.Fatalf("%s ended: %s", program, output.String())
		default:
		}
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

func (s *station) stop() {
	_ = s.process.Process.Kill()
	<-s.ended
}

// lockedBuffer keeps what a process says.
type lockedBuffer struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return b.text.String()
}

func (s *station) eventually(what string, holds func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within 20 s: %s", what)
		}
		<-tick.C
	}
}

// answer is what a caller of the gateway got.
type answer struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

// once sends one request through the gateway. Headers are "Name: value".
func (s *station) once(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(method, path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// ask sends it again, under the same id, while nobody decides it, as a caller should.
func (s *station) ask(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.decided(method, path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *station) decided(method, path, body string, headers ...string) (a answer, err error) {
	for range triesMost {
		if a, err = s.try(method, path, body, headers...); err != nil || a.status != http.StatusServiceUnavailable {
			break
		}
	}
	return a, err
}

func (s *station) try(method, path, body string, headers ...string) (answer, error) {
	request, err := http.NewRequest(method, s.gateway+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	began := time.Now()
	response, err := s.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text), time.Since(began)}, err
}

// spent is what a budget was charged.
func (s *station) spent(budget string) (sum int64) {
	s.t.Helper()
	account, err := s.node.Export(context.Background(), "", 100)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, u := range account.Usage {
		if u.Budget == budget {
			sum += u.Spent
		}
	}
	return sum
}

// looser is how often the other limiter denied what this budget admitted, by the node's report.
func (s *station) looser(budget string) int64 {
	s.t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/v1/shadow", nil)
	r.Header.Set("Authorization", "Bearer "+gatewayToken)
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	var report regional.ShadowReport
	if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil {
		s.t.Fatalf("%d %v", w.Code, err)
	}
	for _, b := range report.Budgets {
		if b.Budget == budget {
			return b.Looser
		}
	}
	return 0
}

// refused fails unless the request was refused with a status and a reason, and did not go through.
func (s *station) refused(what string, a answer, status int, reason string, before int64) {
	s.t.Helper()
	var body struct {
		Status int
		Reason string
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Status != status || body.Reason != reason {
		s.t.Errorf("%s: the body is %q", what, a.body)
	}
	if kind := a.header.Get("Content-Type"); a.status != status || kind != "application/problem+json" || a.header.Get("Cache-Control") != "no-store" {
		s.t.Errorf("%s: %d %v, want %d", what, a.status, a.header, status)
	}
	if s.served.Load() != before {
		s.t.Errorf("%s: it went through", what)
	}
}

// files is how many the gateway's process has open.
func (s *station) files() int {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(s.process.Process.Pid) + "/fd")
	if err != nil {
		return 0 // a system without /proc
	}
	return len(entries)
}
