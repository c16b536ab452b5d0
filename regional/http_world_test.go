package regional

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
)

// apiWorld is the API over an owner in memory, whose decisions are really made by allocation.
type apiWorld struct {
	*api
	owner *memoryOwner
	t     testing.TB

	undocumented bool // what is answered is not held against the OpenAPI document
}

// apiStart is 12:00:30 of the first minute that the budgets' terms hold.
const apiStart = int64(1_780_315_230_000_000)

// worldBudgets are told apart by the tenant. Shares are 60 % here where the weights are 3 to 2.
const worldBudgets = `
{"budget":"acme/requests","unit":"requests","limit":100,"window":{"every":"1m"},"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}}
{"budget":"acme/tokens","unit":"tokens","limit":10000,"window":{"every":"1h"},"match":{"tenant":"acme","metered":"yes"},"allocation":{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}}
{"budget":"trial","unit":"requests","limit":5,"window":{"once":{"from":"2026-06-01T00:00:00Z"}},"match":{"tenant":"trial"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"prepaid","unit":"usd_micros","limit":5,"window":{"every":"1h"},"on_exhausted":402,"match":{"tenant":"prepaid"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"users/{user}","unit":"requests","limit":3,"window":{"every":"1h"},"max_instances":1,"admission_id":"generated","match":{"tenant":"users"},"allocation":{"policy":"home","hash_of":"user"}}
{"budget":"eu/only","unit":"requests","limit":3,"window":{"every":"1h"},"match":{"tenant":"eu"},"allocation":{"policy":"home","region":"eu-west"}}
{"budget":"new","unit":"requests","limit":3,"window":{"every":"1h"},"match":{"tenant":"new"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"fresh","unit":"requests","limit":3,"window":{"every":"1h"},"max_evidence_age":"1s","match":{"tenant":"fresh"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"guarded","unit":"requests","limit":5,"protected":3,"window":{"every":"1h"},"match":{"tenant":"guarded"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"stepped","unit":"requests","limit":10,"ladder":"standard","window":{"every":"1h"},"match":{"tenant":"stepped"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"alone","unit":"requests","limit":10,"max_evidence_age":"1s","on_stale_evidence":"admit","window":{"every":"1h"},"match":{"tenant":"alone"},"allocation":{"policy":"home","region":"us-east"}}
{"budget":"none","unit":"requests","limit":0,"window":{"every":"1h"},"match":{"tenant":"none"},"allocation":{"policy":"home","region":"us-east"}}`

func newAPIWorld(t testing.TB, tokens ...Token) *apiWorld {
	t.Helper()
	owner := &memoryOwner{
		now: apiStart, usage: map[allocation.UsageKey]*allocation.Usage{}, ids: map[allocation.IDKey]*allocation.Admission{},
		full: map[string]bool{}, sealed: map[string]bool{}, elsewhere: map[string]allocation.Elsewhere{},
		status: NodeStatus{Region: "us-east", Node: "node-1", Ready: true},
	}
	var budgets []allocation.ConfiguredBudget
	var terms []allocation.Term
	for line := range strings.Lines(strings.TrimSpace(worldBudgets)) {
		b, err := allocation.ParseBudget([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		budgets = append(budgets, allocation.ConfiguredBudget{Budget: b, Version: 7})
		if b.Name != "new" {
			terms = append(terms, termOf(b))
		}
	}
	for i := range allocation.MaxBudgetsPerRequest + 1 {
		b := budgets[0].Budget
		b.Name, b.Match = fmt.Sprintf("many/%d", i), map[string]string{"tenant": "many"}
		budgets = append(budgets, allocation.ConfiguredBudget{Budget: b, Version: 7})
	}
	owner.catalogue = allocation.NewCatalogue("us-east").With(3, budgets, terms, nil)
	a := newAPI(HTTPConfig{
		Tokens: tokens, Metrics: NewMetrics(prometheus.NewRegistry()),
		Now: func() time.Time { return time.UnixMicro(owner.clock()) },
	}, owner)
	a.random = func(int64) int64 { return 0 }
	made := 0
	a.newID = func() string { made++; return fmt.Sprintf("made-%d", made) }
	return &apiWorld{api: a, owner: owner, t: t}
}

func termOf(b allocation.Budget) allocation.Term {
	t := allocation.Term{Budget: b.Name, Template: b.IsTemplate(), Policy: b.Allocation, Regions: []string{"eu-west", "us-east"}}
	day := allocation.Instant(apiStart/1_000_000) / 86400 * 86400
	switch {
	case b.Window.Once != nil:
		t.Periods = allocation.Periods{Instants: []allocation.Instant{b.Window.Once.From, allocation.Never}}
	default:
		step := int64(b.Window.Every)
		t.Periods = allocation.Periods{First: day, Step: step, Count: int(86400 / step)}
	}
	return t
}

// call sends one request, as a POST if it has a body. Headers are "Name: value".
func (w *apiWorld) call(method, path, body string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.1:1234"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "" {
			r.Header.Del(name)
			continue
		}
		r.Header.Add(name, value)
	}
	recorder := httptest.NewRecorder()
	w.ServeHTTP(recorder, r)
	if _, hurries := w.t.(*testing.B); !hurries && !w.undocumented {
		checkDocumented(w.t, method, r.URL.Path, body, recorder)
	}
	return recorder.Result()
}

// admit asks for an admission of tenant acme with an id.
func (w *apiWorld) admit(id, body string) *http.Response {
	return w.call("POST", "/v1/admit", body, "Admission-Id: "+id)
}

func bodyOf(t testing.TB, r *http.Response) string {
	t.Helper()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// wantStatus fails unless the answer has this status and its body holds these words.
func wantStatus(t testing.TB, r *http.Response, status int, words ...string) {
	t.Helper()
	body := bodyOf(t, r)
	r.Body = io.NopCloser(strings.NewReader(body))
	if r.StatusCode != status {
		t.Errorf("status %d, want %d: %s", r.StatusCode, status, body)
	}
	for _, word := range words {
		if !strings.Contains(body, word) {
			t.Errorf("the answer lacks %s: %s", word, body)
		}
	}
}

// A node is what the API calls.
var _ Backend = (*Node)(nil)

// memoryOwner is a node and its owner in one.
type memoryOwner struct {
	mu        sync.Mutex
	catalogue *allocation.Catalogue
	now       int64
	observed  int64
	closed    allocation.Instant
	stopped   allocation.Reason
	force     allocation.Reason // what every request is answered without being decided
	short     bool              // Decide answers too few
	fail      error             // of the reads
	full      map[string]bool
	sealed    map[string]bool
	elsewhere map[string]allocation.Elsewhere
	usage     map[allocation.UsageKey]*allocation.Usage
	ids       map[allocation.IDKey]*allocation.Admission
	status    NodeStatus
	asked     []allocation.Request
	deadlines []time.Time
	hold      chan struct{} // Decide waits until it is closed
	entered   chan struct{}
}

func (m *memoryOwner) clock() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (m *memoryOwner) Decide(_ context.Context, requests []allocation.Request, deadline time.Time) []allocation.Decision {
	if m.hold != nil {
		m.entered <- struct{}{}
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.deadlines = append(m.asked, requests...), append(m.deadlines, deadline)
	var out []allocation.Decision
	for _, r := range requests {
		if m.force != "" {
			out = append(out, allocation.Decision{
				Reason: m.force, Action: allocation.ActionRefused, Op: r.Op, Key: r.Key, Region: "us-east", Retry: 1,
				Evidence: allocation.Evidence{Correlation: r.Correlation, Node: "node-1"},
			})
			continue
		}
		out = append(out, m.decide(r))
	}
	if m.short {
		return nil
	}
	return out
}

func (m *memoryOwner) decide(r allocation.Request) allocation.Decision {
	plan := m.catalogue.Plan(r, allocation.Instant(m.now/1_000_000))
	l := allocation.Locked{
		Catalogue: m.catalogue, Now: m.now, ClosedBefore: m.closed, Stopped: m.stopped, Incarnation: "inc-1", Revision: 42,
		ObservedAt: m.observed, Node: "node-1", Usage: m.usage, Full: map[allocation.UsageKey]bool{}, IDs: m.ids,
		LookedUp: func(allocation.IDKey) bool { return true }, Elsewhere: m.elsewhere,
		ChangedUsage: map[allocation.UsageKey]bool{}, Inserted: map[allocation.IDKey]bool{}, Updated: map[allocation.IDKey]bool{},
	}
	for _, line := range plan.Lines {
		switch {
		case line.Problem != "" || m.usage[line.UsageKey] != nil:
		case m.full[line.UsageKey.Budget]:
			l.Full[line.UsageKey] = true
		default:
			share := line.Budget.LimitOrZero()
			if line.Budget.Allocation.Policy == allocation.PolicyFixed {
				share = share * 3 / 5
			}
			m.usage[line.UsageKey] = &allocation.Usage{
				UsageKey: line.UsageKey, Until: line.Until, Term: line.Term, Version: line.Version, Generation: 11,
				Granted: share, Target: share, Protected: line.Budget.Protected, Sealed: m.sealed[line.UsageKey.Budget],
			}
		}
	}
	out := l.Decide(plan)
	if out.Again {
		panic("every row is here")
	}
	return out.Decision
}

func (m *memoryOwner) Find(_ context.Context, key allocation.IDKey) (allocation.Decision, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.ids[key]
	if m.fail != nil || !ok {
		return allocation.Decision{}, false, m.fail
	}
	return allocation.Tell("us-east", a), true, nil
}

func (m *memoryOwner) Reservations(_ context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []allocation.Admission
	for _, a := range m.ids {
		if a.State == allocation.StateReserved && a.Compare(after) > 0 {
			out = append(out, *a)
		}
	}
	slices.SortFunc(out, func(a, b allocation.Admission) int { return a.Compare(b.IDKey) })
	return out[:min(limit, len(out))], m.fail
}

func (m *memoryOwner) Charged(_ context.Context, q ChargedQuery) (Charged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Charged{Now: m.now, Kept: 1}
	out.Lines, out.More = SumCharged(q, maps.Values(m.ids))
	return out, m.fail
}

func (m *memoryOwner) Export(_ context.Context, after string, limit int) (Account, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Account{Region: "us-east", Incarnation: "inc-1", Now: m.now}
	for _, u := range m.usage {
		if u.Budget > after {
			out.Usage = append(out.Usage, *u)
		}
	}
	slices.SortFunc(out.Usage, func(a, b allocation.Usage) int { return a.Compare(b.UsageKey) })
	out.More = len(out.Usage) > limit
	out.Usage = out.Usage[:min(limit, len(out.Usage))]
	return out, m.fail
}

func (m *memoryOwner) Status() NodeStatus               { return m.status }
func (m *memoryOwner) Catalogue() *allocation.Catalogue { return m.catalogue }

// charged is all that was spent or reserved.
func (m *memoryOwner) charged() (sum int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range m.usage {
		sum += u.Spent + u.Reserved + u.Overdraft
	}
	return sum
}
