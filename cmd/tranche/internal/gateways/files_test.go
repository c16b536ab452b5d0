//go:build unix

package gateways

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tranche/regional"
	"tranche/regional/envoy"
	"tranche/regional/nodetest"
	"tranche/regional/postgres/cluster/clustertest"
)

func testOptions() Options {
	return Options{
		Node: "http://127.0.0.1:7080", Envoy: "127.0.0.1:7090", Listen: "127.0.0.1:8080", Upstream: "127.0.0.1:9000", Token: gatewayToken,
		Labels: []Pair{{"tenant", "X-Tenant"}, {"user", "X-User"}}, Costs: []Pair{{"tokens", "50"}}, Deadline: 20 * time.Millisecond, Domain: "edge",
		Legacy: "Tranche-Legacy",
	}
}

func block(t *testing.T, gateway, part string, o Options) string {
	t.Helper()
	text, err := Write(gateway, part, o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// read reads Envoy's block as Envoy would: an unknown field, an unknown type or a value out of its bounds is an error.
func read(t *testing.T, text string) (*filterv3.RateLimit, []*routev3.RateLimit, *bootstrapv3.Bootstrap) {
	t.Helper()
	json, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(json, b); err != nil {
		t.Fatalf("%v\n%s", err, json)
	}
	if err := b.ValidateAll(); err != nil {
		t.Fatal(err)
	}
	manager := &managerv3.HttpConnectionManager{}
	unpack(t, b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), manager)
	filter := &filterv3.RateLimit{}
	unpack(t, manager.GetHttpFilters()[0].GetTypedConfig(), filter)
	return filter, manager.GetRouteConfig().GetVirtualHosts()[0].GetRateLimits(), b
}

type packed interface {
	UnmarshalTo(proto.Message) error
}

func unpack(t *testing.T, from packed, to interface {
	proto.Message
	ValidateAll() error
},
) {
	t.Helper()
	if err := from.UnmarshalTo(to); err != nil {
		t.Fatal(err)
	}
	if err := to.ValidateAll(); err != nil {
		t.Error(err)
	}
}

// Envoy lets through while the service is away unless it is told otherwise, and does not ask at all where a header is
// missing, or where a descriptor has no entry. If this failed, the printed block would do one of these.
func TestEnvoyBlockFailsClosed(t *testing.T) {
	for _, node := range []string{"http://127.0.0.1:7080", "https://node.example:7080"} {
		o := testOptions()
		o.Node, o.Envoy, o.CA = node, "node.example:7090", "ca.pem"
		filter, limits, b := read(t, block(t, "envoy", "config", o))
		if !filter.GetFailureModeDeny() || filter.GetFailureModeDenyPercent() != nil || filter.GetStatusOnError().GetCode() != 503 ||
			filter.GetRateLimitedStatus().GetCode() != 429 || !filter.GetRateLimitedAsResourceExhausted() || filter.GetTimeout().AsDuration() != 20*time.Millisecond {
			t.Errorf("the filter: %v", filter)
		}
		if m := filter.GetRateLimitService().GetGrpcService().GetInitialMetadata(); len(m) != 1 || m[0].GetValue() != "Bearer "+gatewayToken {
			t.Errorf("the token: %v", m)
		}
		for _, l := range limits {
			always := false
			for _, a := range l.GetActions() {
				if h := a.GetRequestHeaders(); h != nil && !h.GetSkipIfAbsent() {
					t.Errorf("without the header %s Envoy does not ask", h.GetHeaderName())
				}
				always = always || a.GetGenericKey() != nil
			}
			if !always {
				t.Errorf("without all headers Envoy does not ask: %v", l)
			}
		}
		for _, r := range managerOf(t, b).GetRouteConfig().GetVirtualHosts()[0].GetRoutes() {
			perRoute := &filterv3.RateLimitPerRoute{}
			unpack(t, r.GetTypedPerFilterConfig()["envoy.filters.http.ratelimit"], perRoute)
			if perRoute.GetVhRateLimits() != filterv3.RateLimitPerRoute_INCLUDE {
				t.Errorf("a route with limits of its own is not asked for: %v", r)
			}
		}
		secured := b.GetStaticResources().GetClusters()[0].GetTransportSocket() != nil
		if secured != strings.HasPrefix(node, "https") {
			t.Errorf("%s: TLS %v", node, secured)
		}
	}
}

func managerOf(t *testing.T, b *bootstrapv3.Bootstrap) *managerv3.HttpConnectionManager {
	t.Helper()
	manager := &managerv3.HttpConnectionManager{}
	unpack(t, b.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig(), manager)
	return manager
}

// describe does with a request what Envoy does by its documentation.
func describe(domain string, limits []*routev3.RateLimit, headers map[string]string) *servicev3.RateLimitRequest {
	req := &servicev3.RateLimitRequest{Domain: domain}
	for _, l := range limits {
		d, sent := &descriptorv3.RateLimitDescriptor{}, true
		for _, a := range l.GetActions() {
			if g := a.GetGenericKey(); g != nil {
				d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: g.GetDescriptorKey(), Value: g.GetDescriptorValue()})
			}
			if h := a.GetRequestHeaders(); h != nil {
				value, there := headers[h.GetHeaderName()]
				if there {
					d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: h.GetDescriptorKey(), Value: value})
				}
				sent = sent && (there || h.GetSkipIfAbsent())
			}
		}
		if n := l.GetHitsAddend().GetNumber(); n != nil {
			d.HitsAddend = wrapperspb.UInt64(n.GetValue())
		}
		if sent && len(d.Entries) > 0 {
			req.Descriptors = append(req.Descriptors, d)
		}
	}
	return req
}

// What Envoy would send by the printed block is what a node understands by the printed mapping.
func TestEnvoyBlockAndMapping(t *testing.T) {
	o := testOptions()
	_, limits, _ := read(t, block(t, "envoy", "config", o))
	mapping, err := envoy.ParseMapping("mapping.yaml", []byte(block(t, "envoy", "mapping", o)))
	if err != nil {
		t.Fatal(err)
	}
	node, err := nodetest.Start(t.Context(), clustertest.Database(t), nodetest.Options{Region: "us-east", Budgets: []string{
		testBudgets[0], strings.NewReplacer(`"acme"`, `"tokens"`, `"requests"`, `"tokens"`, `{"tenant":"tokens"}`, `{"tenant":"acme","user":"bob"}`).Replace(testBudgets[0]),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	}()
	tokens, err := regional.ParseTokens([]byte("edge " + gatewayToken))
	if err != nil {
		t.Fatal(err)
	}
	server := envoy.New(envoy.Config{Mapping: mapping, Gate: regional.NewGate(regional.HTTPConfig{Tokens: tokens, Metrics: regional.NewMetrics(prometheus.NewRegistry())}, node)})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+gatewayToken), 20*time.Second)
	defer cancel()
	for _, c := range []struct {
		headers map[string]string
		reason  string
	}{
		{map[string]string{"x-tenant": "acme", "admission-id": "a"}, "allow"},
		{map[string]string{"x-tenant": "acme", "x-user": "bob", "admission-id": "b"}, "allow"},
		{map[string]string{"x-tenant": "acme", "x-user": "bob", "x-request-id": "r-1"}, "admission_id_missing"},
		{map[string]string{}, "no_budget"},
		{map[string]string{"x-tenant": "acme", "idempotency-key": "a", "tranche-legacy": "deny"}, "allow"}, // the id of before: no charge
		{map[string]string{"x-tenant": "acme", "admission-id": "c", "idempotency-key": "d"}, "invalid_request"},
		{map[string]string{"x-tenant": "acme", "admission-id": "c", "tranche-legacy": "maybe"}, "invalid_request"},
	} {
		r, err := servicev3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, describe(o.Domain, limits, c.headers))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, h := range r.GetResponseHeadersToAdd() {
			if h.GetKey() == "tranche-reason" {
				got = h.GetValue()
			}
		}
		if got != c.reason || len(r.GetStatuses()) != 2 {
			t.Errorf("%v: %s, want %s: %v", c.headers, got, c.reason, r)
		}
	}
	account, err := node.Export(ctx, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range account.Usage {
		if want := map[string]int64{"acme": 2, "tokens": 50}[u.Budget]; u.Spent != want {
			t.Errorf("%s: spent %d, want %d", u.Budget, u.Spent, want)
		}
	}
}

// Traefik's block is YAML, and names only what it declares.
func TestTraefikBlock(t *testing.T) {
	for _, node := range []string{"http://127.0.0.1:7080", "https://node.example:7080"} {
		o := testOptions()
		o.Node, o.CA = node, "ca.pem"
		var file struct {
			HTTP struct {
				Routers map[string]struct {
					Rule, Service string
					Middlewares   []string
				}
				Middlewares map[string]struct {
					Headers     *struct{ CustomRequestHeaders map[string]string }
					ForwardAuth *struct {
						Address            string
						TrustForwardHeader *bool
						AuthRequestHeaders []string

						AuthResponseHeaders []string
						TLS                 *struct{ CA string } `yaml:"tls"`
					}
				}
				Services map[string]struct {
					LoadBalancer struct{ Servers []struct{ URL string } }
				}
			} `yaml:"http"`
		}
		text := lowerKeys.Replace(block(t, "traefik", "config", o))
		if err := yaml.UnmarshalWithOptions([]byte(text), &file, yaml.Strict()); err != nil {
			t.Fatal(yaml.FormatError(err, false, true))
		}
		router := file.HTTP.Routers["tranche-gateway"]
		if _, ok := file.HTTP.Services[router.Service]; !ok {
			t.Errorf("no service %s", router.Service)
		}
		for _, name := range router.Middlewares {
			if _, ok := file.HTTP.Middlewares[name]; !ok {
				t.Errorf("no middleware %s", name)
			}
		}
		ask, tell := file.HTTP.Middlewares["tranche-ask"].ForwardAuth, file.HTTP.Middlewares["tranche-tell"].Headers.CustomRequestHeaders
		if ask.TrustForwardHeader == nil || *ask.TrustForwardHeader || !strings.HasPrefix(ask.Address, node+"/v1/authorize?") || (ask.TLS != nil) != strings.HasPrefix(node, "https") {
			t.Errorf("%+v", ask)
		}
		// Of a caller's headers only those come along that are named, and those that say what is charged are replaced before.
		for _, name := range ask.AuthRequestHeaders {
			if _, replaced := tell[name]; strings.HasPrefix(name, "Tranche-") && name != o.Legacy && !replaced {
				t.Errorf("a caller's %s comes along", name)
			}
		}
		// The status that the node said goes along, and no caller's does; nor does the name of a header to drop.
		for _, name := range []string{"Tranche-Status", "Connection"} {
			if value, taken := tell[name]; !taken || value != "" {
				t.Errorf("a caller's %s is not taken away", name)
			}
		}
		if !slices.Equal(ask.AuthResponseHeaders, []string{"Tranche-Status"}) {
			t.Errorf("what is protected is not told what the node said: %v", ask.AuthResponseHeaders)
		}
		for _, name := range []string{"Admission-Id", "X-Tenant", "Tranche-Legacy", "Tranche-Token", "Tranche-Op", "Tranche-Cost-tokens"} {
			if !slices.Contains(ask.AuthRequestHeaders, name) {
				t.Errorf("%s does not come along", name)
			}
		}
	}
}

// lowerKeys makes Traefik's keys those of a Go field in YAML.
var lowerKeys = strings.NewReplacer("customRequestHeaders", "customrequestheaders", "forwardAuth", "forwardauth", "trustForwardHeader", "trustforwardheader",
	"authRequestHeaders", "authrequestheaders", "authResponseHeaders", "authresponseheaders", "loadBalancer", "loadbalancer")

// A value that would end a quote, or begin another line, would make another configuration than was asked for.
func TestOptionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"node: ":                        func(o *Options) { o.Node = "ftp://x" },
		"use https beyond this machine": func(o *Options) { o.Node = "http://node.example:7080" },
		`listen: "8080" is not`:         func(o *Options) { o.Listen = "8080" },
		`upstream: "a;b:80" is not`:     func(o *Options) { o.Upstream = "a;b:80" },
		"envoy: ":                       func(o *Options) { o.Envoy = "127.0.0.1:0" },
		"label: there is none":          func(o *Options) { o.Labels = nil },
		"label T=X: write":              func(o *Options) { o.Labels = []Pair{{"T", "X"}} },
		"label tenant=X Y: write":       func(o *Options) { o.Labels = []Pair{{"tenant", "X Y"}} },
		"label tenant is given twice":   func(o *Options) { o.Labels = []Pair{{"tenant", "X"}, {"tenant", "Y"}} },
		"cost tokens=0: write":          func(o *Options) { o.Costs = []Pair{{"tokens", "0"}} },
		"node-token: holds":             func(o *Options) { o.Token = `a";}` },
		"ca: ":                          func(o *Options) { o.CA = "a b" },
		"domain: ":                      func(o *Options) { o.Domain = "" },
		"legacy: ":                      func(o *Options) { o.Legacy = "X Y" },
		"deadline 0s: use":              func(o *Options) { o.Deadline = 0 },
	} {
		o := testOptions()
		change(&o)
		if text, err := Write("nginx", "config", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v %.40q", want, err, text)
		}
	}
	other := testOptions()
	other.Legacy = "X-Old"
	if _, err := Write("traefik", "config", other); err == nil || !strings.Contains(err.Error(), "cannot copy X-Old") {
		t.Error(err)
	}
	if _, err := Write("nginx", "lua", testOptions()); err == nil || !strings.Contains(err.Error(), "parts are config") {
		t.Error(err)
	}
	for _, name := range Names {
		for _, part := range Parts[name] {
			if text := block(t, name, part, testOptions()); strings.Contains(text, "<no value>") || strings.Contains(text, "\t ") {
				t.Errorf("%s %s: %s", name, part, text)
			}
		}
	}
}
