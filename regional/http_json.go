package regional

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
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
	r := &jsonReader{}
	r.begin(data)
	return r
}

// readers are for the bodies of calls.
var readers = sync.Pool{New: func() any { return new(jsonReader) }}

// begin reads something new.
func (r *jsonReader) begin(data []byte) {
	*r = jsonReader{data: data, path: r.path[:0]}
	if !utf8.Valid(data) {
		r.fail("is not UTF-8", "send UTF-8")
	}
}

// done gives back a reader of the pool, whose problems are its caller's now.
func (r *jsonReader) done() {
	clear(r.path[:cap(r.path)])
	*r = jsonReader{path: r.path[:0]}
	readers.Put(r)
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
		if s.key == "" {
			b.WriteString(`""`)
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
