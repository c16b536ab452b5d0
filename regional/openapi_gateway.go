package regional

import (
	"net/http"
	"reflect"
	"strconv"

	"tranche/allocation"
)

// gatewayHeaders are those of an answer to a gateway's sub-request, besides the others.
func gatewayHeaders() object {
	must := func(schema object, description string) object {
		return object{"required": true, "description": description, "schema": schema}
	}
	return object{
		decisionHeader:    must(oneOf(saidAdmitted, saidRefused, saidReleased, saidUndecided), "undecided goes with 503 and says nothing of the budget"),
		reasonHeader:      must(object{"type": "string"}, "The reason, as in the bodies of the API."),
		statusHeader:      must(object{"type": "string", "pattern": "^[1-5][0-9][0-9]$"}, "What the caller is to be told, also where denied=403 makes it another status."),
		actionHeader:      object{"description": "degraded or deferred; absent otherwise.", "schema": oneOf(allocation.ActionDegraded, allocation.ActionDeferred)},
		routeHeader:       object{"description": "Of degraded: the cheaper route to take.", "schema": object{"type": "string"}},
		regionHeader:      object{"description": "The region that decided.", "schema": object{"type": "string"}},
		admissionIDHeader: object{"description": "The admission id.", "schema": object{"type": "string"}},
	}
}

// gatewayPath is GET and HEAD /v1/authorize.
func (s *schemas) gatewayPath() object {
	problem := s.of(reflect.TypeFor[publicBody]())
	statuses := map[int]bool{
		http.StatusForbidden: true, http.StatusBadRequest: true, http.StatusPaymentRequired: true, http.StatusServiceUnavailable: true,
	}
	for _, a := range allocation.Answers() {
		statuses[a.Status] = true
	}
	responses := object{}
	for status := range statuses {
		content := object{problemJSON: problem}
		if status == http.StatusOK {
			content = object{}
		}
		r := response(status, content)
		headers := r["headers"].(object)
		for name := range gatewayHeaders() {
			headers[name] = object{"$ref": "#/components/headers/" + name}
		}
		for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
			headers[name] = object{"$ref": "#/components/headers/" + name}
		}
		responses[strconv.Itoa(status)] = r
	}
	responses["405"] = response(http.StatusMethodNotAllowed, object{problemJSON: ref("Fault")})
	text := func(in, name, description string) object {
		return object{"in": in, "name": name, "description": description, "schema": object{"type": "string"}}
	}
	parameters := []any{
		header1(admissionIDHeader), header1(idempotencyIDHeader),
		text("header", labelHeaders+"NAME", "The label NAME; any number of such headers."),
		text("header", costHeaders+"UNIT", "The cost in UNIT; any number of such headers."),
		text("header", opHeader, "spend, reserve or check"), text("header", lifetimeHeader, "Of a reservation, like 90s or 10m."),
		text("header", priorityHeader, "essential, interactive or batch; interactive if it is absent. Essential only if the token may say so."),
		text("header", legacyHeader, "allow or deny: what a limiter says that is still in force."),
		text("header", fingerprintHeader, "The fingerprint of an external key that the gateway saw."),
		text("header", tokenHeader, "The gateway's token, where Authorization is the caller's."),
		text("query", deniedStatus, "403: every refusal has this status."), query1(deadlineMillis, "1 to 30000; default 1000"),
		query1(labelsFrom, "label:Header pairs with commas between them: labels from other headers"),
	}
	for _, o := range originals {
		parameters = append(parameters, text("header", o.method, "The label method."), text("header", o.uri, "The label path, without the query."))
	}
	return object{"get": object{
		"summary": "May the request that a gateway holds go on?", "operationId": "authorize", "parameters": parameters, "responses": responses,
	}}
}
