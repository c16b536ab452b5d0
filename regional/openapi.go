package regional

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tranche/allocation"
)

const openAPIPath = "/openapi.json"

// serveOpenAPI answers GET /openapi.json: what the API takes and answers, for those who generate callers from it.
func (a *api) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPI())))
	_, _ = w.Write(openAPI())
}

// openAPI is the document. The schemas of answers come from the types that are written, reasons and statuses from
// allocation's table; what is written down here are the paths.
var openAPI = sync.OnceValue(func() []byte {
	s := &schemas{named: object{}}
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Tranche node", "version": "1",
			"description": "Whether a request may be served, by the region's share of each budget that applies to it. Read a reason or a word that you do not know as a refusal.",
		},
		"security": []any{object{"token": []any{}}},
		"paths":    s.paths(),
		"components": object{
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "A gateway's token. A node on loopback may have none, and then asks for none."}},
			"schemas":         s.named, "headers": sharedHeaders(),
		},
	}
	text, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		panic("the OpenAPI document is no JSON: " + err.Error())
	}
	return append(text, '\n')
})

// operation is one method of one path.
type operation struct {
	path, method, summary string
	request               field          // of the body; 0: none
	required              []string       // of its fields
	parameters            []any          // besides
	answers               map[int]object // by status: content type to schema
	body                  object         // of a request that has no fields of the others
	open                  bool           // needs no token
	document              reflect.Type   // of the body, instead of request; nil: none
}

func (s *schemas) paths() object {
	out := object{"/v1/authorize": s.gatewayPath()}
	for _, o := range s.operations() {
		path, ok := out[o.path].(object)
		if !ok {
			path = object{}
			out[o.path] = path
		}
		path[o.method] = s.operation(o)
	}
	return out
}

func (s *schemas) operations() []operation {
	s.refine()
	decided := s.decisions()
	tenant := query1("tenant", "the label that the admission was made with")
	pages := []any{query1("after", "what the page before said in next"), query1("limit", "how many")}
	json200 := func(t reflect.Type) map[int]object { return map[int]object{200: {"application/json": s.of(t)}} }
	text200 := map[int]object{200: {"text/plain": object{"type": "string"}}}
	ready := json200(reflect.TypeFor[readyBody]())
	ready[503] = ready[200]
	idHeaders := []any{header1(admissionIDHeader), header1(idempotencyIDHeader)}
	return append(refusalOperations(json200), []operation{
		{path: "/v1/admit", method: "post", summary: "Ask for one admission", request: admitFields, parameters: idHeaders, answers: decided},
		{path: batchPath, method: "post", summary: "Ask for many admissions, each by itself", request: fieldItems | fieldDeadline, required: []string{"items"}, answers: json200(reflect.TypeFor[batchBody]())},
		{path: "/v1/settle", method: "post", summary: "Tell the true costs of a reservation", request: speakFields[allocation.Settle], parameters: idHeaders, answers: decided},
		{path: "/v1/release", method: "post", summary: "Give back what a reservation holds", request: speakFields[allocation.Release], parameters: idHeaders, answers: decided},
		{path: "/v1/extend", method: "post", summary: "Give a reservation more time or units", request: speakFields[allocation.Extend], parameters: idHeaders, answers: decided},
		{path: "/v1/match", method: "post", summary: "Which budgets labels hit, without a charge", request: fieldLabels | fieldDeadline, answers: json200(reflect.TypeFor[matchBody]())},
		{path: decisionsPath + "{admission_id}", method: "get", summary: "Where an admission stands", parameters: []any{path1("admission_id"), tenant}, answers: decided},
		{path: outcomePath, method: "post", summary: "Tell what the upstream did with an admitted request", parameters: []any{path1("admission_id")}, body: outcomeSchema(), answers: s.outcomes(decided)},
		{path: "/v1/reservations", method: "get", summary: "Open reservations, a page at a time", parameters: pages, answers: json200(reflect.TypeFor[reservationsBody]())},
		{path: "/v1/account", method: "get", summary: "All that the owner holds, for verify", parameters: pages, answers: json200(reflect.TypeFor[accountBody]())},
		{path: chargedPath, method: "get", summary: "What a caller or a tenant was charged since an instant", parameters: chargedParameters(), answers: json200(reflect.TypeFor[ChargedAnswer]())},
		{path: blocksPath, method: "get", summary: "The blocks that this region knows", answers: json200(reflect.TypeFor[blocksBody]())},
		{path: blocksPath, method: "post", summary: "Block in this region, as an operator", document: reflect.TypeFor[blockRequest](), answers: json200(reflect.TypeFor[blockBody]())},
		{path: liftPath, method: "post", summary: "Lift a block that was made in this region, as an operator", document: reflect.TypeFor[blockRequest](), answers: json200(reflect.TypeFor[blockBody]())},
		{path: "/v1/shadow", method: "get", summary: "What shadow saw: what enforcement would have refused", answers: json200(reflect.TypeFor[ShadowReport]())},
		{path: "/v1/status", method: "get", summary: "The node and its region", answers: json200(reflect.TypeFor[NodeStatus]())},
		{path: "/healthz", method: "get", summary: "The process runs", answers: text200, open: true},
		{path: "/readyz", method: "get", summary: "Whether admissions commit", answers: ready, open: true},
		{path: "/metrics", method: "get", summary: "For Prometheus", answers: text200},
		{path: openAPIPath, method: "get", summary: "This document", answers: map[int]object{200: {"application/json": object{"type": "object"}}}, open: true},
	}...)
}

// refine says what the Go types of bodies do not.
func (s *schemas) refine() {
	for _, t := range []reflect.Type{reflect.TypeFor[answerBody](), reflect.TypeFor[faultBody](), reflect.TypeFor[matchBody]()} {
		s.of(t)
	}
	decidedTypes, faultTypes, faults := []string{}, []string{}, []any{}
	for _, a := range allocation.Answers() {
		decidedTypes = append(decidedTypes, problemType(a.Reason))
		faults = append(faults, string(a.Reason))
	}
	for kind := range maps.Keys(faultAnswers) {
		faultTypes, faults = append(faultTypes, typeOurs+string(kind)), append(faults, string(kind))
	}
	slices.SortFunc(faults, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	s.narrow("Answer", object{
		"type": oneOf(unique(decidedTypes)...), "decision": oneOf(saidAdmitted, saidRefused, saidReleased), "reason": reasonSchema(),
		"op":      oneOf(allocation.Spend, allocation.Reserve, allocation.Check, allocation.Settle, allocation.Release, allocation.Extend),
		"outcome": oneOf(outcomeNone, outcomeUnknown), "retry": retrySchema(),
		"decided_at": object{"type": "string", "format": "date-time"}, "expires_at": object{"type": "string", "format": "date-time"},
	})
	s.narrow("Fault", object{
		"type": oneOf(unique(append(decidedTypes, faultTypes...))...), "reason": object{"type": "string", "enum": faults},
		"outcome": oneOf(outcomeNone, outcomeUnknown), "retry": retrySchema(),
	})
	s.narrow("Shadow", object{"would": object{"type": "string", "enum": faults}, "outcome": oneOf(outcomeNone, outcomeUnknown)})
	s.narrow("Budget", object{"enforcement": oneOf(allocation.Shadow, allocation.Meter), "reason": reasonSchema()})
	s.narrow("Matched", object{"reason": reasonSchema()})
	s.narrow("Unmatched", object{"reason": reasonSchema()})
}

func retrySchema() object {
	return oneOf(allocation.RetryNever, allocation.RetrySoon, allocation.RetryNextPeriod, allocation.RetryElsewhere, allocation.RetryNewID, allocation.RetrySameID)
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// decisions are the answers to a call about one admission: an admission, or a refusal of any reason.
func (s *schemas) decisions() map[int]object {
	out := map[int]object{200: {"application/json": ref("Answer")}}
	for _, a := range allocation.Answers() {
		if a.Reason != allocation.Allow {
			out[a.Status] = object{problemJSON: ref("Answer")}
		}
	}
	out[http.StatusPaymentRequired] = object{problemJSON: ref("Answer")} // a budget's on_exhausted
	return out
}

// operationID is made from the path; a second method of it has its name in front.
func operationID(o operation) string {
	id := strings.Trim(strings.NewReplacer("/v1", "", "/", "_", "{", "", "}", "", ".", "_").Replace(o.path), "_")
	if (o.path == blocksPath || o.path == keepPath) && o.method == "post" {
		return "make_" + id
	}
	return id
}

// operation writes one down, with the faults that may hit every call.
func (s *schemas) operation(o operation) object {
	out := object{"summary": o.summary, "operationId": operationID(o)}
	if len(o.parameters) > 0 {
		out["parameters"] = o.parameters
	}
	if o.open {
		out["security"] = []any{}
	}
	faults := []int{http.StatusMethodNotAllowed}
	if !o.open { // a caller's key may not call every path
		faults = append(faults, http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable)
	}
	if len(o.parameters) > 0 || o.request != 0 {
		faults = append(faults, http.StatusBadRequest)
	}
	if o.request != 0 {
		out["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.body(o.request, o.required)}}}
		faults = append(faults, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if o.document != nil {
		out["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.of(o.document)}}}
		faults = append(faults, http.StatusBadRequest, http.StatusNotFound, http.StatusUnsupportedMediaType)
	}
	if o.body != nil {
		out["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": o.body}}}
		faults = append(faults, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if o.path == decisionsPath+"{admission_id}" || o.path == outcomePath {
		faults = append(faults, http.StatusNotFound)
	}
	responses := object{}
	for status, content := range o.answers {
		content = maps.Clone(content)
		if problem := content[problemJSON]; problem != nil && slices.Contains(faults, status) {
			content[problemJSON] = object{"anyOf": []any{problem, ref("Fault")}}
		}
		responses[strconv.Itoa(status)] = response(status, content)
	}
	for _, status := range faults {
		if o.answers[status] == nil {
			responses[strconv.Itoa(status)] = response(status, object{problemJSON: ref("Fault")})
		}
	}
	out["responses"] = responses
	return out
}

func response(status int, content object) object {
	bodies := object{}
	for kind, schema := range content {
		bodies[kind] = object{"schema": schema}
	}
	headers := object{}
	for _, name := range headersOf(status) {
		headers[name] = object{"$ref": "#/components/headers/" + name}
	}
	return object{"description": http.StatusText(status), "content": bodies, "headers": headers}
}
