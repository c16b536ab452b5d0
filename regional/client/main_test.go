//go:build unix

package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"tranche/regional"
	"tranche/regional/client"
	"tranche/regional/nodetest"
	"tranche/regional/postgres/cluster"
)

const (
	region = "us-east"
	token  = "a-gateway-token-of-the-tests"
)

// budgets are told apart by the tenant, so that the tests share one node.
var budgets = []string{
	`{"budget":"acme","unit":"requests","limit":1000000,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"acme"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"acme/tokens","unit":"tokens","limit":1000000,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"acme","metered":"yes"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"small","unit":"requests","limit":3,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"small"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"hold","unit":"requests","limit":1,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"hold"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"last","unit":"requests","limit":50,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"last"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"batch","unit":"requests","limit":5,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"batch"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"shadow","unit":"requests","limit":2,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"shadow"},"enforcement":"shadow","allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"meter","unit":"requests","limit":2,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"meter"},"enforcement":"meter","allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"guarded","unit":"requests","limit":10,"protected":5,"ladder":{"interactive":{"degrade_at":10,"route":"small"}},"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"guarded"},"allocation":{"policy":"home","region":"us-east"}}`,
	`{"budget":"eu","unit":"requests","limit":3,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"eu"},"allocation":{"policy":"home","region":"eu-west"}}`,
}

// nodeURL is a real node over a real Postgres; node is the same.
var (
	nodeURL string
	node    *nodetest.Node
)

// The node runs in TestMain, since the examples need it and have no test to ask.
func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stop := c.Stop(ctx); err == nil {
			err = stop
		}
	}()
	database, err := c.CreateDatabase(ctx, "owner")
	if err != nil {
		return 1, err
	}
	tokens, err := regional.ParseTokens([]byte("edge " + token))
	if err != nil {
		return 1, err
	}
	if node, err = nodetest.Start(ctx, database, nodetest.Options{Region: region, Tokens: tokens, Budgets: budgets}); err != nil {
		return 1, err
	}
	nodeURL = node.URL
	code = m.Run()
	return code, node.Close()
}

// newClient is a client of the node, or of the addresses given.
func newClient(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	if o.Nodes == nil {
		o.Nodes = []string{nodeURL}
	}
	o.Token, o.HTTP = token, &http.Client{Transport: documented{t}}
	orElse(&o.Patience, 20*time.Second) // the machine may be busy
	orElse(&o.TryTimeout, 5*time.Second)
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func orElse(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

func tenant(name string) client.Request {
	return client.Request{Labels: map[string]string{"tenant": name}}
}

// hop stands between a client and the node, and does to each call what the test says: it answers for it, or lets it
// through and loses the answer, or lets it through.
type hop struct {
	*httptest.Server
	mu     sync.Mutex
	script []func(http.ResponseWriter, *http.Request)
	seen   []seen
}

// seen is one call.
type seen struct {
	path string
	id   string
	body map[string]any
}

// newHop does one step of the script to each call, and lets the calls after those through.
func newHop(t testing.TB, script ...func(http.ResponseWriter, *http.Request)) *hop {
	t.Helper()
	h := &hop{script: script}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	s := seen{path: r.URL.Path, id: r.Header.Get("Admission-Id")}
	_ = json.Unmarshal(text, &s.body)
	h.mu.Lock()
	step := through
	if len(h.seen) < len(h.script) {
		step = h.script[len(h.seen)]
	}
	h.seen = append(h.seen, s)
	h.mu.Unlock()
	r.Body = io.NopCloser(bytesReader(text))
	step(w, r)
}

func (h *hop) calls() []seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]seen(nil), h.seen...)
}

// through asks the node and passes the answer on.
func through(w http.ResponseWriter, r *http.Request) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, nodeURL+r.URL.RequestURI(), r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// loses asks the node, and drops the connection instead of answering.
func loses(_ http.ResponseWriter, r *http.Request) {
	through(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// says answers for the node.
func says(status int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// spent is what the owner has charged to a budget, for good or held.
func spent(t testing.TB, budget string) (sum int64) {
	t.Helper()
	account, err := node.Export(t.Context(), "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range account.Usage {
		if u.Budget == budget {
			sum += u.Spent + u.Reserved
		}
	}
	return sum
}
