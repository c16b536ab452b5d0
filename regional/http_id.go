package regional

import (
	"net/http"

	"github.com/dunglas/httpsfv"

	"tranche/allocation"
)

// MaxAdmissionID is the most bytes of an admission id.
const MaxAdmissionID = 255

// The headers that an admission id comes in. The second is an alias, for clients that know only it.
const (
	admissionIDHeader   = "Admission-Id"
	idempotencyIDHeader = "Idempotency-Key"
)

// parseAdmissionID reads an id as callers write it: 1 to 255 printable ASCII bytes, in the quotes of a structured field
// or without. `"a"` and `a` are the same id, so that a proxy that adds or takes the quotes makes no second admission.
func parseAdmissionID(text string) (id, problem string) {
	id = text
	if text != "" && text[0] == '"' {
		item, err := httpsfv.UnmarshalItem([]string{text})
		s, isString := item.Value.(string)
		if err != nil || !isString {
			return "", "begins with a quote, but is no quoted string"
		}
		id = s
	}
	switch {
	case id == "":
		return "", "is empty"
	case len(id) > MaxAdmissionID:
		return "", "has more than 255 bytes"
	case id[0] == ' ' || id[len(id)-1] == ' ':
		return "", "begins or ends with a space" // which another hop may strip
	}
	for i := range len(id) {
		if id[i] < 0x20 || id[i] > 0x7e {
			return "", "holds a byte that is not printable ASCII"
		}
	}
	return id, ""
}

const fixAdmissionID = "give 1 to 255 printable ASCII characters, such as a UUID"

// admissionID is the one id that a request names, in its headers, its field, or both; empty if it names none.
func admissionID(h http.Header, field string) (string, *allocation.FieldError) {
	id := field
	for _, name := range []string{admissionIDHeader, idempotencyIDHeader} {
		for _, text := range h[name] {
			other, problem := parseAdmissionID(text)
			if problem != "" {
				return "", &allocation.FieldError{Field: name, Problem: problem, Fix: fixAdmissionID}
			}
			if id != "" && other != id {
				return "", &allocation.FieldError{
					Field: name, Problem: "names another admission id than the rest of the request",
					Fix: "send one id, in " + admissionIDHeader,
				}
			}
			id = other
		}
	}
	return id, nil
}
