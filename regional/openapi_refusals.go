package regional

import "reflect"

// refusalOperations are those that tell an operator what was refused.
func refusalOperations(json200 func(reflect.Type) map[int]object) []operation {
	times := []any{query1("from", "not before this instant, like 2026-03-01T09:00:00Z"), query1("until", "before this instant")}
	found := []any{
		query1("decision", "the id that the receipt names"), query1("correlation", "traceparent or X-Request-Id, as the call had it"), query1("admission_id", "of the call"),
		query1("fingerprint", "of the key"), query1("tenant", "of the labels"), query1("reason", "of the refusal"),
		query1("after", "what the page before said in next"), query1("limit", "how many"),
	}
	counted := []any{
		query1("every", "the stretch of time of one count, like 1m or 1h; one sum of all unless given"),
		query1("by", "what to tell apart: some of capability, tenant, priority, reason, with commas between; all unless given"),
		query1("tenant", "of the labels"),
	}
	kept := json200(reflect.TypeFor[keptBody]())
	return []operation{
		{path: refusalsPath, method: "get", summary: "Refusals that are kept in full, the newest first, for an operator", parameters: append(found, times...), answers: json200(reflect.TypeFor[recordsBody]())},
		{path: refusedPath, method: "get", summary: "Refused requests and units over time, for an operator", parameters: append(counted, times...), answers: json200(reflect.TypeFor[refusedBody]())},
		{path: keepPath, method: "get", summary: "The tenants all of whose refusals are kept", answers: kept},
		{path: keepPath, method: "post", summary: "Keep all refusals of a tenant for a while, as an operator", document: reflect.TypeFor[keepRequest](), answers: kept},
	}
}
