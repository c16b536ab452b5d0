package regional

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"tranche/allocation"
)

// Bounds of what is read from a body.
const (
	maxJSONDepth = 8  // of values that are passed over
	maxProblems  = 16 // that one answer lists
	maxShown     = 64 // bytes of a caller's text in a problem
)

// jsonReader reads strict JSON from a body, once, from its first byte to its last. What is wrong with a value is noted,
// with its path, and reading goes on; what is no JSON ends it. encoding/json would take the last of two equal keys, any
// case of a name, null for anything, and would not say where a number stood.
type jsonReader struct {
	data     []byte
	at       int
	path     []step
	problems allocation.Problems
	broken   bool
}

// step is one part of a path: a key, or an index.
type step struct {
	key   string
	index int // -1: a key
}

// newJSONReader begins to read; the data must not change until it ends.
func newJSONReader(data []byte) *jsonReader {
	r := &jsonReader{data: data, path: make([]step, 0, 4)}
	if !utf8.Valid(data) {
		r.fail("is not UTF-8", "send UTF-8")
	}
	return r
}

// end expects nothing more, and returns what was wrong.
func (r *jsonReader) end() allocation.Problems {
	r.space()
	if !r.broken && r.at < len(r.data) {
		r.fail(fmt.Sprintf("goes on behind its end, at byte %d", r.at), "send one JSON object")
	}
	return r.problems
}

// wrong notes what is wrong with the value at the path.
func (r *jsonReader) wrong(problem, fix string) {
	if r.broken || len(r.problems) >= maxProblems {
		return
	}
	r.problems = append(r.problems, allocation.FieldError{Field: r.place(), Problem: problem, Fix: fix})
}

// fail notes that the body is no JSON: it is not read further.
func (r *jsonReader) fail(problem, fix string) {
	if r.broken {
		return
	}
	r.problems = append(r.problems, allocation.FieldError{Field: "body", Problem: problem, Fix: fix})
	r.broken = true
}

func (r *jsonReader) unexpected() {
	if r.at >= len(r.data) {
		r.fail("ends too early", "send one whole JSON object")
		return
	}
	r.fail(fmt.Sprintf("is not JSON at byte %d", r.at), "send one JSON object")
}

// place is the path in words, like items[3].costs.tokens.
func (r *jsonReader) place() string {
	if len(r.path) == 0 {
		return "body"
	}
	var b strings.Builder
	for _, s := range r.path {
		if s.index >= 0 {
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(shown(s.key))
	}
	return b.String()
}

// shown cuts a caller's text to a length that can be shown.
func shown(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "…"
}

func (r *jsonReader) space() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// next is the first byte of what follows, 0 at the end.
func (r *jsonReader) next() byte {
	r.space()
	if r.broken || r.at >= len(r.data) {
		return 0
	}
	return r.data[r.at]
}

func (r *jsonReader) take(c byte) bool {
	if r.next() != c || c == 0 {
		return false
	}
	r.at++
	return true
}

// members calls `member` with each key of an object; it reads the value, whose path stands for that long.
func (r *jsonReader) members(member func(key string)) {
	if r.next() != '{' {
		r.otherKind("an object")
		return
	}
	r.at++
	for first := true; !r.broken; first = false {
		if r.take('}') {
			return
		}
		if !first && !r.take(',') || r.next() != '"' {
			r.unexpected()
			return
		}
		key := r.quoted()
		if !r.take(':') {
			r.unexpected()
			return
		}
		r.path = append(r.path, step{key, -1})
		member(key)
		r.path = r.path[:len(r.path)-1]
	}
}

// elements calls `element` for each element of a list, at most `most` times; the others are passed over and counted.
func (r *jsonReader) elements(most int, element func()) (n int) {
	if r.next() != '[' {
		r.otherKind("a list")
		return 0
	}
	r.at++
	for ; !r.broken; n++ {
		if r.take(']') {
			return n
		}
		if n > 0 && !r.take(',') {
			r.unexpected()
			return n
		}
		r.path = append(r.path, step{"", n})
		if n < most {
			element()
		} else {
			r.pass(maxJSONDepth)
		}
		r.path = r.path[:len(r.path)-1]
	}
	return n
}

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
				return string(r.data[start+1 : r.at-1])
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
