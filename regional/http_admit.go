package regional

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"tranche/allocation"
)

// tenantLabel is the label that scopes admission ids.
const tenantLabel = "tenant"

const admitFields = fieldLabels | fieldCosts | fieldOp | fieldDeadline | fieldLifetime | fieldID | fieldLegacy | fieldPriority | fieldFingerprint

// admit answers POST /v1/admit.
func (a *api) admit(w http.ResponseWriter, r *http.Request, caller string) {
	arrived := a.config.Now()
	e := exchanges.Get().(*exchange)
	defer e.done()
	body := &e.body
	wrong := body.from(w, r, admitFields)
	if wrong == nil {
		wrong = crowdedOut(w, body)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	id, problem := admissionID(r.Header, body.id)
	if problem != nil {
		writeFault(w, *invalid(*problem))
		return
	}
	body.id = id
	if refused := a.overreaches(caller, body); refused != nil {
		writeFault(w, *refused)
		return
	}
	e.requests[0] = a.request(body, caller, correlationOf(r.Header))
	decisions := a.decide(r.Context(), e.requests[:], body, arrived)
	if home := a.forwardHome(r.Header, &decisions[0]); home != "" {
		a.forward(w, r, home, &e.requests[0], &decisions[0], arrived.Add(body.deadline))
		return
	}
	a.presentAs(&e.answer, &decisions[0])
	e.answer.write(w)
}

// exchange is what one call for one admission needs while it is answered; nobody keeps any of it.
type exchange struct {
	body     callBody
	requests [1]allocation.Request
	answer   presented
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (e *exchange) done() {
	affordable := e.answer.affordable
	clear(affordable)
	*e = exchange{answer: presented{affordable: affordable}}
	exchanges.Put(e)
}

// batchBody answers a batch: each result is what the item alone would have got, with its status.
type batchBody struct {
	Results []answerBody `json:"results"`
}

// admitBatch answers POST /v1/admit/batch. One item that is wrong refuses the batch, before anything is decided.
func (a *api) admitBatch(w http.ResponseWriter, r *http.Request, caller string) {
	arrived := a.config.Now()
	body, wrong := a.read(w, r, fieldItems|fieldDeadline)
	if wrong == nil {
		wrong = crowdedOut(w, &body)
	}
	if wrong == nil {
		wrong = batchFault(r.Header, &body)
	}
	if wrong == nil {
		wrong = a.overreaches(caller, &body)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	correlation := correlationOf(r.Header)
	requests := make([]allocation.Request, len(body.items))
	for i := range body.items {
		requests[i] = a.request(&body.items[i], caller, correlation)
	}
	decisions := a.decide(r.Context(), requests, &body, arrived)
	answer := batchBody{Results: make([]answerBody, len(decisions))}
	for i := range decisions {
		p := a.present(&decisions[i])
		p.body.Status = p.status
		answer.Results[i] = p.body
	}
	writeJSON(w, http.StatusOK, "application/json", &answer)
}

func batchFault(h http.Header, body *callBody) *fault {
	for _, name := range []string{admissionIDHeader, idempotencyIDHeader} {
		if len(h[name]) > 0 {
			return invalid(allocation.FieldError{Field: name, Problem: "is for one admission", Fix: "give each item its admission_id"})
		}
	}
	if len(body.items) == 0 {
		return invalid(allocation.FieldError{Field: "items", Problem: "is missing or empty", Fix: "send 1 to " + strconv.Itoa(MaxBatchRequests) + " items"})
	}
	return nil
}

// request is one request to the owner. An id that the caller did not send is made here; the owner refuses it unless the
// request's budgets allow that, since a retry would be charged again.
func (a *api) request(b *callBody, caller, correlation string) allocation.Request {
	r := allocation.Request{
		Op: b.op, Labels: b.labels, Costs: b.costs, Lifetime: b.lifetime, Correlation: correlation, Priority: b.priority,
		Key: allocation.IDKey{Credential: caller, Tenant: b.labels[tenantLabel], ID: b.id}, Fingerprint: b.fingerprint,
	}
	if r.Key.ID == "" && r.Op != allocation.Check {
		r.Key.ID, r.Generated = a.newID(), true
	}
	return r
}

// speakFields are what the calls about an admission take.
var speakFields = map[allocation.Op]field{
	allocation.Settle:  fieldCosts | fieldTenant | fieldID | fieldDeadline,
	allocation.Release: fieldTenant | fieldID | fieldDeadline,
	allocation.Extend:  fieldCosts | fieldLifetime | fieldTenant | fieldID | fieldDeadline,
}

// speakOf answers POST /v1/settle, /v1/release and /v1/extend.
func (a *api) speakOf(op allocation.Op) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, caller string) {
		arrived := a.config.Now()
		body, wrong := a.read(w, r, speakFields[op])
		if wrong != nil {
			writeFault(w, *wrong)
			return
		}
		id, problem := admissionID(r.Header, body.id)
		if problem == nil && op == allocation.Extend && body.given&(fieldCosts|fieldLifetime) == 0 {
			problem = &allocation.FieldError{Field: "body", Problem: "says nothing to extend", Fix: "give lifetime, costs (the new totals), or both"}
		}
		if problem != nil {
			writeFault(w, *invalid(*problem))
			return
		}
		if id == "" {
			writeFault(w, reasonFault(allocation.AdmissionIDMissing, "send the Admission-Id header that the admission was made with, or the field admission_id"))
			return
		}
		if refused := a.speaksFor(caller, body.tenant); refused != nil {
			writeFault(w, *refused)
			return
		}
		request := allocation.Request{
			Op: op, Costs: body.costs, Lifetime: body.lifetime, Correlation: correlationOf(r.Header),
			Key: allocation.IDKey{Credential: caller, Tenant: body.tenant, ID: id},
		}
		decisions := a.decide(r.Context(), []allocation.Request{request}, &body, arrived)
		p := a.present(&decisions[0])
		p.write(w)
	}
}

// decide asks the node, and counts what it said. An answer that is short is a broken promise of the node, whose charges
// nobody knows.
func (a *api) decide(ctx context.Context, requests []allocation.Request, body *callBody, arrived time.Time) []allocation.Decision {
	if key := keyOf(ctx); key != (allocation.Presented{}) {
		for i := range requests {
			requests[i].Presented = key
		}
	}
	decisions := a.Decide(ctx, requests, a.patience(arrived, body.deadline))
	for i := len(decisions); i < len(requests); i++ {
		decisions = append(decisions, allocation.Decision{
			Reason: allocation.OutcomeUnknown, Action: allocation.ActionRefused, Op: requests[i].Op, Key: requests[i].Key,
		})
	}
	a.config.Metrics.observeDecision(a.config.Now().Sub(arrived))
	for i := range decisions {
		legacy := body.legacy
		if len(body.items) == len(requests) {
			legacy = body.items[i].legacy
		}
		if i < len(requests) && a.shadowed(&requests[i], &decisions[i]) {
			letThrough(&decisions[i])
		}
		a.config.Metrics.countDecision(&decisions[i])
		if i < len(requests) {
			a.watch.note(&requests[i], &decisions[i], legacy, a.config.Shadow)
		}
	}
	return decisions
}
