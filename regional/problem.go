package regional

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"

	"tranche/allocation"
)

// faultKind is why a call was not even decided. It is told in the same member as a decision's reason.
type faultKind string

// The faults that are none of allocation's reasons.
const (
	badRequest   faultKind = "invalid_request"
	bodyTooLarge faultKind = "body_too_large"
	wrongMedia   faultKind = "unsupported_media_type"
	tokenMissing faultKind = "token_missing"
	tokenUnknown faultKind = "token_unknown"
	notFound     faultKind = "not_found"
	wrongMethod  faultKind = "method_not_allowed"
)

var faultAnswers = map[faultKind]struct {
	status int
	title  string
}{
	badRequest:   {http.StatusBadRequest, "The request is wrong; nothing was decided or charged"},
	bodyTooLarge: {http.StatusRequestEntityTooLarge, "The body is larger than 1 MiB; nothing was decided or charged"},
	wrongMedia:   {http.StatusUnsupportedMediaType, "The body is not application/json; nothing was decided or charged"},
	tokenMissing: {http.StatusUnauthorized, "A gateway's token is required"},
	tokenUnknown: {http.StatusUnauthorized, "The token is not known"},
	notFound:     {http.StatusNotFound, "There is nothing at this address"},
	wrongMethod:  {http.StatusMethodNotAllowed, "The method is not for this address"},
}

// Problem types: two are registered by the RateLimit draft, the others are our own and end in the reason.
const (
	typeQuota    = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	typeOurs     = "urn:tranche:problem:"
)

const problemJSON = "application/problem+json"

// fault is an answer to a call that was not decided: nothing was charged for it.
type fault struct {
	kind     faultKind
	reason   allocation.Reason // instead of kind
	status   int               // instead of the kind's; 0: the kind's
	detail   string
	problems allocation.Problems
	receipt  string              // of a reason
	noted    *allocation.Request // the admission that it refuses, to be counted with the refusals; nil: it refuses none
}

func reasonFault(r allocation.Reason, detail string) fault { return fault{reason: r, detail: detail} }

// invalid is a request that is wrong, with all that is wrong about it.
func invalid(problems ...allocation.FieldError) *fault {
	return &fault{kind: badRequest, detail: allocation.Problems(problems).Error(), problems: problems}
}

// readFault is the fault of a read that the backend could not answer. The error's words may name addresses: they stay out.
func readFault(err error) fault {
	switch {
	case errors.Is(err, ErrNotReady):
		return reasonFault(allocation.Starting, "the database is not set up for this region yet")
	case errors.Is(err, ErrHistoryLost):
		return reasonFault(allocation.HistoryLost, "")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return reasonFault(allocation.Overloaded, "the database did not answer in time")
	}
	return reasonFault(allocation.DatabaseUnavailable, "")
}

// faultBody is a fault as RFC 9457 has it.
type faultBody struct {
	Type       string              `json:"type"`
	Title      string              `json:"title"`
	Status     int                 `json:"status"`
	Detail     string              `json:"detail,omitempty"`
	Reason     string              `json:"reason"`
	Retryable  bool                `json:"retryable"`
	Retry      string              `json:"retry,omitempty"`
	RetryAfter int64               `json:"retry_after_seconds,omitempty"`
	Outcome    string              `json:"outcome"`
	Errors     allocation.Problems `json:"errors,omitempty"`
	Receipt    string              `json:"receipt,omitempty"`
}

// writeFault is the one place that tells a fault over HTTP.
func writeFault(w http.ResponseWriter, f fault) {
	s, ours := w.(*statusWriter)
	if ours && s.shadow != nil {
		s.shadow.shadowedFault(s, f)
		return
	}
	if ours && s.api != nil {
		f.receipt = s.api.faultReceipt(f)
	}
	body := bodyOfFault(f)
	setReceipt(w.Header(), body.Receipt)
	if body.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(body.RetryAfter, 10))
	}
	writeJSON(w, body.Status, problemJSON, &body)
}

func bodyOfFault(f fault) faultBody {
	body := faultBody{Detail: f.detail, Errors: f.problems, Outcome: outcomeNone, Receipt: f.receipt}
	if f.reason != "" {
		row := allocation.AnswerTo(f.reason)
		body.Type, body.Title, body.Status = problemType(f.reason), row.Title, row.Status
		body.Reason, body.Retryable, body.Retry = string(f.reason), row.Retryable(), string(row.Retry)
		if row.Retryable() {
			body.RetryAfter = 1
		}
	} else {
		row := faultAnswers[f.kind]
		body.Type, body.Title, body.Status, body.Reason = typeOurs+string(f.kind), row.title, row.status, string(f.kind)
		body.Status = cmp.Or(f.status, body.Status)
	}
	return body
}

// problemType is the URI of a refusal's kind.
func problemType(r allocation.Reason) string {
	switch r {
	case allocation.RegionShareSpent, allocation.CeilingReached, allocation.TooManyInstances, allocation.OnlyProtectedLeft,
		allocation.Deferred, allocation.LadderRefused:
		return typeQuota
	case allocation.CapacityStranded:
		return typeCapacity
	case allocation.OutcomeUnknown: // not a smaller capacity: the charge may stand, and the same id tells
		return typeOurs + string(r)
	}
	if allocation.AnswerTo(r).Status == http.StatusServiceUnavailable {
		return typeCapacity
	}
	return typeOurs + string(r)
}

// What a refusal says of the caller's charge.
const (
	outcomeNone    = "none"
	outcomeUnknown = "unknown"
)

// refusalStatus is the HTTP status of a refusal whose reason has this one. A budget may have its own for being used up.
func refusalStatus(d *allocation.Decision, status int, c *allocation.Catalogue) int {
	if d.Reason == allocation.CeilingReached {
		if own, known := c.OnExhausted(blamedName(d)); known {
			return own
		}
	}
	return status
}
