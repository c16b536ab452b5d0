package envoy

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tranche/allocation"
	"tranche/regional"
)

// Times and bounds of the service.
const (
	DefaultDeadline = 15 * time.Millisecond // of a call that has none; below the 20 ms that Envoy waits by default
	maxMargin       = 5 * time.Millisecond  // kept back of a call's deadline for the answer's way
	maxMessage      = 256 << 10
	maxStreams      = 4096 // calls in flight on one connection
	idleConnections = 5 * time.Minute
	leastPing       = 5 * time.Second // a client may ping so often
	handshakeIn     = 5 * time.Second // of a new connection; until then it also keeps the server from ending
)

// The codes, as metrics name them.
const (
	countOK              = "ok"
	countOverLimit       = "over_limit"
	countUnavailable     = "unavailable"
	countUnauthenticated = "unauthenticated"
)

// Config is how the service is served.
type Config struct {
	Mapping Mapping
	Gate    *regional.Gate
	// Credential is the name that scopes the admission ids of all calls, which then need no token: only for a listener that
	// nobody else can reach. Empty: each call brings a gateway's token in the metadata `authorization`.
	Credential string
	TLS        *tls.Config
	Logger     hclog.Logger // hears of wrong calls at Debug; nil: nobody does
}

// Server answers Envoy.
type Server struct {
	servicev3.UnimplementedRateLimitServiceServer
	config Config
	gate   *regional.Gate
}

// New is a gRPC server with the service. The caller serves and stops it.
func New(config Config) *grpc.Server {
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(handshakeIn),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleConnections}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
	}
	if config.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config.TLS.Clone())))
	}
	s := grpc.NewServer(options...)
	servicev3.RegisterRateLimitServiceServer(s, &Server{config: config, gate: config.Gate})
	return s
}

// ShouldRateLimit decides one call.
func (s *Server) ShouldRateLimit(ctx context.Context, req *servicev3.RateLimitRequest) (*servicev3.RateLimitResponse, error) {
	arrived := s.gate.Now()
	headers, _ := metadata.FromIncomingContext(ctx)
	caller, problem := s.config.Credential, ""
	if caller == "" {
		caller, problem = s.gate.Caller(headers.Get("authorization"))
	}
	if caller == "" && s.gate.Shadow() {
		return s.passAll(allocation.Reason("token_unknown"), problem, len(req.GetDescriptors()))
	}
	if caller == "" {
		s.gate.Count(countUnauthenticated)
		return nil, status.Error(codes.Unauthenticated, problem+" (gRPC metadata: authorization)")
	}
	c, wrong := s.config.Mapping.read(req)
	if len(wrong) > 0 && s.gate.Shadow() {
		return s.passAll(allocation.Reason("invalid_request"), wrong.Error(), len(req.GetDescriptors()))
	}
	if len(wrong) > 0 {
		s.config.Logger.Debug("refused a call that is wrong", "domain", shown(req.GetDomain()), "problem", wrong.Error())
		s.gate.Count(countOverLimit)
		return refuseAll(s.gate.PublicProblem(wrong), len(req.GetDescriptors())), nil
	}
	asked := regional.Call{Caller: caller, Op: c.op, Labels: c.labels, ID: c.id, Legacy: c.legacy, Priority: c.priority, Correlation: correlation(headers)}
	var d allocation.Decision
	if s.gate.Enter() {
		d = s.decide(ctx, &c, asked, arrived, deadlineOf(ctx, arrived))
		s.gate.Leave()
	} else {
		d = s.gate.Refuse(asked, allocation.Overloaded, "the node already works on as many requests as it may")
	}
	return s.answer(&c, &d)
}

func correlation(md metadata.MD) string {
	h := http.Header{}
	for _, name := range []string{"traceparent", "x-request-id"} {
		if values := md.Get(name); len(values) > 0 {
			h.Set(name, values[0])
		}
	}
	return regional.CorrelationOf(h)
}

// deadlineOf is until when a call must be decided: a little before its own deadline, so that the answer is there in time.
func deadlineOf(ctx context.Context, arrived time.Time) time.Time {
	deadline, given := ctx.Deadline()
	if !given {
		return arrived.Add(DefaultDeadline)
	}
	left := min(deadline.Sub(arrived), regional.MaxDeadline)
	return arrived.Add(left - min(left/10, maxMargin))
}

// decide decides a call that was understood.
func (s *Server) decide(ctx context.Context, c *call, asked regional.Call, arrived, deadline time.Time) allocation.Decision {
	tenant := c.labels["tenant"]
	switch {
	case c.refund:
		return s.giveBack(ctx, c, asked, arrived, deadline)
	case c.op == allocation.Settle || c.op == allocation.Release:
		asked.Labels, asked.Tenant = nil, tenant
		if c.op == allocation.Settle {
			asked.Costs = c.costs(0)
		}
		return s.gate.Decide(ctx, asked, arrived, deadline)
	case c.op == allocation.Check:
		asked.Costs = c.costs(1)
		return s.gate.Decide(ctx, asked, arrived, deadline)
	}
	if c.looks() {
		look := asked
		look.Op, look.ID, look.Costs = allocation.Check, "", c.costs(1)
		if d := s.gate.Decide(ctx, look, arrived, deadline); !d.Admitted() && !s.known(ctx, asked, deadline) {
			d.Op, d.Key.ID = c.op, c.id
			return d
		}
	}
	asked.Costs = c.costs(0)
	return s.gate.Decide(ctx, asked, arrived, deadline)
}

// known says whether the id was admitted already: a repeated call gets its first answer, whatever is left by now.
func (s *Server) known(ctx context.Context, asked regional.Call, deadline time.Time) bool {
	if asked.ID == "" {
		return false
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	_, found, err := s.gate.Find(ctx, keyOf(asked))
	return err == nil && found
}

func keyOf(asked regional.Call) allocation.IDKey {
	return allocation.IDKey{Credential: asked.Caller, Tenant: asked.Labels["tenant"], ID: asked.ID}
}

// giveBack corrects a reservation downwards, or releases it whole. What was spent or settled is final, so nothing can be
// given back twice, nor more than is held.
func (s *Server) giveBack(ctx context.Context, c *call, asked regional.Call, arrived, deadline time.Time) allocation.Decision {
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	asked.Op = allocation.Settle
	if c.op == allocation.Release {
		asked.Op = allocation.Release
	}
	stands, found, err := s.gate.Find(bounded, keyOf(asked))
	switch {
	case err != nil:
		return s.gate.Refuse(asked, allocation.Overloaded, "the admission could not be read in time")
	case stands.Reason == allocation.OutcomeUnknown:
		return stands
	case !found:
		return s.gate.Refuse(asked, allocation.AdmissionIDUnknown, "no admission of this id is known in this region, or its retention is over")
	}
	costs, all, fits := afterGivingBack(&stands, c.hits)
	if !fits {
		return s.gate.Refuse(asked, allocation.CostExceedsLimit, "more would be given back than this admission was charged")
	}
	over := stands.State == allocation.StateReleased || stands.State == allocation.StateLapsedReleased
	switch {
	case over && !all: // to settle it now would charge, and a refund never does
		return s.gate.Refuse(asked, allocation.AdmissionIDReleased, "its reservation is over, and holds nothing to give back")
	case stands.State == allocation.StateLapsedSpent:
		return s.gate.Refuse(asked, allocation.AdmissionIDSettled, "its reservation lapsed as spent, which is final")
	}
	tenant := asked.Labels["tenant"]
	asked.Labels, asked.Tenant, asked.Costs = nil, tenant, costs
	if all && (over || stands.State == allocation.StateReserved) {
		asked.Op, asked.Costs = allocation.Release, nil
	}
	return s.gate.Decide(ctx, asked, arrived, deadline)
}

// afterGivingBack are the true costs of an admission from which some of what it was charged first is taken. They come out
// the same for a repeated call, whose settlement is then a replay. all: nothing is left of it.
func afterGivingBack(d *allocation.Decision, back map[string]int64) (costs map[string]int64, all, fits bool) {
	costs, all = map[string]int64{}, true
	for _, b := range d.Budgets {
		first := b.Requested
		if d.State == allocation.StateReserved {
			first = max(first, b.Charged) // it may have been extended
		}
		if back[b.Unit] > first {
			return nil, false, false
		}
		costs[b.Unit] = max(costs[b.Unit], first-back[b.Unit])
	}
	for unit := range back {
		if _, charged := costs[unit]; !charged && back[unit] > 0 {
			return nil, false, false
		}
	}
	for _, left := range costs {
		all = all && left == 0
	}
	return costs, all, true
}
