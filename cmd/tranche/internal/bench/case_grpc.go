package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"

	"tranche/regional"
	"tranche/regional/envoy"
	"tranche/regional/envoy/baseline"
)

const (
	grpcConnections = 16  // as a gateway has: one for each of its threads
	grpcCalls       = 256 // at once, over all of them
)

var grpcMapping = []byte(`domains: {edge: {entries: {tenant: {label: tenant}, admission_id: {is: admission_id}}}}`)

// serveGRPC serves until the world is closed, and connects clients.
func (w *world) serveGRPC(s *grpc.Server) (clients []*baseline.Client, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	go func() { _ = s.Serve(listener) }() // ends with Stop
	w.closers = append(w.closers, s.Stop)
	for range grpcConnections {
		c, err := baseline.Connect(listener.Addr().String())
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		w.closers = append(w.closers, c.Close)
		clients = append(clients, c)
	}
	return clients, nil
}

// overGRPC is a client of Envoy's rate limit service.
func overGRPC(c *baseline.Client) client {
	return func(ctx context.Context, id string) outcome {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		switch told, _, err := c.Ask(ctx, "edge", [2]string{"tenant", "acme"}, [2]string{"admission_id", id}); {
		case err != nil:
			return failed
		case told == baseline.Unavailable:
			return unknown
		case told == baseline.OK:
			return admitted
		}
		return refused
	}
}

func (w *world) grpcArm(b *bench, name string, clients []*baseline.Client, books bool) arm {
	return arm{name, "256 calls at once over 16 connections", func(ctx context.Context, d time.Duration) (tally, error) {
		return w.withBatches(books, func() tally {
			return closed(ctx, d, grpcCalls, !b.Random, func(i int) client { return overGRPC(clients[i%len(clients)]) })
		}), nil
	}}
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
	told, answer, err := node[0].Ask(within, "edge", [2]string{"tenant", "acme"}, [2]string{"admission_id", "the-length"})
	if err != nil || told != baseline.OK {
		return errors.Join(errors.New("the node does not admit over gRPC"), err)
	}
	var first tally
	first.counts[admitted]++
	w.counted(first)
	nothing, err := w.serveGRPC(baseline.NoOp(answer))
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
