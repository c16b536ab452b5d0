package regional

import (
	"net/http"
	"strconv"

	"tranche/allocation"
)

// Headers that a gateway may pass on to a caller, besides Retry-After, Admission-Id and the RateLimit fields.
const (
	decisionHeader = "Tranche-Decision" // Public.Decision
	reasonHeader   = "Tranche-Reason"
	regionHeader   = "Tranche-Region"
	actionHeader   = "Tranche-Action" // degraded or deferred
	routeHeader    = "Tranche-Route"  // of degraded: the cheaper one to take
	statusHeader   = "Tranche-Status" // what a caller should be told, also where a gateway needs another status
)

// saidUndecided is a refusal of which nobody knows yet, or that says nothing about the budget.
const saidUndecided = "undecided"

// Public is the part of an answer that a gateway may forward to whoever called it: what was decided, when to come back,
// and the ids. The evidence, and what is left of which budget in words, stay with the gateway.
type Public struct {
	Status     int
	Decision   string // admitted, released, refused, or undecided: a 503 of a node that does not know
	RetryAfter int64  // seconds; 0: no advice
	Reason     string
	Outcome    string // of a refusal: whether something may have been charged
	Header     http.Header
	Body       []byte // of a refusal: a problem (RFC 9457), with its content type in Header
}

// publicBody is a problem without evidence.
type publicBody struct {
	Type        string   `json:"type"`
	Title       string   `json:"title"`
	Status      int      `json:"status"`
	Detail      string   `json:"detail,omitempty"` // of a request that is wrong, for whoever set the gateway up
	Reason      string   `json:"reason"`
	Retryable   bool     `json:"retryable"`
	Retry       string   `json:"retry,omitempty"`
	RetryAfter  int64    `json:"retry_after_seconds,omitempty"`
	Outcome     string   `json:"outcome"`
	AdmissionID string   `json:"admission_id,omitempty"`
	Region      string   `json:"region,omitempty"`
	Violated    []string `json:"violated-policies,omitempty"`
	Receipt     string   `json:"receipt,omitempty"`
}

// public tells a decision to a gateway's caller.
func (a *api) public(d *allocation.Decision) Public {
	p := a.present(d)
	out := Public{
		Status: p.status, Decision: p.body.Decision, RetryAfter: p.retryAfter,
		Reason: string(d.Reason), Header: http.Header{"Cache-Control": {"no-store"}},
	}
	setRateLimit(out.Header, d, p.now, p.retryAfter)
	set := func(name, value string) {
		if value != "" {
			out.Header.Set(name, value)
		}
	}
	set(admissionIDHeader, p.body.AdmissionID)
	set(regionHeader, d.Region)
	if d.Action == allocation.ActionDegraded || d.Action == allocation.ActionDeferred {
		set(actionHeader, d.Action)
		set(routeHeader, d.Route)
	}
	if d.Would != "" {
		set(shadowHeader, "would="+string(d.Would))
	}
	if r := p.body.refusalBody; r != nil {
		out.Outcome = r.Outcome
		out.problem(publicBody{
			Type: p.body.Type, Title: p.body.Title, Status: p.status, Reason: p.body.Reason, Retryable: r.Retryable, Retry: r.Retry,
			RetryAfter: r.RetryAfter, Outcome: r.Outcome, AdmissionID: p.body.AdmissionID, Region: d.Region, Violated: r.Violated,
			Receipt: r.Receipt,
		})
	}
	out.say()
	return out
}

// publicFault tells a fault to a gateway's caller.
func publicFault(f fault) Public {
	body := bodyOfFault(f)
	out := Public{
		Status: body.Status, Decision: saidRefused, RetryAfter: body.RetryAfter,
		Reason: body.Reason, Outcome: body.Outcome, Header: http.Header{"Cache-Control": {"no-store"}},
	}
	out.problem(publicBody{
		Type: body.Type, Title: body.Title, Status: body.Status, Detail: body.Detail, Reason: body.Reason, Retryable: body.Retryable,
		Retry: body.Retry, RetryAfter: body.RetryAfter, Outcome: body.Outcome, Receipt: body.Receipt,
	})
	out.say()
	return out
}

func (p *Public) problem(body publicBody) {
	p.Header.Set("Content-Type", problemJSON)
	p.Body = encodeJSON(body)
	setReceipt(p.Header, body.Receipt)
	if p.RetryAfter > 0 {
		p.Header.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
}

// Undecided says whether the node did not decide: nobody may take that for a word about the budget.
func (p *Public) Undecided() bool { return p.Status == http.StatusServiceUnavailable }

func (p *Public) say() {
	if p.Undecided() {
		p.Decision = saidUndecided
	}
	p.Header.Set(decisionHeader, p.Decision)
	p.Header.Set(reasonHeader, p.Reason)
	p.Header.Set(statusHeader, strconv.Itoa(p.Status))
}
