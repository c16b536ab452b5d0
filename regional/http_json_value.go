package regional

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// text reads a string.
func (r *jsonReader) text() (string, bool) {
	if r.next() != '"' {
		r.otherKind("a text in quotes")
		return "", false
	}
	s := r.quoted()
	return s, !r.broken
}

// quoted reads a string whose first quote is next.
func (r *jsonReader) quoted() string {
	start, escaped := r.at, false
	for r.at++; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; {
		case c == '\\':
			escaped = true
			r.at++
		case c < ' ':
			r.unexpected()
			return ""
		case c == '"':
			r.at++
			if !escaped {
				return word(r.data[start+1 : r.at-1])
			}
			var s string
			if json.Unmarshal(r.data[start:r.at], &s) != nil {
				r.at = start
				r.unexpected()
			}
			return s
		}
	}
	r.at = len(r.data)
	r.unexpected()
	return ""
}

// word is the text of some bytes; the words that nearly every body has are not made anew.
func word(text []byte) string {
	switch string(text) {
	case "labels":
		return "labels"
	case "costs":
		return "costs"
	case "op":
		return "op"
	case "deadline_ms":
		return "deadline_ms"
	case "admission_id":
		return "admission_id"
	case "priority":
		return "priority"
	case tenantLabel:
		return tenantLabel
	case "requests":
		return "requests"
	case "tokens":
		return "tokens"
	}
	return string(text)
}

// whole reads a whole number from least to most, written in digits.
func (r *jsonReader) whole(least, most int64) int64 {
	if c := r.next(); c != '-' && (c < '0' || c > '9') {
		r.otherKind("a whole number without quotes")
		return 0
	}
	text, whole := r.number()
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case r.broken:
	case !whole:
		r.wrong("has a fraction or an exponent", "write a whole number in digits")
	case text[0] == '-':
		r.wrong("is negative", fmt.Sprintf("use %d to %d", least, most))
	case err != nil || n > most:
		r.wrong("is over "+strconv.FormatInt(most, 10), fmt.Sprintf("use %d to %d", least, most))
	case n < least:
		r.wrong("is "+strconv.FormatInt(n, 10), fmt.Sprintf("use %d to %d", least, most))
	default:
		return n
	}
	return 0
}

// number passes over a number, and says whether it has neither fraction nor exponent.
func (r *jsonReader) number() (text []byte, whole bool) {
	start := r.at
	digits := func() bool {
		from := r.at
		for r.at < len(r.data) && r.data[r.at] >= '0' && r.data[r.at] <= '9' {
			r.at++
		}
		return r.at > from
	}
	is := func(set string) bool {
		if r.at < len(r.data) && strings.IndexByte(set, r.data[r.at]) >= 0 {
			r.at++
			return true
		}
		return false
	}
	is("-")
	ok, whole := is("0") || digits(), true
	if ok && is(".") {
		ok, whole = digits(), false
	}
	if ok && is("eE") {
		is("+-")
		ok, whole = digits(), false
	}
	if !ok {
		r.unexpected()
	}
	return r.data[start:r.at], whole
}

// otherKind notes a value of another kind than is wanted, and passes over it.
func (r *jsonReader) otherKind(wanted string) {
	kind := "is a number"
	switch r.next() {
	case '{':
		kind = "is an object"
	case '[':
		kind = "is a list"
	case '"':
		kind = "is a text"
	case 't', 'f':
		kind = "is true or false"
	case 'n':
		kind = "is null"
	}
	noted := len(r.problems)
	r.wrong(kind, "give "+wanted)
	r.pass(maxJSONDepth)
	if r.broken && len(r.problems) > noted+1 { // what is no JSON has no kind
		r.problems = append(r.problems[:noted], r.problems[len(r.problems)-1])
	}
}

// pass passes over one value of any kind.
func (r *jsonReader) pass(depth int) {
	switch c := r.next(); {
	case depth == 0:
		r.fail("is nested too deep", "see the documentation of this call")
	case c == '{':
		r.members(func(string) { r.pass(depth - 1) })
	case c == '[':
		r.elements(len(r.data), func() { r.pass(depth - 1) })
	case c == '"':
		r.quoted()
	case c == '-' || c >= '0' && c <= '9':
		r.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if strings.HasPrefix(string(r.data[r.at:min(len(r.data), r.at+len(word))]), word) {
				r.at += len(word)
				return
			}
		}
		r.unexpected()
	}
}
