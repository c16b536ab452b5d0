// Package baseline is what Envoy's rate limit service is measured against: a client of it, and a service that decides nothing.
package baseline

import (
	"context"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Client calls the service over a connection of its own.
type Client struct {
	conn    *grpc.ClientConn
	service servicev3.RateLimitServiceClient
}

// Connect makes a client of the service at an address on this machine.
func Connect(address string) (*Client, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &Client{conn, servicev3.NewRateLimitServiceClient(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() { _ = c.conn.Close() }

// Told is what a call was told.
type Told int

// What a call may be told. Anything else is an error.
const (
	OK Told = iota
	OverLimit
	Unavailable // which does not say whether something was charged
)

// Answer is an answer of the service, as it came.
type Answer struct{ response *servicev3.RateLimitResponse }

// Ask makes one call of one descriptor, of entries that are pairs of key and value, and waits for the connection.
func (c *Client) Ask(ctx context.Context, domain string, entries ...[2]string) (Told, Answer, error) {
	d := &descriptorv3.RateLimitDescriptor{}
	for _, e := range entries {
		d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
	}
	response, err := c.service.ShouldRateLimit(ctx,
		&servicev3.RateLimitRequest{Domain: domain, Descriptors: []*descriptorv3.RateLimitDescriptor{d}}, grpc.WaitForReady(true))
	switch {
	case status.Code(err) == codes.Unavailable:
		return Unavailable, Answer{}, nil
	case err != nil:
		return Unavailable, Answer{}, err
	case response.GetOverallCode() == servicev3.RateLimitResponse_OK:
		return OK, Answer{response}, nil
	}
	return OverLimit, Answer{response}, nil
}

// NoOp is a server whose service decides nothing: it gives one answer to every call.
func NoOp(answer Answer) *grpc.Server {
	s := grpc.NewServer()
	servicev3.RegisterRateLimitServiceServer(s, &noOp{answer: answer.response})
	return s
}

type noOp struct {
	servicev3.UnimplementedRateLimitServiceServer
	answer *servicev3.RateLimitResponse
}

// ShouldRateLimit answers.
func (n *noOp) ShouldRateLimit(context.Context, *servicev3.RateLimitRequest) (*servicev3.RateLimitResponse, error) {
	return n.answer, nil
}
