package regional

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"tranche/allocation"
)

// The words that may stand behind a token.
const (
	scopeEssential = "essential"
	scopeOperator  = "operator"
	anyValue       = "*"
)

// Limits are the labels that a gateway's requests must have, and their values; "*" is any, but there must be one.
type Limits map[string][]string

// parseLimit reads LABEL=VALUE|VALUE.
func (l Limits) parseLimit(word string) error {
	name, values, found := strings.Cut(word, "=")
	if _, twice := l[name]; !found || twice {
		return errors.New("after the token write essential, operator, or LABEL=VALUE|VALUE, each label once, like tenant=acme|globex or tenant=*")
	}
	for value := range strings.SplitSeq(values, "|") {
		if (allocation.Labels{name: value}).Validate() != nil {
			return fmt.Errorf("a limit of %.64q is none that a label can have", name)
		}
		l[name] = append(l[name], value)
	}
	return nil
}

// exceeded says which label of a request is not within the limits, or empty.
func (l Limits) exceeded(labels allocation.Labels) string {
	for _, name := range slices.Sorted(maps.Keys(l)) {
		value, allowed := labels[name], l[name]
		if value == "" || !slices.Contains(allowed, anyValue) && !slices.Contains(allowed, value) {
			return fmt.Sprintf("labels.%s: the credential's limits ask for %s", name, strings.Join(allowed, " or "))
		}
	}
	return ""
}

func (l Limits) equal(o Limits) bool {
	return maps.EqualFunc(l, o, func(a, b []string) bool { return slices.Equal(a, b) })
}

func parseToken(line string) (Token, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return Token{}, errors.New("write a name and a token, with a space between them")
	}
	t := Token{Name: fields[0]}
	if !ValidTokenName(t.Name) {
		return Token{}, errors.New("a name has 1 to 64 of letters, digits . _ -")
	}
	for i, word := range fields[2:] {
		if slices.Contains(fields[2:2+i], word) {
			return Token{}, errors.New("a word stands twice behind the token; write it once")
		}
		switch word {
		case scopeEssential:
			t.Essential = true
		case scopeOperator:
			t.Operator = true
		default:
			if t.Limits == nil {
				t.Limits = Limits{}
			}
			if err := t.Limits.parseLimit(word); err != nil {
				return Token{}, err
			}
		}
	}
	hash, hashed := strings.CutPrefix(fields[1], hashedTokenTag)
	if hashed {
		sum, err := hex.DecodeString(hash)
		if err != nil || len(sum) != sha256.Size {
			return Token{}, errors.New("sha256: is followed by 64 hexadecimal digits")
		}
		copy(t.SHA256[:], sum)
		return t, nil
	}
	if len(fields[1]) < MinTokenBytes || len(fields[1]) > MaxTokenBytes {
		return Token{}, fmt.Errorf("a token has %d to %d bytes; make one with: openssl rand -hex 32", MinTokenBytes, MaxTokenBytes)
	}
	if allocation.LooksLikeKey(fields[1]) {
		return Token{}, errors.New("this is a caller's key; a gateway's token is its own: make one with: openssl rand -hex 32")
	}
	t.SHA256 = sha256.Sum256([]byte(fields[1]))
	return t, nil
}

// may differs: two tokens of one name, as in a rotation, may do the same.
func (t Token) mayOtherThan(o Token) bool {
	return t.Essential != o.Essential || t.Operator != o.Operator || !t.Limits.equal(o.Limits)
}

// LiveTokens are gateways' tokens that change while the API is served: in a rotation the new one is added, then the old one
// is taken away, and no call is refused in between.
type LiveTokens struct{ list atomic.Pointer[[]Token] }

// NewLiveTokens begins with some.
func NewLiveTokens(list []Token) *LiveTokens {
	l := &LiveTokens{}
	l.list.Store(&list)
	return l
}

// Set replaces all of them. It fails if there would be none where there were some: an API without tokens takes everybody.
func (l *LiveTokens) Set(list []Token) error {
	if len(list) == 0 && len(*l.list.Load()) > 0 {
		return errors.New("it holds no token, and an API without tokens would take everybody: the present ones stay")
	}
	l.list.Store(&list)
	return nil
}

func (l *LiveTokens) now() tokens { return *l.list.Load() }

// of finds what a credential may do; false: it is none of a gateway.
func (t tokens) of(name string) (Token, bool) {
	i := slices.IndexFunc(t, func(o Token) bool { return o.Name == name })
	if i < 0 {
		return Token{}, false
	}
	return t[i], true
}
