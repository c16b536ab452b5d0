//go:build unix

package grpcclient_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tranche/allocation"
	"tranche/regional/client"
	"tranche/regional/client/grpcclient"
	"tranche/regional/nodetest"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// calls is a gRPC service behind the interceptor, over a real node on a real Postgres.
func calls(t *testing.T, node string, reserve bool) grpc_health_v1.HealthClient {
	t.Helper()
	c, err := client.New(client.Options{Nodes: []string{node}, Tries: 2})
	if err != nil {
		t.Fatal(err)
	}
	limit := grpcclient.Interceptor{Client: c, Reserve: reserve, Request: func(ctx context.Context, method string) (client.Request, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if len(md.Get("tenant")) != 1 {
			return client.Request{}, errors.New("send the metadata tenant")
		}
		return client.Request{Labels: map[string]string{"tenant": md.Get("tenant")[0]}}, nil
	}}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary()), grpc.StreamInterceptor(limit.Stream()))
	h := health.NewServer()
	h.SetServingStatus("", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func as(t *testing.T, tenant string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "tenant", tenant, "x-request-id", "request-9")
}

func startNode(t *testing.T) *nodetest.Node {
	t.Helper()
	n, err := nodetest.Start(t.Context(), clustertest.Database(t), nodetest.Options{Region: "us-east", Budgets: []string{
		`{"budget":"two","unit":"requests","limit":2,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"two"},"allocation":{"policy":"home","region":"us-east"}}`,
		`{"budget":"many","unit":"requests","limit":1000,"window":{"calendar":"year","zone":"UTC"},"match":{"tenant":"many"},"allocation":{"policy":"home","region":"us-east"}}`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// If this failed, a gRPC service would serve without an admission, or its callers could not tell a refusal from a failure.
func TestUnary(t *testing.T) {
	n := startNode(t)
	service := calls(t, n.URL, false)
	for i := range 3 {
		var trailer metadata.MD
		_, err := service.Check(as(t, "two"), &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
		if i < 2 && err != nil {
			t.Fatal(err)
		}
		if i == 2 && (status.Code(err) != codes.ResourceExhausted || trailer.Get("tranche-reason")[0] != string(allocation.CeilingReached) || trailer.Get("tranche-admission-id")[0] == "") {
			t.Errorf("%v, %v", err, trailer)
		}
	}
	if _, err := service.Check(as(t, "nobody"), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	if _, err := service.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// If this failed, a stream would be served without an admission, or be charged for each of its messages.
func TestStreamIsOneAdmission(t *testing.T) {
	n := startNode(t)
	service := calls(t, n.URL, true)
	ctx, end := context.WithCancel(as(t, "many"))
	stream, err := service.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	open, err := n.Reservations(t.Context(), allocation.IDKey{}, 10)
	if err != nil || len(open) != 1 || open[0].First.Correlation != "request-9" {
		t.Fatalf("%+v, %v", open, err)
	}
	end()
	_, _ = stream.Recv()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for len(open) > 0 { // settled when the stream's handler has ended
		if <-tick.C; time.Now().After(deadline) {
			t.Fatal("the reservation of an ended stream stays open")
		}
		if open, err = n.Reservations(t.Context(), allocation.IDKey{}, 10); err != nil {
			t.Fatal(err)
		}
	}
	refused, err := service.Watch(as(t, "nobody"), &grpc_health_v1.HealthCheckRequest{})
	if err == nil {
		_, err = refused.Recv()
	}
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// If this failed, an outage would let calls through.
func TestUndecidedIsUnavailable(t *testing.T) {
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }))
	t.Cleanup(down.Close)
	var trailer metadata.MD
	_, err := calls(t, down.URL, false).Check(as(t, "many"), &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.Unavailable || trailer.Get("retry-after")[0] != "1" || trailer.Get("tranche-reason")[0] != "undecided" {
		t.Errorf("%v, %v", err, trailer)
	}
}
