package regional

import (
	"maps"
	"net/http"
	"strconv"

	"tranche/allocation"
)

// sharedHeaders are those of answers, by name.
func sharedHeaders() object {
	text := func(description string) object {
		return object{"description": description, "schema": object{"type": "string"}}
	}
	must := func(h object) object { h["required"] = true; return h }
	out := object{
		"Cache-Control":          must(text("no-store, always")),
		"X-Content-Type-Options": must(text("nosniff, always")),
		"Retry-After":            object{"description": "Whole seconds, where coming back may help.", "schema": object{"type": "string", "pattern": "^[1-9][0-9]*$"}},
		"RateLimit":              text("What this region may still spend of each budget, and when it resets (draft-ietf-httpapi-ratelimit-headers)."),
		"RateLimit-Policy":       text("Each budget's limit and window."),
		shadowHeader:             text("Of what was let through in shadow: would= and the reason for which it would have been refused."),
		ReceiptHeader:            text("Of a refusal: what was refused, by what, why, when and where, signed. The coordinator explains it: POST /v1/explain."),
		"WWW-Authenticate":       text("Where a token is missing or not known."),
		"Allow":                  must(text("The methods of the path.")),
	}
	maps.Copy(out, gatewayHeaders())
	return out
}

// headersOf are those that an answer of a status may have.
func headersOf(status int) []string {
	names := []string{"Cache-Control", "X-Content-Type-Options"}
	if status >= http.StatusBadRequest && status != http.StatusMethodNotAllowed {
		names = append(names, ReceiptHeader)
	}
	switch status {
	case http.StatusUnauthorized:
		return append(names, "WWW-Authenticate", "RateLimit", "RateLimit-Policy")
	case http.StatusMethodNotAllowed:
		return append(names, "Allow")
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return names
	}
	if status == http.StatusOK {
		names = append(names, shadowHeader)
	}
	return append(names, "Retry-After", "RateLimit", "RateLimit-Policy")
}

func query1(name, description string) object {
	return object{"name": name, "in": "query", "description": description, "schema": object{"type": "string"}}
}

func path1(name string) object {
	return object{"name": name, "in": "path", "required": true, "schema": idSchema()}
}

func header1(name string) object {
	return object{"name": name, "in": "header", "description": "The admission id, quoted or not.", "schema": object{"type": "string"}}
}

func idSchema() object {
	return object{"type": "string", "minLength": 1, "description": "1 to " + strconv.Itoa(MaxAdmissionID) + " printable ASCII characters, quoted or not"}
}

// body is the schema of a call's body: the fields that it takes, and no others.
func (s *schemas) body(fields field, required []string) object {
	properties := object{}
	for i, name := range fieldNames {
		if f := field(1) << i; f&fields != 0 {
			properties[name] = s.requestField(f)
		}
	}
	out := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (s *schemas) requestField(f field) object {
	switch f {
	case fieldLabels:
		return object{
			"type": "object", "maxProperties": allocation.MaxLabels, "additionalProperties": object{"type": "string", "minLength": 1, "maxLength": allocation.MaxLabelValue},
			"description": "They choose the budgets; tenant also scopes the id.",
		}
	case fieldCosts:
		return object{
			"type": "object", "maxProperties": maxCosts, "additionalProperties": object{"type": "integer", "minimum": 0, "maximum": allocation.MaxUnits},
			"description": "By unit. requests is 1 unless given; any other unit that a budget counts must be given.",
		}
	case fieldOp:
		return oneOf(allocation.Spend, allocation.Reserve, allocation.Check)
	case fieldDeadline:
		return object{
			"type": "integer", "minimum": MinDeadline.Milliseconds(), "maximum": MaxDeadline.Milliseconds(), "default": DefaultDeadline.Milliseconds(),
			"description": "From the arrival of the call. No commit is begun that cannot finish in time.",
		}
	case fieldLifetime:
		return object{"type": "string", "description": "Of a reservation, like 90s or 10m; at most 720h."}
	case fieldID:
		return idSchema()
	case fieldTenant:
		return object{"type": "string", "description": "The tenant label that the admission was made with."}
	case fieldPriority:
		out := oneOf(allocation.Priorities()...)
		out["description"] = "What is refused first as a budget is used up. interactive unless given; essential only if the token may say so."
		return out
	case fieldFingerprint:
		return object{"type": "string", "pattern": "^fp_[0-9a-f]{20}$", "description": "Of an external key that the gateway saw: for blocks, and as evidence."}
	case fieldLegacy:
		return oneOf(legacyAllow, legacyDeny)
	case fieldItems:
		return object{"type": "array", "minItems": 1, "maxItems": MaxBatchRequests, "items": s.body(itemFields, nil)}
	}
	panic("no schema for a field of a call: " + fieldsOf(f))
}
