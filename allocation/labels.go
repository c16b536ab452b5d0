package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of labels and of what is made from them.
const (
	MaxLabels        = 32
	MaxLabelName     = 64
	MaxLabelValue    = 255 // bytes
	MaxInstanceBytes = 512 // of the escaped values of a template's labels
)

// Labels are what a request says of itself, like tenant and route. At most
// MaxLabels; names of 1 to 64 of a-z 0-9 _ . -, beginning with a letter; values
// of 1 to 255 bytes of printable UTF-8.
type Labels map[string]string

// Validate returns Problems that name the label, or nil.
func (l Labels) Validate() error { return l.problems("labels").err() }

func (l Labels) problems(path string) Problems {
	var found Problems
	if len(l) > MaxLabels {
		found.add(path, fmt.Sprintf("are %d", len(l)), fmt.Sprintf("send at most %d", MaxLabels))
		return found
	}
	if l.good() { // nearly always: what is wrong is told in order, and only then are the names sorted
		return found
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if !validLabelName(name) {
			found.add(path, fmt.Sprintf("name %.70q is not valid", name),
				"use 1 to 64 of a-z 0-9 _ . - beginning with a letter")
			continue
		}
		if problem := valueProblem(l[name]); problem != "" {
			found.add(path+"."+name, problem, "use 1 to 255 bytes of printable UTF-8")
		}
	}
	return found
}

func (l Labels) good() bool {
	for name, value := range l {
		if !validLabelName(name) || valueProblem(value) != "" {
			return false
		}
	}
	return true
}

func validLabelName(name string) bool {
	if name == "" || len(name) > MaxLabelName || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return true
}

// valueProblem returns what is wrong with a label's value, or "". The
// replacement character is refused since JSON readers put it in place of bytes
// that they lost: two different values would become one.
func valueProblem(value string) string {
	switch {
	case value == "":
		return "is empty"
	case len(value) > MaxLabelValue:
		return fmt.Sprintf("has %d bytes", len(value))
	case !utf8.ValidString(value):
		return "is not UTF-8"
	}
	for _, r := range value {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Sprintf("holds %U, which is not printable", r)
		}
	}
	return ""
}

// Canonical returns an encoding that is the same for equal labels and differs
// for others: sorted by name, each part with its length before it. It goes into
// the hash by which a repeated admission id is compared; it never changes.
func (l Labels) Canonical() string {
	return string(appendCanonical(nil, l))
}

func appendCanonical(out []byte, l Labels) []byte {
	var few [16]string // on the stack, as nearly always
	names := slices.AppendSeq(few[:0], maps.Keys(l))
	slices.Sort(names)
	for _, name := range names {
		for _, part := range [2]string{name, l[name]} {
			out = append(append(strconv.AppendInt(out, int64(len(part)), 10), ':'), part...)
		}
	}
	return out
}

// Matches says whether the budget applies to a request with these labels, and
// to which instance if it is a template. missing names the label that makes it
// impossible to say which: one that is absent (unless MissingLabel is
// "unchecked") or whose value makes the instance longer than MaxInstanceBytes
// (always, or a caller could step round the budget). Such a request is refused.
func (b Budget) Matches(l Labels) (instance string, applies bool, missing string) {
	return b.matches(b.TemplateLabels(), l)
}

func (b *Budget) matches(template []string, l Labels) (instance string, applies bool, missing string) {
	for name, want := range b.Match {
		if l[name] != want {
			return "", false, ""
		}
	}
	if len(template) == 0 {
		return "", true, ""
	}
	var out strings.Builder
	for i, name := range template {
		value := l[name]
		if value == "" {
			if b.MissingLabel == MissingLabelUnchecked {
				return "", false, ""
			}
			return "", false, name
		}
		if i > 0 {
			out.WriteByte('/')
		}
		escapeValue(&out, value)
	}
	if out.Len() > MaxInstanceBytes {
		return "", false, longestValue(template, l)
	}
	return out.String(), true, ""
}

// longestValue returns the label with the longest value, the one to shorten.
func longestValue(template []string, l Labels) string {
	return slices.MaxFunc(template, func(a, b string) int { return len(l[a]) - len(l[b]) })
}

// EscapeInstance returns the name of a template's instance: the values in the
// order of TemplateLabels, percent-escaped but for letters, digits, - . _ ~, and
// joined by slashes. Different values have different names. It is not bounded.
func EscapeInstance(values []string) string {
	var b strings.Builder
	for i, value := range values {
		if i > 0 {
			b.WriteByte('/')
		}
		escapeValue(&b, value)
	}
	return b.String()
}

func escapeValue(b *strings.Builder, value string) {
	const hex = "0123456789ABCDEF"
	// A part that is only dots would be cleaned out of a URL's path.
	dots := value == "." || value == ".."
	for i := range len(value) {
		c := value[i]
		if unreserved(c) && !dots {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// ParseInstance returns the values that EscapeInstance was given (at least one).
// It fails on what EscapeInstance does not write.
func ParseInstance(instance string) ([]string, error) {
	parts := strings.Split(instance, "/")
	values := make([]string, len(parts))
	for i, part := range parts {
		value, ok := unescape(part)
		if !ok {
			return nil, fmt.Errorf("instance %.100q is not escaped as its template's", instance)
		}
		values[i] = value
	}
	if EscapeInstance(values) != instance {
		return nil, fmt.Errorf("instance %.100q is not escaped as its template's", instance)
	}
	return values, nil
}

func unescape(part string) (string, bool) {
	if !strings.ContainsRune(part, '%') {
		return part, true
	}
	out := make([]byte, 0, len(part))
	for i := 0; i < len(part); i++ {
		if part[i] != '%' {
			out = append(out, part[i])
			continue
		}
		if i+2 >= len(part) {
			return "", false
		}
		c, err := strconv.ParseUint(part[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		out = append(out, byte(c))
		i += 2
	}
	return string(out), true
}
