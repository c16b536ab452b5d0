//go:build unix

package grpcclient_test

import (
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tranche/regional/client"
	"tranche/regional/client/grpcclient"
	"tranche/regional/nodetest"
	"tranche/regional/postgres/cluster"
)

// In front of the services of a gRPC server.
func ExampleInterceptor() {
	node, stop := exampleNode()
	defer stop()

	c, _ := client.New(client.Options{Nodes: []string{node}})
	limit := grpcclient.Interceptor{Client: c, Request: func(ctx context.Context, _ string) (client.Request, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		return client.Request{Labels: map[string]string{"tenant": strings.Join(md.Get("tenant"), "")}}, nil
	}}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary()), grpc.StreamInterceptor(limit.Stream()))

	service, end := exampleService(server)
	defer end()
	for range 3 {
		_, err := service.Check(metadata.AppendToOutgoingContext(context.Background(), "tenant", "two"), &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// exampleNode is a real node over a real Postgres, with two requests for the tenant two. An example has no test to ask.
func exampleNode() (url string, stop func()) {
	ctx := context.Background()
	postgres, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		panic(err)
	}
	database, err := postgres.CreateDatabase(ctx, "owner")
	if err != nil {
		panic(err)
	}
	node, err := nodetest.Start(ctx, database, nodetest.Options{Region: "us-east", Budgets: []string{
		`{"budget":"two","unit":"requests","limit":2,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"two"},"allocation":{"policy":"home","region":"us-east"}}`,
	}})
	if err != nil {
		panic(err)
	}
	return node.URL, func() {
		if err := node.Close(); err != nil {
			panic(err)
		}
		if err := postgres.Stop(ctx); err != nil {
			panic(err)
		}
	}
}

// exampleService serves gRPC's own health service, and asks it.
func exampleService(server *grpc.Server) (service grpc_health_v1.HealthClient, end func()) {
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return grpc_health_v1.NewHealthClient(conn), func() {
		conn.Close()
		server.Stop()
		<-served
	}
}
