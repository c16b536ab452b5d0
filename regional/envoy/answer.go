package envoy

import (
	"math"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"tranche/allocation"
	"tranche/regional"
)

// ErrorDomain is the domain of the ErrorInfo in an UNAVAILABLE answer, whose reason is Tranche's.
const ErrorDomain = "tranche"

// unavailableRow is the column of allocation's table of answers that is an error for Envoy.
const unavailableRow = "UNAVAILABLE"

// answer tells a decision to Envoy: a response, or an error for what was not decided.
func (s *Server) answer(c *call, d *allocation.Decision) (*servicev3.RateLimitResponse, error) {
	public := s.gate.Public(d)
	if !d.Admitted() && allocation.AnswerTo(d.Reason).Envoy == unavailableRow {
		s.gate.Count(countUnavailable)
		return nil, undecided(d, &public)
	}
	out := &servicev3.RateLimitResponse{
		OverallCode: servicev3.RateLimitResponse_OK, Statuses: s.statuses(c, d),
		ResponseHeadersToAdd: headerValues(&public), DynamicMetadata: metadataOf(d, &public),
	}
	if d.Admitted() {
		s.gate.Count(countOK)
		if c.id == "" && d.Key.ID != "" { // it was made here, and whoever settles it must know
			out.RequestHeadersToAdd = []*corev3.HeaderValue{{Key: "admission-id", Value: d.Key.ID}}
		}
		if d.Action == allocation.ActionDegraded { // whatever routes the request must know
			out.RequestHeadersToAdd = append(out.RequestHeadersToAdd,
				&corev3.HeaderValue{Key: "tranche-action", Value: d.Action}, &corev3.HeaderValue{Key: "tranche-route", Value: d.Route})
		}
		return out, nil
	}
	s.gate.Count(countOverLimit)
	out.OverallCode, out.RawBody = servicev3.RateLimitResponse_OVER_LIMIT, public.Body
	return out, nil
}

// undecided is an error that says whether something may have been charged, and when to ask again.
func undecided(d *allocation.Decision, public *regional.Public) error {
	st := status.New(codes.Unavailable, string(d.Reason)+": "+allocation.AnswerTo(d.Reason).Title)
	info := &errdetails.ErrorInfo{Reason: string(d.Reason), Domain: ErrorDomain, Metadata: map[string]string{
		"outcome": public.Outcome, "admission_id": d.Key.ID, "region": d.Region,
	}}
	if receipt := public.Header.Get(regional.ReceiptHeader); receipt != "" {
		info.Metadata["receipt"] = receipt
	}
	retry := &errdetails.RetryInfo{RetryDelay: &durationpb.Duration{Seconds: public.RetryAfter}}
	if detailed, err := st.WithDetails(info, retry); err == nil {
		st = detailed
	}
	return st.Err()
}

// refuseAll refuses a call that was not understood.
func refuseAll(public regional.Public, descriptors int) *servicev3.RateLimitResponse {
	out := &servicev3.RateLimitResponse{
		OverallCode: servicev3.RateLimitResponse_OVER_LIMIT, ResponseHeadersToAdd: headerValues(&public), RawBody: public.Body,
	}
	for range descriptors {
		out.Statuses = append(out.Statuses, &servicev3.RateLimitResponse_DescriptorStatus{Code: servicev3.RateLimitResponse_OVER_LIMIT})
	}
	return out
}

// passAll lets through, in shadow, a call that could not even be decided.
func (s *Server) passAll(reason allocation.Reason, detail string, descriptors int) (*servicev3.RateLimitResponse, error) {
	d := s.gate.Refuse(regional.Call{Op: allocation.Spend}, reason, detail)
	out, err := s.answer(&call{}, &d)
	for range descriptors {
		out.Statuses = append(out.Statuses, &servicev3.RateLimitResponse_DescriptorStatus{Code: servicev3.RateLimitResponse_OK})
	}
	return out, err
}

// headerValues are the headers for Envoy's caller, in the order of their names.
func headerValues(public *regional.Public) []*corev3.HeaderValue {
	var out []*corev3.HeaderValue
	for name, values := range public.Header {
		for _, value := range values {
			out = append(out, &corev3.HeaderValue{Key: strings.ToLower(name), Value: value})
		}
	}
	slices.SortFunc(out, func(a, b *corev3.HeaderValue) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// metadataOf is for Envoy's own log: %DYNAMIC_METADATA(envoy.filters.http.ratelimit:reason)%.
func metadataOf(d *allocation.Decision, public *regional.Public) *structpb.Struct {
	fields := map[string]*structpb.Value{"replayed": structpb.NewBoolValue(d.Replayed)}
	for name, value := range map[string]string{
		"decision": public.Decision, "reason": public.Reason, "admission_id": d.Key.ID, "region": d.Region, "state": string(d.State),
		"budget": d.Blames, "detail": d.Detail, "incarnation": d.Evidence.Incarnation, "node": d.Evidence.Node,
		"receipt": public.Header.Get(regional.ReceiptHeader),
	} {
		if value != "" {
			fields[name] = structpb.NewStringValue(strings.ToValidUTF8(value, ""))
		}
	}
	return &structpb.Struct{Fields: fields}
}

// statuses are one for each descriptor, in their order: that of the budget which refused, else of the one that is nearest to
// it. A refusal that no budget of a descriptor has made is every descriptor's.
func (s *Server) statuses(c *call, d *allocation.Decision) []*servicev3.RateLimitResponse_DescriptorStatus {
	out := make([]*servicev3.RateLimitResponse_DescriptorStatus, len(c.descriptors))
	over := false
	for i := range c.descriptors {
		out[i] = &servicev3.RateLimitResponse_DescriptorStatus{Code: servicev3.RateLimitResponse_OK}
		if b := s.nearest(c, &c.descriptors[i], d); b != nil {
			s.fill(out[i], d, b)
		}
		over = over || out[i].Code == servicev3.RateLimitResponse_OVER_LIMIT
	}
	if !d.Admitted() && !over {
		for _, one := range out {
			one.Code = servicev3.RateLimitResponse_OVER_LIMIT
		}
	}
	return out
}

// nearest is the budget that a descriptor's status is about; nil if there is none.
func (s *Server) nearest(c *call, of *descriptor, d *allocation.Decision) (found *allocation.BudgetDecision) {
	for i := range d.Budgets {
		b := &d.Budgets[i]
		switch {
		case b.Unit != of.unit || !s.concerns(c, of, b.Budget):
		case found == nil,
			found.Reason == allocation.Allow && b.Reason != allocation.Allow,
			(found.Reason == allocation.Allow) == (b.Reason == allocation.Allow) && b.Remaining < found.Remaining:
			found = b
		}
	}
	return found
}

// concerns says whether a budget is a descriptor's: the descriptor carries all the labels that the budget goes by and that
// any descriptor of the call carries. Where none has all of them, it is everybody's who has one; where the budget goes by
// none of them, it is everyone's.
func (s *Server) concerns(c *call, of *descriptor, budget string) bool {
	b, known := s.gate.Budget(budget)
	if !known {
		return true
	}
	needs := b.TemplateLabels()
	for name := range b.Match {
		needs = append(needs, name)
	}
	needs = slices.DeleteFunc(needs, func(name string) bool {
		return !slices.ContainsFunc(c.descriptors, func(d descriptor) bool { return d.labels[name] })
	})
	carriesAll := func(d descriptor) bool {
		return !slices.ContainsFunc(needs, func(name string) bool { return !d.labels[name] })
	}
	if carriesAll(*of) || slices.ContainsFunc(c.descriptors, carriesAll) {
		return carriesAll(*of)
	}
	return slices.ContainsFunc(needs, func(name string) bool { return of.labels[name] })
}

func (s *Server) fill(to *servicev3.RateLimitResponse_DescriptorStatus, d *allocation.Decision, b *allocation.BudgetDecision) {
	if b.Reason != allocation.Allow && b.Enforcement == "" { // in shadow and metered a budget refuses nobody
		to.Code = servicev3.RateLimitResponse_OVER_LIMIT
	}
	to.LimitRemaining = clamp(b.Remaining)
	to.CurrentLimit = &servicev3.RateLimitResponse_RateLimit{Name: b.Budget, RequestsPerUnit: clamp(b.Limit)}
	if declared, known := s.gate.Budget(b.Budget); known {
		unit, times := unitOf(declared.Window)
		to.CurrentLimit.Unit = unit
		if times > 1 {
			to.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(clamp(times))
		}
	}
	if seconds, ends := regional.ResetsIn(d, b, s.gate.Now()); ends {
		to.DurationUntilReset = &durationpb.Duration{Seconds: seconds}
	}
}

// clamp is the nearest number that a uint32 can say: Envoy must never read more than there is as less than nothing.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// unitOf is a window in Envoy's words. What has none stays unknown, and duration_until_reset says the rest.
func unitOf(w allocation.Window) (servicev3.RateLimitResponse_RateLimit_Unit, int64) {
	switch w.Calendar {
	case "day":
		return servicev3.RateLimitResponse_RateLimit_DAY, 1
	case "week":
		return servicev3.RateLimitResponse_RateLimit_WEEK, 1
	case "month":
		return servicev3.RateLimitResponse_RateLimit_MONTH, 1
	case "year":
		return servicev3.RateLimitResponse_RateLimit_YEAR, 1
	}
	every := int64(w.Every)
	switch {
	case every == 0:
		return servicev3.RateLimitResponse_RateLimit_UNKNOWN, 0
	case every%int64(allocation.Hour) == 0:
		return servicev3.RateLimitResponse_RateLimit_HOUR, every / int64(allocation.Hour)
	case every%int64(allocation.Minute) == 0:
		return servicev3.RateLimitResponse_RateLimit_MINUTE, every / int64(allocation.Minute)
	}
	return servicev3.RateLimitResponse_RateLimit_SECOND, every
}
