package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tranche/allocation"
)

// settleTime bounds a settlement after a request: it is sent also when the caller is gone.
const settleTime = 10 * time.Second

// Middleware asks for an admission before a handler of net/http runs, and answers for it when there is none.
type Middleware struct {
	Client *Client
	// Request says what a request costs and whose it is. An error is answered with 400 and its text. Leave ID empty unless
	// the caller is trusted: who repeats an id is admitted again without a charge.
	Request func(*http.Request) (Request, error)
	// Reserve holds the costs as an estimate while the handler runs. The handler tells the true ones with SetCosts; if it
	// does not, the estimate is what was spent, also after a panic.
	Reserve bool
	// ShowLimits forwards the RateLimit fields to callers: they tell the limit and what this region has left.
	ShowLimits bool
}

// Wrap is the handler behind the middleware.
func (m Middleware) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := m.Request(r)
		if err != nil {
			writeProblem(w, problem{Type: "about:blank", Title: err.Error(), Status: http.StatusBadRequest, Reason: "invalid_request", Outcome: "none"}, 0)
			return
		}
		ctx := WithCorrelation(r.Context(), r.Header)
		d, err := m.ask(ctx, request)
		if m.ShowLimits {
			for name, values := range d.Header {
				w.Header()[name] = values
			}
		}
		if err != nil || !d.Admitted() {
			p, wait := problemOf(d, err)
			if wait == 0 && p.Status == http.StatusServiceUnavailable {
				wait = time.Second
			}
			writeProblem(w, p, wait)
			return
		}
		m.serve(ctx, w, r, next, request, d)
	})
}

func (m Middleware) ask(ctx context.Context, request Request) (Decision, error) {
	if m.Reserve {
		return m.Client.Reserve(ctx, request)
	}
	return m.Client.Admit(ctx, request)
}

// serve runs the handler, and then settles what was reserved.
func (m Middleware) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler, request Request, d Decision) {
	spent := &Spent{}
	ctx = ContextWith(ctx, spent, d)
	if m.Reserve && !d.FailedOpen {
		defer func() { m.Client.SettleAfter(ctx, d.Ref(), spent, request.Costs) }()
	}
	next.ServeHTTP(w, r.WithContext(ctx))
}

// Spent collects the true costs of one request while it is served. It may be used by several goroutines.
type Spent struct {
	mu       sync.Mutex
	costs    map[string]int64
	released bool
}

// Set tells the costs; the last word counts.
func (s *Spent) Set(costs map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.costs, s.released = costs, false
}

// Release says that nothing was used.
func (s *Spent) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.costs, s.released = nil, true
}

// SettleAfter settles or releases a reservation by what was told while it was held; by the estimate if nothing was. It
// goes on when ctx has ended, for at most 10 s: a caller that hangs up does not make its costs go away. What fails is
// logged, since nobody waits for it any more; the reservation then lapses as its budgets say.
func (c *Client) SettleAfter(ctx context.Context, ref Ref, s *Spent, estimate map[string]int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	s.mu.Lock()
	costs, released := s.costs, s.released
	s.mu.Unlock()
	if costs == nil {
		costs = estimate
	}
	var err error
	if released {
		_, err = c.Release(ctx, ref)
	} else {
		_, err = c.Settle(ctx, ref, costs)
	}
	if err != nil {
		c.log.Error("tranche: settle after a request; its reservation will lapse", "admission_id", ref.ID, "tenant", ref.Tenant, "error", err.Error())
	}
}

type (
	spentKey    struct{}
	decisionKey struct{}
)

// ContextWith is a context in which SetCosts and FromContext find a request's Spent and its decision. Middleware calls it;
// so does the interceptor of grpcclient.
func ContextWith(ctx context.Context, s *Spent, d Decision) context.Context {
	return context.WithValue(context.WithValue(ctx, spentKey{}, s), decisionKey{}, d)
}

// SetCosts tells the true costs of the request that ctx belongs to. False: it was not reserved by a middleware of this
// package, and nothing will be settled.
func SetCosts(ctx context.Context, costs map[string]int64) bool {
	s, ok := ctx.Value(spentKey{}).(*Spent)
	if ok {
		s.Set(costs)
	}
	return ok
}

// SetReleased says that the request that ctx belongs to used nothing. False as with SetCosts.
func SetReleased(ctx context.Context) bool {
	s, ok := ctx.Value(spentKey{}).(*Spent)
	if ok {
		s.Release()
	}
	return ok
}

// FromContext is the decision that let a request through.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(Decision)
	return d, ok
}

// problem is what a caller is told of a refusal: its public part. Shares, other tenants and evidence stay with us.
type problem struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Status      int    `json:"status"`
	Reason      string `json:"reason"`
	Retryable   bool   `json:"retryable"`
	Retry       string `json:"retry,omitempty"`
	RetryAfter  int64  `json:"retry_after_seconds,omitempty"`
	Outcome     string `json:"outcome"`
	AdmissionID string `json:"admission_id,omitempty"`
}

// problemOf tells a refusal, or an error of Admit and Reserve. A wrong call is our fault, so the caller gets 500.
func problemOf(d Decision, err error) (problem, time.Duration) {
	var undecided *UndecidedError
	switch {
	case errors.As(err, &undecided):
		row := allocation.AnswerTo(allocation.OutcomeUnknown)
		p := problem{
			Type: "about:blank", Title: "The request could not be decided", Status: row.Status, Reason: "undecided", Retryable: true,
			Retry: string(allocation.RetrySoon), Outcome: undecided.Outcome, AdmissionID: undecided.Ref.ID,
		}
		return p, undecided.Wait
	case err != nil:
		return problem{Type: "about:blank", Title: "The limiter was asked wrongly", Status: http.StatusInternalServerError, Reason: "invalid_request", Outcome: "none"}, 0
	}
	p := problem{
		Type: firstOf(d.Type, "about:blank"), Title: firstOf(d.Title, "Refused"), Status: d.Status, Reason: string(d.Reason),
		Retryable: d.Retryable, Retry: string(d.Retry), Outcome: firstOf(d.Outcome, "none"), AdmissionID: d.AdmissionID,
	}
	if p.Status < 400 || p.Status > 599 {
		p.Status = http.StatusServiceUnavailable
	}
	return p, d.RetryAfter
}

// writeProblem is the one place that refuses over HTTP.
func writeProblem(w http.ResponseWriter, p problem, wait time.Duration) {
	h := w.Header()
	if wait > 0 {
		p.RetryAfter = int64((wait + time.Second - 1) / time.Second)
		h.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	body, _ := json.Marshal(p) // strings and numbers
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}
