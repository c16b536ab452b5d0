package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"tranche/regional"
	"tranche/regional/envoy"
)

const (
	grpcConnections = 16  // as a gateway has: one for each of its threads
	grpcCalls       = 256 // at once, over all of them
)

var grpcMapping = []byte(`domains: {edge: {entries: {tenant: {label: tenant}, admission_id: {is: admission_id}}}}`)

// noLimit decides nothing: it gives the answer that the node gave once.
type noLimit struct {
	servicev3.UnimplementedRateLimitServiceServer
	answer *servicev3.RateLimitResponse
}

// ShouldRateLimit answers.
func (n *noLimit) ShouldRateLimit(context.Context, *servicev3.RateLimitRequest) (*servicev3.RateLimitResponse, error) {
	return n.answer, nil
}

// serveGRPC serves until the world is closed, and connects clients.
func (w *world) serveGRPC(s *grpc.Server) ([]servicev3.RateLimitServiceClient, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	go func() { _ = s.Serve(listener) }() // ends with Stop
	w.closers = append(w.closers, s.Stop)
	var clients []servicev3.RateLimitServiceClient
	for range grpcConnections {
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		w.closers = append(w.closers, func() { _ = conn.Close() })
		clients = append(clients, servicev3.NewRateLimitServiceClient(conn))
	}
	return clients, nil
}

func rateLimitRequest(id string) *servicev3.RateLimitRequest {
	return &servicev3.RateLimitRequest{Domain: "edge", Descriptors: []*descriptorv3.RateLimitDescriptor{{
		Entries: []*descriptorv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "acme"}, {Key: "admission_id", Value: id}},
	}}}
}

// overGRPC is a client of Envoy's rate limit service.
func overGRPC(c servicev3.RateLimitServiceClient) client {
	return func(ctx context.Context, id string) outcome {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		answer, err := c.ShouldRateLimit(ctx, rateLimitRequest(id))
		switch {
		case status.Code(err) == codes.Unavailable:
			return unknown // an error of Envoy's service does not say whether something was charged
		case err != nil:
			return failed
		case answer.GetOverallCode() == servicev3.RateLimitResponse_OK:
			return admitted
		}
		return refused
	}
}

// rateLimits is one budget over Envoy's rate limit service, beside a service that decides nothing.
func rateLimits(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	mapping, err := envoy.ParseMapping("mapping", grpcMapping)
	if err != nil {
		return err
	}
	n := w.nodes[0]
	node, err := w.serveGRPC(envoy.New(envoy.Config{
		Mapping: mapping, Credential: "bench", Gate: regional.NewGate(regional.HTTPConfig{Metrics: n.metrics}, n.Node),
	}))
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := node[0].ShouldRateLimit(within, rateLimitRequest("the-length"), grpc.WaitForReady(true))
	if err != nil || answer.GetOverallCode() != servicev3.RateLimitResponse_OK {
		return errors.Join(err, fmt.Errorf("the node answers %s", answer.GetOverallCode()))
	}
	var first tally
	first.counts[admitted]++
	w.counted(first)
	plain := grpc.NewServer()
	servicev3.RegisterRateLimitServiceServer(plain, &noLimit{answer: answer})
	nothing, err := w.serveGRPC(plain)
	if err != nil {
		return err
	}
	all, err := b.alternate(ctx, result, w.grpcArm(b, "rate limit service", node, true), w.grpcArm(b, "no-op service", nothing, false))
	if err != nil {
		return err
	}
	result.atLeast("the rate limit service against one that decides nothing", ratio(all["rate limit service"].rates(), all["no-op service"].rates()), 0.55)
	result.processor("the same, by the processor's time for each answer", all["no-op service"], all["rate limit service"])
	return w.settleBooks(ctx, result, "the node")
}

func (w *world) grpcArm(b *bench, name string, clients []servicev3.RateLimitServiceClient, books bool) arm {
	return arm{name, "256 calls at once over 16 connections", func(ctx context.Context, d time.Duration) (tally, error) {
		return w.withBatches(books, func() tally {
			return closed(ctx, d, grpcCalls, !b.Random, func(i int) client { return overGRPC(clients[i%len(clients)]) })
		}), nil
	}}
}
