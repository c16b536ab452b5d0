package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"tranche/allocation"
)

// Request asks for one admission.
type Request struct {
	// ID is the admission's, the same over all tries; empty: one is made. See the package's comment on whom to trust.
	ID string
	// Labels choose the budgets; "tenant" also scopes the id.
	Labels map[string]string
	// Costs by unit. "requests" is 1 unless given; any other unit that a budget counts must be given.
	Costs map[string]int64
	// Lifetime of a reservation; 0: the longest that its budgets allow.
	Lifetime time.Duration
	// Wait is how long a refusal that may pass later is waited for, in whole, within the context's deadline; 0: not at all.
	Wait time.Duration
	// Priority says what is refused first as a budget is used up; empty: allocation.Interactive. allocation.Essential is only for
	// a token that may say so.
	Priority allocation.Priority
	// Legacy is what the limiter says that is still in force, "allow" or "deny", for `tranche shadow report`; empty: nothing.
	Legacy string
}

// Ref names an admission that was made, for Settle, Release, Extend and Find.
type Ref struct {
	ID     string
	Tenant string // the label, if the admission had one
}

// Period is one period by its instants, as RFC 3339; End is "never" for one without end.
type Period struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

// Budget is one budget's part of a decision.
type Budget struct {
	Budget     string            `json:"budget"`
	Instance   string            `json:"instance"`
	Unit       string            `json:"unit"`
	Reason     allocation.Reason `json:"reason"`
	Period     *Period           `json:"period"`
	ResetsIn   *int64            `json:"resets_in_seconds"`
	Limit      int64             `json:"limit"` // of the whole budget
	Share      int64             `json:"share"` // of this region
	Requested  int64             `json:"requested"`
	Charged    int64             `json:"charged"`
	Overdraft  int64             `json:"overdraft"`
	Remaining  int64             `json:"remaining"` // what this region may still spend on this priority
	Protected  int64             `json:"protected"` // of the share, for essential traffic
	Generation int64             `json:"generation"`
	Version    int64             `json:"version"`
}

// Blocking is the first budget that refused.
type Blocking struct {
	Budget   string  `json:"budget"`
	Instance string  `json:"instance"`
	Unit     string  `json:"unit"`
	Period   *Period `json:"period"`
}

// Decision is a node's answer. The zero Decision admits nothing.
type Decision struct {
	Status      int // HTTP
	AdmissionID string
	Tenant      string
	Region      string
	Op          string
	Reason      allocation.Reason
	Action      string // preferred, degraded, deferred or refused
	Route       string // for degraded: the cheaper one to take
	State       allocation.State
	Replayed    bool // the id was known: nothing was charged this time
	DecidedAt   string
	ExpiresAt   string // of an open reservation

	// Of a refusal.
	Type       string // the problem type (RFC 9457)
	Title      string
	Detail     string // for your own log: it tells shares
	Retryable  bool
	Retry      allocation.RetryAdvice
	RetryAfter time.Duration // 0: no advice
	Outcome    string        // none or unknown
	Home       string        // for not_home: the region to ask
	Blocking   *Blocking
	Affordable map[string]int64 // by unit: the most that would pass now

	Budgets []Budget
	// Header has the answer's RateLimit fields, which may be forwarded.
	Header http.Header
	// Would is, of what was let through in shadow, the reason for which it would have been refused; see Blocking.
	Would allocation.Reason
	// FailedOpen says that nothing was decided or charged, and Options.FailOpen let the request through all the same.
	FailedOpen bool

	said string
}

// Admitted says whether the request may go on. It is false for every reason that this version does not know.
func (d Decision) Admitted() bool {
	return d.FailedOpen || d.said == "admitted" && d.done()
}

// done says that the node did what it was asked.
func (d Decision) done() bool { return d.Status == http.StatusOK && d.Reason == allocation.Allow }

// Deferred says that the work should come back later, under the same id.
func (d Decision) Deferred() bool {
	return !d.Admitted() && (d.Action == "deferred" || d.Reason == "deferred")
}

// Ref names the admission for Settle, Release, Extend and Find.
func (d Decision) Ref() Ref { return Ref{ID: d.AdmissionID, Tenant: d.Tenant} }

// wire is a decision, or a fault, as the node writes it.
type wire struct {
	Type        string                 `json:"type"`
	Title       string                 `json:"title"`
	Status      int                    `json:"status"`
	Detail      string                 `json:"detail"`
	Decision    string                 `json:"decision"`
	Reason      allocation.Reason      `json:"reason"`
	Action      string                 `json:"action"`
	Route       string                 `json:"route"`
	Op          string                 `json:"op"`
	AdmissionID string                 `json:"admission_id"`
	Region      string                 `json:"region"`
	State       allocation.State       `json:"state"`
	Replayed    bool                   `json:"replayed"`
	DecidedAt   string                 `json:"decided_at"`
	ExpiresAt   string                 `json:"expires_at"`
	Retryable   bool                   `json:"retryable"`
	Retry       allocation.RetryAdvice `json:"retry"`
	RetryAfter  int64                  `json:"retry_after_seconds"`
	Outcome     string                 `json:"outcome"`
	Home        string                 `json:"home"`
	Blocking    *Blocking              `json:"blocking"`
	Affordable  map[string]int64       `json:"affordable"`
	Budgets     []Budget               `json:"budgets"`
	Shadow      *struct {
		Would    allocation.Reason `json:"would"`
		Outcome  string            `json:"outcome"`
		Blocking *Blocking         `json:"blocking"`
	} `json:"shadow"`
}

// decision is what the wire says; in a batch the status stands in the body.
func (w wire) decision(status int, h http.Header, ref Ref) Decision {
	d := Decision{
		Status: status, AdmissionID: w.AdmissionID, Tenant: ref.Tenant, Region: w.Region, Op: w.Op, Reason: w.Reason,
		Action: w.Action, Route: w.Route, State: w.State, Replayed: w.Replayed, DecidedAt: w.DecidedAt, ExpiresAt: w.ExpiresAt,
		Type: w.Type, Title: w.Title, Detail: w.Detail, Retryable: w.Retryable, Retry: w.Retry,
		RetryAfter: seconds(w.RetryAfter), Outcome: w.Outcome, Home: w.Home, Blocking: w.Blocking, Affordable: w.Affordable,
		Budgets: w.Budgets, Header: http.Header{}, said: w.Decision,
	}
	if w.Shadow != nil {
		d.Would, d.Outcome, d.Blocking = w.Shadow.Would, w.Shadow.Outcome, w.Shadow.Blocking
	}
	if d.AdmissionID == "" {
		d.AdmissionID = ref.ID
	}
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy"} {
		if v := h.Values(name); len(v) > 0 {
			d.Header[name] = v
		}
	}
	d.RetryAfter = max(d.RetryAfter, retryAfter(h))
	return d
}

// mostRetryAfter bounds what is read from an answer: longer is never waited for anyway.
const mostRetryAfter = 366 * 24 * 3600

func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), mostRetryAfter)) * time.Second
}

// retryAfter reads delay-seconds. A node never sends a date; one that another hop sent is worth less than our own wait.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	if err != nil {
		return 0
	}
	return seconds(n)
}

// undecided says that the answer is no decision on the request: the same may be asked again at once, or soon.
func (d Decision) undecided() bool {
	if d.Reason == allocation.Allow {
		return !d.done() // which no node sends
	}
	if slices.ContainsFunc(allocation.Answers(), func(a allocation.Answer) bool { return a.Reason == d.Reason }) {
		return allocation.AnswerTo(d.Reason).Status == http.StatusServiceUnavailable
	}
	return d.Status >= 500
}

// UndecidedError says that nobody decided, in all tries. The request was not admitted; with Outcome "unknown" it may have
// been charged, and the same id asked again gets the truth.
type UndecidedError struct {
	Ref     Ref
	Outcome string            // none or unknown
	Reason  allocation.Reason // of the last answer; empty if there was none
	Tries   int
	Err     error // of the last try, if it had no answer
	Wait    time.Duration
}

// Error tells the last cause.
func (e *UndecidedError) Error() string {
	cause := "no answer"
	switch {
	case e.Err != nil:
		cause = e.Err.Error()
	case e.Reason != "":
		cause = string(e.Reason)
	}
	return fmt.Sprintf("tranche: admission %s was not decided in %d tries (outcome %s): %s", e.Ref.ID, e.Tries, e.Outcome, cause)
}

// Unwrap is the error of the last try.
func (e *UndecidedError) Unwrap() error { return e.Err }

// RefusedError says that a node would not settle or release.
type RefusedError struct{ Decision Decision }

// Error tells the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("tranche: %s of %s: %s: %s", e.Decision.Op, e.Decision.AdmissionID, e.Decision.Reason, e.Decision.Title)
}

// CallError says that the call itself is wrong, so that no try of it can pass. Nothing was decided or charged.
type CallError struct {
	Status int
	Reason string
	Title  string
	Detail string // which names the field and the fix
}

// Error tells what to change.
func (e *CallError) Error() string {
	return fmt.Sprintf("tranche: status %d, %s: %s", e.Status, e.Reason, firstOf(e.Detail, e.Title))
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// parse reads an answer to a call about one admission.
func parse(a answer, ref Ref) (Decision, error) {
	var w wire
	if err := json.Unmarshal(a.body, &w); err != nil {
		return Decision{}, fmt.Errorf("read the answer of %s (status %d): %w", a.node, a.status, err)
	}
	if w.Decision == "" && w.Reason == "" {
		return Decision{}, fmt.Errorf("read the answer of %s (status %d): it is none of a node", a.node, a.status)
	}
	return w.decision(a.status, a.header, ref), nil
}
