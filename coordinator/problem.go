package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"tranche/allocation"
)

// The codes of problems: a closed set, for programs.
const (
	CodeInvalid        = "invalid"         // 400, 405, 422: the request is wrong; field and fix say where
	CodeUnauthorized   = "unauthorized"    // 401
	CodeForbidden      = "forbidden"       // 403: the token's role does not allow it
	CodeNotFound       = "not_found"       // 404
	CodeExists         = "exists"          // 409
	CodeRefused        = "refused"         // 409: it cannot be done now; detail and fix say why
	CodeVersionStale   = "version_stale"   // 412: somebody else changed it; read it again
	CodeTooLarge       = "too_large"       // 413
	CodeVersionMissing = "version_missing" // 428: say which version the change rests on
	CodeInternal       = "internal"        // 500
	CodeUnavailable    = "unavailable"     // 503: nothing was changed; try again
	CodeOutcomeUnknown = "outcome_unknown" // 503: it may have been done; read it before trying again
)

// Problem is an error of the API, as application/problem+json (RFC 9457).
type Problem struct {
	Type     string                  `json:"type"` // urn:tranche:CODE
	Code     string                  `json:"code"`
	Title    string                  `json:"title"`
	Status   int                     `json:"status"`
	Detail   string                  `json:"detail,omitempty"`
	Field    string                  `json:"field,omitempty"`
	Fix      string                  `json:"fix,omitempty"`
	Problems []allocation.FieldError `json:"problems,omitempty"` // when there are several
	// Retryable: nothing was changed, and the same request may be made again as it is.
	Retryable bool `json:"retryable,omitempty"`
}

// Error is the detail and the fix.
func (p *Problem) Error() string {
	text := p.Detail
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	if p.Fix != "" {
		text += "; " + p.Fix
	}
	return text
}

func problem(status int, code, detail, fix string) *Problem {
	return &Problem{Type: "urn:tranche:" + code, Code: code, Title: http.StatusText(status), Status: status, Detail: detail, Fix: fix, Retryable: code == CodeUnavailable}
}

func notFound(kind, name string) *Problem {
	return problem(http.StatusNotFound, CodeNotFound, fmt.Sprintf("there is no %s %q", kind, name), "list them to see the names")
}

func refused(fix, format string, args ...any) *Problem {
	return problem(http.StatusConflict, CodeRefused, fmt.Sprintf(format, args...), fix)
}

func invalid(field, detail, fix string) *Problem {
	p := problem(http.StatusUnprocessableEntity, CodeInvalid, detail, fix)
	p.Field = field
	return p
}

// asProblem maps every error to what the caller is told. Only an internal one is for the log: its detail may name keys.
func asProblem(err error) *Problem {
	var p *Problem
	var fields allocation.Problems
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &fields):
		p = invalid(fields[0].Field, fields[0].Problem, fields[0].Fix)
		if len(fields) > 1 {
			p.Problems = fields
		}
		return p
	case errors.Is(err, allocation.ErrTooManyEntries):
		return refused("try again when the running term is over", "%s", err.Error())
	case errors.Is(err, errFormat):
		return refused("upgrade this coordinator", "%s", err.Error())
	case errors.Is(err, errNotShown):
		return problem(http.StatusServiceUnavailable, CodeOutcomeUnknown, errNotShown.Error(), lookFirst)
	case errors.Is(err, ErrUnknownOutcome):
		return problem(http.StatusServiceUnavailable, CodeOutcomeUnknown, ErrUnknownOutcome.Error(), lookFirst)
	case errors.Is(err, ErrHistoryLost):
		return problem(http.StatusServiceUnavailable, CodeUnavailable, ErrHistoryLost.Error(), "ask another coordinator; see 'restored from a backup' in deploy/docs/failures.md")
	case errors.Is(err, ErrConflict):
		return problem(http.StatusServiceUnavailable, CodeUnavailable, "others kept changing the same documents; nothing was changed", "try again")
	case errors.Is(err, ErrUnavailable):
		return problem(http.StatusServiceUnavailable, CodeUnavailable, ErrUnavailable.Error()+"; nothing was changed", "try again in a moment; `tranche status` shows the etcd members")
	case errors.Is(err, errWentBack):
		return problem(http.StatusServiceUnavailable, CodeUnavailable, errWentBack.Error()+"; nothing was changed", "try again in a moment; `tranche recover` shows what is lost")
	case errors.Is(err, ErrStopped):
		return problem(http.StatusServiceUnavailable, CodeUnavailable, ErrStopped.Error(), "ask another coordinator")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return problem(http.StatusServiceUnavailable, CodeUnavailable, "etcd did not answer in time; nothing was changed", "try again; `tranche status` shows the etcd members")
	}
	return problem(http.StatusInternalServerError, CodeInternal, "the coordinator could not do this; its log says why", "")
}

// lookFirst is what to do about a change that may have been made.
const lookFirst = "look before you repeat it: read it again, its version is another if it was done; `tranche audit` shows the act"

func writeProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="tranche"`)
	}
	if p.Retryable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller may be gone
}
