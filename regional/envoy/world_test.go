//go:build unix

package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/envoy"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const (
	edgeToken  = "0123456789abcdef-edge-1"
	testRegion = "us-east"

	edgeRegionToken = "tranche_region_d1_us-east_secret" // that receipts are signed by
)

const testMapping = `
domains:
  edge:
    labels: {product: api}
    entries:
      admission_id: {is: admission_id}
      tenant: {label: tenant}
      user: {label: user}
      path: {label: route}
      unit: {is: unit}
      op: {is: op}
      legacy: {is: legacy}
      remote_address: {is: ignored}
      priority: {is: priority}
      also: {is: priority}
  llm:
    unit: tokens
    op: reserve
    entries:
      admission_id: {is: admission_id}
      tenant: {label: tenant}
      unit: {is: unit}
      op: {is: op}
`

// granter is a coordinator that gives the one region all of every budget, and counts nothing.
type granter struct {
	budgets []allocation.ConfiguredBudget
	ledgers []allocation.Ledger
	calls   int64
	mu      sync.Mutex
}

func newGranter(t testing.TB, lines string) *granter {
	t.Helper()
	g := &granter{}
	holder := allocation.Holder{Region: testRegion, Incarnation: "life"}
	members := allocation.Members{Regions: []string{testRegion}, Holders: []allocation.Holder{holder}}
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		b, err := allocation.ParseBudget([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		g.budgets = append(g.budgets, allocation.ConfiguredBudget{Budget: b, Version: 1, Number: int64(len(g.budgets)) + 1})
		g.ledgers = append(g.ledgers, allocation.OpenLedger(b, 1, periodsOf(b), members, allocation.Generation{Number: 1, Stamp: "s"}))
	}
	return g
}

// periodsOf are periods that hold now; those that are short go on for an hour.
func periodsOf(b allocation.Budget) allocation.Periods {
	now := allocation.At(time.Now())
	if step := int64(b.Window.Every); step > 0 {
		return allocation.Periods{First: now - now%allocation.Instant(step) - allocation.Instant(step), Step: step, Count: int(3600/step) + 4}
	}
	if b.Window.Calendar != "" {
		return allocation.Periods{Instants: []allocation.Instant{now - 3600, now + 90_000}}
	}
	return allocation.Periods{Instants: []allocation.Instant{now - 100, allocation.Never}}
}

func (g *granter) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	g.mu.Lock()
	g.calls++
	revision := g.calls
	g.mu.Unlock()
	holder := allocation.Holder{Region: call.Region, Incarnation: "life"}
	a := allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: "d-1", Incarnation: holder.Incarnation, Now: time.Now().UnixMicro(),
		Config: int64(len(g.budgets)), History: allocation.History{Number: 1, Stamp: "h"}, Revision: revision,
	}
	for _, s := range call.Statements {
		a.Acknowledged = append(a.Acknowledged, allocation.ShardAck{Shard: s.Shard, Number: s.Number})
	}
	if call.Config < a.Config {
		a.Budgets = g.budgets
	}
	for _, l := range g.ledgers {
		a.Shares = append(a.Shares, l.GrantTo(holder))
	}
	return a, nil
}

// world is Envoy's service over a node over a real Postgres.
type world struct {
	t        testing.TB
	node     *regional.Node
	backend  *slowBackend
	registry *prometheus.Registry
	client   servicev3.RateLimitServiceClient
	gate     *regional.Gate
}

// slowBackend is a node whose decisions can be held back, before they are begun or after they are made.
type slowBackend struct {
	*regional.Node
	hooks atomic.Pointer[hooks] // a call that was given up may still look at them
}

type hooks struct {
	before, after func(ctx context.Context, deadline time.Time)
	force         allocation.Reason
}

func (b *slowBackend) hook(h hooks) { b.hooks.Store(&h) }

func (b *slowBackend) Decide(ctx context.Context, requests []allocation.Request, deadline time.Time) []allocation.Decision {
	h := b.hooks.Load()
	if h == nil {
		return b.Node.Decide(ctx, requests, deadline)
	}
	if h.before != nil {
		h.before(ctx, deadline)
	}
	if h.force != "" {
		r := requests[0]
		d := allocation.Decision{Reason: h.force, Action: allocation.ActionRefused, Op: r.Op, Key: r.Key, Region: testRegion}
		if retry := allocation.AnswerTo(h.force).Retry; retry == allocation.RetryNextPeriod || retry == allocation.RetrySoon {
			d.Retry = 60
		}
		return []allocation.Decision{d}
	}
	out := b.Node.Decide(ctx, requests, deadline)
	if h.after != nil {
		h.after(ctx, deadline)
	}
	return out
}

func newWorld(t testing.TB, budgets string, change ...func(*envoy.Config)) *world {
	t.Helper()
	g := newGranter(t, budgets)
	store, err := postgres.Open(t.Context(), postgres.Config{URL: clustertest.Database(t), Region: testRegion})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, registry: prometheus.NewRegistry()}
	metrics := regional.NewMetrics(w.registry)
	w.node = regional.NewNode(regional.Config{
		Region: testRegion, Name: "n1", Deployment: "d-1", Coordinator: g, SyncEvery: 200 * time.Millisecond, Metrics: metrics,
	}, store)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.node.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		store.Shut()
	})
	eventually(t, "the node knows its budgets", func() bool {
		terms := 0
		for _, b := range w.node.Catalogue().Budgets() {
			terms += len(w.node.Catalogue().Terms(b.Budget.Name))
		}
		return terms >= len(g.budgets) && w.node.Status().Stopped == ""
	})
	w.serve(metrics, change...)
	return w
}

func (w *world) serve(metrics *regional.Metrics, change ...func(*envoy.Config)) {
	w.t.Helper()
	tokens, err := regional.ParseTokens([]byte("edge-1 " + edgeToken))
	if err != nil {
		w.t.Fatal(err)
	}
	mapping, err := envoy.ParseMapping("mapping.yaml", []byte(testMapping))
	if err != nil {
		w.t.Fatal(err)
	}
	w.backend = &slowBackend{Node: w.node}
	w.gate = regional.NewGate(regional.HTTPConfig{
		Tokens: tokens, Metrics: metrics, Receipts: &regional.Receipts{Key: allocation.ReceiptKeyOf("d1", testRegion, edgeRegionToken), Node: "node-1"},
	}, w.backend)
	config := envoy.Config{Mapping: mapping, Gate: w.gate}
	for _, c := range change {
		c(&config)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	server := envoy.New(config)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.client = servicev3.NewRateLimitServiceClient(conn)
	w.t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		<-tick.C
	}
}

// one is a descriptor of entries "key=value"; "hits=N" sets its hits, "negative" makes them a refund.
func one(entries ...string) *descriptorv3.RateLimitDescriptor {
	d := &descriptorv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		switch key {
		case "hits":
			var n uint64
			if _, err := fmt.Sscan(value, &n); err != nil {
				panic(err)
			}
			d.HitsAddend = wrapperspb.UInt64(n)
		case "negative":
			d.IsNegativeHits = true
		default:
			d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	return d
}

func ask(domain string, descriptors ...*descriptorv3.RateLimitDescriptor) *servicev3.RateLimitRequest {
	return &servicev3.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

// authorized is a context with a token, and time enough for a busy machine.
func (w *world) authorized() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	w.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+edgeToken)
}

func (w *world) call(req *servicev3.RateLimitRequest) (*servicev3.RateLimitResponse, error) {
	return w.client.ShouldRateLimit(w.authorized(), req)
}

const (
	ok   = servicev3.RateLimitResponse_OK
	over = servicev3.RateLimitResponse_OVER_LIMIT
)

// tried asks until it was tried.
func (w *world) tried(req *servicev3.RateLimitRequest) (*servicev3.RateLimitResponse, error) {
	r, err := w.call(req)
	for tries := 1; tries < 20 && notTried(err); tries++ { // what was charged all the same shows in the account
		<-time.After(50 * time.Millisecond)
		r, err = w.call(req)
	}
	return r, err
}

// want asks, and fails unless the overall code and those of the descriptors are these. What a slow machine did not come to is asked
// again: nothing was charged.
func (w *world) want(overall servicev3.RateLimitResponse_Code, statuses []servicev3.RateLimitResponse_Code, req *servicev3.RateLimitRequest) *servicev3.RateLimitResponse {
	w.t.Helper()
	r, err := w.tried(req)
	if err != nil {
		w.t.Fatalf("%v: %v", req, err)
	}
	var got []servicev3.RateLimitResponse_Code
	for _, s := range r.GetStatuses() {
		got = append(got, s.GetCode())
	}
	if r.GetOverallCode() != overall || fmt.Sprint(got) != fmt.Sprint(statuses) {
		w.t.Errorf("%v:\n%s %v, want %s %v: %s %v", req, r.GetOverallCode(), got, overall, statuses, r.GetRawBody(), r.GetDynamicMetadata())
	}
	return r
}

// wantError asks, and fails unless the answer is this gRPC code, and its reason is this one of Tranche's.
func (w *world) wantError(code codes.Code, reason string, r *servicev3.RateLimitResponse, err error) {
	w.t.Helper()
	st := status.Convert(err)
	if err == nil || st.Code() != code {
		w.t.Errorf("%v %v, want %s", r, err, code)
		return
	}
	if reason != "" && reasonOf(st) != reason {
		w.t.Errorf("%v: reason %q, want %q", err, reasonOf(st), reason)
	}
}

func reasonOf(st *status.Status) string {
	for _, d := range st.Details() {
		if info, is := d.(*errdetails.ErrorInfo); is {
			return info.GetReason()
		}
	}
	return ""
}

func header(r *servicev3.RateLimitResponse, name string) string {
	return valueOf(r.GetResponseHeadersToAdd(), name)
}

func valueOf(list []*corev3.HeaderValue, name string) string {
	for _, h := range list {
		if h.GetKey() == name {
			return h.GetValue()
		}
	}
	return ""
}

// spent is what the owner has spent and reserved of a budget, over all instances and periods.
func (w *world) spent(budget string) (spent, reserved int64) {
	w.t.Helper()
	account, err := w.node.Export(context.Background(), "", 100)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, u := range account.Usage {
		if u.Budget == budget {
			spent, reserved = spent+u.Spent, reserved+u.Reserved
		}
	}
	return spent, reserved
}

func (w *world) wantSpent(budget string, spent, reserved int64) {
	w.t.Helper()
	if s, r := w.spent(budget); s != spent || r != reserved {
		w.t.Errorf("%s: spent %d, reserved %d; want %d and %d", budget, s, r, spent, reserved)
	}
}

func token(ctx context.Context, value string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", value)
}
