package regional

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// Bounds of a file of gateway tokens.
const (
	MaxTokens      = 256
	MinTokenBytes  = 16
	MaxTokenBytes  = 512
	maxTokenName   = 64
	hashedTokenTag = "sha256:"
)

// LoopbackCredential scopes the admission ids of an API without tokens.
const LoopbackCredential = "loopback"

// Token lets a gateway call the API. Its Name scopes the gateway's admission ids, so a rotation is a second token of the
// same name, and then the removal of the first.
type Token struct {
	Name   string
	SHA256 [sha256.Size]byte
	// Essential: the gateway may say that a request is essential.
	Essential bool
	Operator  bool   // it may block and lift blocks in this region, and read its refusals
	Limits    Limits // the labels that its requests must have; nil: any
}

// ParseTokens reads a file of tokens, one a line: a name, and the token itself or "sha256:" and its hash in hex. Empty
// lines and those that begin with # are left out. Words behind it say what the credential may do: essential (say that a
// request is), operator (block, read refusals), and LABEL=VALUE|VALUE (the labels that its requests must have). An error names the line,
// never what stands in it.
func ParseTokens(file []byte) ([]Token, error) {
	var list []Token
	number := 0
	for line := range bytes.Lines(file) {
		number++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		t, err := parseToken(text)
		if err != nil {
			return nil, fmt.Errorf("line %d of the token file: %w", number, err)
		}
		for _, other := range list {
			if other.SHA256 == t.SHA256 {
				return nil, fmt.Errorf("line %d of the token file: the same token stands in an earlier line; make another", number)
			}
			if other.Name == t.Name && other.mayOtherThan(t) {
				return nil, fmt.Errorf("line %d of the token file: an earlier line of %s differs in what it may do; write the same words behind both", number, t.Name)
			}
		}
		if list = append(list, t); len(list) > MaxTokens {
			return nil, fmt.Errorf("the token file has more than %d tokens", MaxTokens)
		}
	}
	return list, nil
}

// ValidTokenName says whether a credential may have this name.
func ValidTokenName(name string) bool {
	if name == "" || len(name) > maxTokenName {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// CheckListen says whether the API may listen on an address: beyond loopback it needs tokens, or anybody could spend, and
// TLS, or anybody could read them. The address is a host and a port, as net.Listen takes it; only an IP address or
// "localhost" is known to be loopback.
func CheckListen(addr string, tokens []Token, tlsConfigured bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen on %q: give a host and a port, like 127.0.0.1:8080", addr)
	}
	if host == "localhost" || net.ParseIP(host).IsLoopback() {
		return nil
	}
	if len(tokens) == 0 {
		return fmt.Errorf("listen on %s: beyond loopback the API needs gateway tokens, or anybody could spend; give a token file, or listen on 127.0.0.1", addr)
	}
	if !tlsConfigured {
		return fmt.Errorf("listen on %s: beyond loopback the API needs TLS, or anybody could read its tokens; give a certificate and its key, or listen on 127.0.0.1 behind a proxy that has them", addr)
	}
	return nil
}

// tokens are those that an API takes.
type tokens []Token

// mayBeEssential says whether a credential may say that its requests are essential. Without tokens anybody on this machine may.
func (t tokens) mayBeEssential(name string) bool {
	for i := range t {
		if t[i].Name == name && t[i].Essential {
			return true
		}
	}
	return len(t) == 0
}

// caller is the credential's name of a request, or why it is refused. With fromLoopback a caller on this machine needs no
// token.
func (t tokens) caller(r *http.Request, fromLoopback bool) (string, *fault) {
	given := r.Header["Authorization"]
	if len(given) == 0 && fromLoopback && isLoopback(r.RemoteAddr) {
		return LoopbackCredential, nil
	}
	return t.bearer(given)
}

// bearer is the credential's name for the values of an Authorization header, or why it is refused.
func (t tokens) bearer(given []string) (string, *fault) {
	if _, isKey := keyIn(given); isKey { // also where everybody on this machine may call
		return "", &fault{kind: tokenUnknown, detail: "a caller's key is no gateway's token; send the key to /v1/admit"}
	}
	if len(t) == 0 {
		return LoopbackCredential, nil
	}
	if len(given) == 0 {
		return "", &fault{kind: tokenMissing, detail: "send Authorization: Bearer and a gateway's token"}
	}
	scheme, secret, _ := strings.Cut(given[0], " ")
	if len(given) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return "", &fault{kind: tokenMissing, detail: "send one Authorization header, with Bearer and a gateway's token"}
	}
	name, known := t.name(strings.TrimSpace(secret))
	if !known {
		return "", &fault{kind: tokenUnknown, detail: "the token is none of this node's; look at its token file"}
	}
	return name, nil
}

// name compares with every token, in a time that does not tell how much of one was right.
func (t tokens) name(secret string) (name string, known bool) {
	sum := sha256.Sum256([]byte(secret))
	for i := range t {
		if subtle.ConstantTimeCompare(sum[:], t[i].SHA256[:]) == 1 {
			name, known = t[i].Name, true
		}
	}
	return name, known
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && net.ParseIP(host).IsLoopback()
}
