package regional

import (
	"net/http"
	"reflect"

	"tranche/allocation"
)

// outcomeSchema is the body of a report on what the upstream did.
func outcomeSchema() object {
	text := func(description string) object { return object{"type": "string", "description": description} }
	return object{
		"type": "object", "additionalProperties": false, "required": []string{"outcome"},
		"properties": object{
			"outcome":    oneOf(allocation.Upstreams()...),
			"tenant":     text("the label that the admission was made with"),
			"capability": text("what the request was for; counted if the routes table or a budget names it"),
		},
	}
}

// outcomes are the answers to such a report: it was noted, or what it is about was not admitted.
func (s *schemas) outcomes(decided map[int]object) map[int]object {
	out := map[int]object{http.StatusOK: {"application/json": s.of(reflect.TypeFor[outcomeBody]())}}
	for _, status := range []int{http.StatusNotFound, http.StatusServiceUnavailable} {
		out[status] = decided[status]
	}
	return out
}
