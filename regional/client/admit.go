package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// Admit spends the costs of one request, or tells why not. An error says that nobody decided (*UndecidedError) or that the
// call is wrong (*CallError); the request is then not admitted, unless Options.FailOpen let it through.
func (c *Client) Admit(ctx context.Context, r Request) (Decision, error) {
	return c.admit(ctx, "spend", r)
}

// Reserve holds an estimate of the costs. Settle tells the true ones, Release gives it back; a reservation that nobody
// speaks of lapses as its budgets say.
func (c *Client) Reserve(ctx context.Context, r Request) (Decision, error) {
	return c.admit(ctx, "reserve", r)
}

// Check tells what Admit would say now. It charges nothing.
func (c *Client) Check(ctx context.Context, r Request) (Decision, error) {
	return c.admit(ctx, "check", r)
}

// admit asks, and asks again while a refusal is waited for, always under the same id.
func (c *Client) admit(ctx context.Context, op string, r Request) (Decision, error) {
	if r.ID == "" && op != "check" {
		r.ID = NewID()
	}
	waited := time.Now().Add(r.Wait)
	for {
		d, err := c.speak(ctx, "/v1/admit", refOf(r), admitBody(op, r))
		var undecided *UndecidedError
		if errors.As(err, &undecided) && c.failsOpen(ctx) {
			return c.letThrough(op, undecided), nil
		}
		if err != nil || d.Admitted() || !d.Retryable {
			return d, err
		}
		wait := c.backoff(0, max(d.RetryAfter, time.Second))
		if d.Retry == "elsewhere" || d.Retry == "with_new_id" || time.Until(waited) < wait || !fits(ctx, wait) {
			return d, nil
		}
		if c.sleep(ctx, wait) != nil {
			return d, nil
		}
	}
}

func refOf(r Request) Ref { return Ref{ID: r.ID, Tenant: r.Labels["tenant"]} }

func admitBody(op string, r Request) map[string]any {
	body := map[string]any{"op": op, "labels": orEmpty(r.Labels)}
	if len(r.Costs) > 0 {
		body["costs"] = r.Costs
	}
	if r.Lifetime > 0 {
		body["lifetime"] = wholeSeconds(r.Lifetime)
	}
	if r.Priority != "" {
		body["priority"] = string(r.Priority)
	}
	if r.Legacy != "" {
		body["legacy"] = r.Legacy
	}
	return body
}

func orEmpty(labels map[string]string) map[string]string {
	if labels == nil {
		return map[string]string{}
	}
	return labels
}

// wholeSeconds writes a duration as the node reads it; a part of a second is rounded up.
func wholeSeconds(d time.Duration) string {
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}

// failsOpen says whether an undecided request may go on. One whose caller is gone goes nowhere.
func (c *Client) failsOpen(ctx context.Context) bool {
	return c.options.FailOpen != "" && !errors.Is(ctx.Err(), context.Canceled)
}

// letThrough is the decision for a request that fails open.
func (c *Client) letThrough(op string, e *UndecidedError) Decision {
	c.opened.Add(1)
	c.log.Error("tranche: let a request through on which nothing was decided", "because", c.options.FailOpen,
		"admission_id", e.Ref.ID, "tenant", e.Ref.Tenant, "op", op, "cause", e.Error())
	return Decision{AdmissionID: e.Ref.ID, Tenant: e.Ref.Tenant, Op: op, Reason: e.Reason, Outcome: e.Outcome, FailedOpen: true}
}

// Settle tells the true costs of a reservation: each unit that was reserved, but for requests. It may be repeated with the
// same costs. Anything but success is an error; the reservation then lapses as its budgets say.
func (c *Client) Settle(ctx context.Context, ref Ref, costs map[string]int64) (Decision, error) {
	body := map[string]any{"costs": maps.Clone(costs)}
	if costs == nil {
		body["costs"] = map[string]int64{}
	}
	return c.must(c.speak(ctx, "/v1/settle", ref, withTenant(body, ref)))
}

// Release gives back what a reservation holds. It may be repeated, and sent without knowing whether the reservation was
// made: one that comes later is then refused.
func (c *Client) Release(ctx context.Context, ref Ref) (Decision, error) {
	return c.must(c.speak(ctx, "/v1/release", ref, withTenant(map[string]any{}, ref)))
}

// Extend asks for more time from now, for more units (the new totals), or both; zero and nil ask for nothing. A refusal
// leaves the reservation as it was.
func (c *Client) Extend(ctx context.Context, ref Ref, lifetime time.Duration, costs map[string]int64) (Decision, error) {
	body := map[string]any{}
	if lifetime > 0 {
		body["lifetime"] = wholeSeconds(lifetime)
	}
	if len(costs) > 0 {
		body["costs"] = costs
	}
	return c.speak(ctx, "/v1/extend", ref, withTenant(body, ref))
}

// Find tells where an admission stands: its first answer, with its present state.
func (c *Client) Find(ctx context.Context, ref Ref) (Decision, error) {
	if ref.ID == "" {
		return Decision{}, errNoID
	}
	k := call{method: http.MethodGet, path: "/v1/decisions/" + url.PathEscape(quoted(ref.ID))}
	if ref.Tenant != "" {
		k.path += "?" + url.Values{"tenant": {ref.Tenant}}.Encode()
	}
	return c.ask(ctx, k, ref)
}

var errNoID = errors.New("tranche: Ref.ID is empty; give the id that the admission was made with")

func withTenant(body map[string]any, ref Ref) map[string]any {
	if ref.Tenant != "" {
		body["tenant"] = ref.Tenant
	}
	return body
}

// must turns a refusal into an error, for calls after which nobody asks whether they were admitted.
func (c *Client) must(d Decision, err error) (Decision, error) {
	if err == nil && !d.done() {
		return d, &RefusedError{Decision: d}
	}
	return d, err
}

// speak posts a call about one admission.
func (c *Client) speak(ctx context.Context, path string, ref Ref, body map[string]any) (Decision, error) {
	if ref.ID == "" && body["op"] != "check" {
		return Decision{}, errNoID
	}
	return c.ask(ctx, call{method: http.MethodPost, path: path, id: ref.ID, body: body, timed: true}, ref)
}

// ask tries a call until it is decided.
func (c *Client) ask(ctx context.Context, k call, ref Ref) (Decision, error) {
	var d Decision
	err := c.try(ctx, k, ref, func(a answer) verdict {
		v := c.judge(a, ref)
		d = v.decision
		return v
	})
	return d, err
}

// judge reads one answer.
func (c *Client) judge(a answer, ref Ref) verdict {
	d, err := parse(a, ref)
	if err != nil { // of a proxy, a captive portal, a crash: whether the node was reached is not known
		return verdict{wait: retryAfter(a.header), unknown: true, err: err}
	}
	if d.said == "" && !d.undecided() { // a fault: the call itself is wrong
		return verdict{final: true, err: &CallError{Status: d.Status, Reason: string(d.Reason), Title: d.Title, Detail: d.Detail}}
	}
	if err := c.sameRegion(d.Region); err != nil {
		return verdict{final: true, decision: d, err: err}
	}
	if d.undecided() {
		return verdict{wait: d.RetryAfter, unknown: d.Outcome != "none", decision: d}
	}
	return verdict{final: true, decision: d}
}

// sameRegion finds a second region among the nodes: an id that was lost in one would be charged again in the other.
func (c *Client) sameRegion(region string) error {
	if region == "" {
		return nil
	}
	if first := c.region.Load(); first != nil && *first != region || first == nil && !c.region.CompareAndSwap(nil, &region) && *c.region.Load() != region {
		return &CallError{
			Status: http.StatusMisdirectedRequest, Reason: "another_region",
			Detail: fmt.Sprintf("Options.Nodes has nodes of regions %s and %s; give one client the nodes of one region", *c.region.Load(), region),
		}
	}
	return nil
}
