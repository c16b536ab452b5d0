// Package grpcclient asks a region's nodes for an admission before a gRPC method runs.
//
//	limit := grpcclient.Interceptor{Client: c, Request: func(ctx context.Context, method string) (client.Request, error) {
//		return client.Request{Labels: map[string]string{"tenant": tenantOf(ctx), "route": method}}, nil
//	}}
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary()), grpc.StreamInterceptor(limit.Stream()))
//
// A refusal is told as
//
//	RESOURCE_EXHAUSTED   the budget has no more; or 429 for another reason
//	PERMISSION_DENIED, UNAUTHENTICATED, FAILED_PRECONDITION, INVALID_ARGUMENT   as the reason's HTTP status says
//	UNAVAILABLE          nobody decided
//
// with the metadata (trailer) tranche-reason, tranche-admission-id and, where there is one, retry-after in seconds.
package grpcclient

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"tranche/regional/client"
)

// Interceptor asks before each call.
type Interceptor struct {
	Client *client.Client
	// Request says what a call costs and whose it is. An error is answered as INVALID_ARGUMENT, unless it is a status.
	Request func(ctx context.Context, method string) (client.Request, error)
	// Reserve holds the costs as an estimate while the method runs; see client.Middleware.
	Reserve bool
}

// Unary intercepts calls with one message each way.
func (i Interceptor) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, message any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		inner, done, err := i.admit(ctx, info.FullMethod, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
		if err != nil {
			return nil, err
		}
		defer done()
		return next(inner, message)
	}
}

// Stream intercepts streams: one admission for the whole of one.
func (i Interceptor) Stream() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, done, err := i.admit(stream.Context(), info.FullMethod, stream.SetTrailer)
		if err != nil {
			return err
		}
		defer done()
		return next(server, &streamWith{ServerStream: stream, ctx: ctx})
	}
}

type streamWith struct {
	grpc.ServerStream
	ctx context.Context
}

// Context is the stream's, with the decision.
func (s *streamWith) Context() context.Context { return s.ctx }

// admit asks. done settles what was reserved.
func (i Interceptor) admit(ctx context.Context, method string, trailer func(metadata.MD)) (context.Context, func(), error) {
	request, err := i.Request(ctx, method)
	if err != nil {
		if _, is := status.FromError(err); is {
			return nil, nil, err
		}
		return nil, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	asking := client.WithCorrelation(ctx, headerOf(ctx))
	var d client.Decision
	if i.Reserve {
		d, err = i.Client.Reserve(asking, request)
	} else {
		d, err = i.Client.Admit(asking, request)
	}
	if err != nil || !d.Admitted() {
		return nil, nil, refuse(d, err, trailer)
	}
	spent := &client.Spent{}
	inner := client.ContextWith(asking, spent, d)
	done := func() {}
	if i.Reserve && !d.FailedOpen {
		done = func() { i.Client.SettleAfter(inner, d.Ref(), spent, request.Costs) }
	}
	return inner, done, nil
}

// headerOf is the metadata that tells to which trace a call belongs.
func headerOf(ctx context.Context) http.Header {
	h := http.Header{}
	md, _ := metadata.FromIncomingContext(ctx)
	for _, name := range []string{"traceparent", "x-request-id"} {
		for _, v := range md.Get(name) {
			h.Add(name, v)
		}
	}
	return h
}

// refuse is the status of a call that was not admitted.
func refuse(d client.Decision, err error, trailer func(metadata.MD)) error {
	var undecided *client.UndecidedError
	switch {
	case errors.As(err, &undecided):
		trailer(told("undecided", undecided.Ref.ID, max(undecided.Wait, time.Second)))
		return status.Error(codes.Unavailable, "the request could not be decided")
	case err != nil:
		return status.Error(codes.Internal, "the limiter was asked wrongly")
	}
	trailer(told(string(d.Reason), d.AdmissionID, d.RetryAfter))
	title := d.Title
	if title == "" {
		title = "refused"
	}
	return status.Error(codeOf(d.Status), title)
}

func told(reason, id string, wait time.Duration) metadata.MD {
	md := metadata.Pairs("tranche-reason", reason, "tranche-admission-id", id)
	if wait > 0 {
		md.Set("retry-after", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
	}
	return md
}

func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusTooManyRequests, http.StatusPaymentRequired:
		return codes.ResourceExhausted
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return codes.InvalidArgument
	case http.StatusConflict, http.StatusMisdirectedRequest:
		return codes.FailedPrecondition
	}
	return codes.Unavailable
}
