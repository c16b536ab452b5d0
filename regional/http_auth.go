package regional

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"tranche/allocation"
)

// Bounds of a file of gateway tokens.
const (
	MaxTokens      = 256
	MinTokenBytes  = 16
	MaxTokenBytes  = 512
	maxTokenName   = 64
	hashedTokenTag = "sha256:"
	scopeEssential = "essential"
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
}

// ParseTokens reads a file of tokens, one a line: a name, and the token itself or "sha256:" and its hash in hex. Empty
// lines and those that begin with # are left out. A third word, essential, lets the gateway say that a request is. An error names the line, never what stands in it.
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
			if other.Name == t.Name && other.Essential != t.Essential {
				return nil, fmt.Errorf("line %d of the token file: an earlier line of %s differs in essential; write it in both or in none", number, t.Name)
			}
		}
		if list = append(list, t); len(list) > MaxTokens {
			return nil, fmt.Errorf("the token file has more than %d tokens", MaxTokens)
		}
	}
	return list, nil
}

func parseToken(line string) (Token, error) {
	fields := strings.Fields(line)
	if len(fields) != 2 && (len(fields) != 3 || fields[2] != scopeEssential) {
		return Token{}, errors.New("write a name and a token, with a space between them, and after them essential if the gateway may say so")
	}
	t := Token{Name: fields[0], Essential: len(fields) == 3}
	if !ValidTokenName(t.Name) {
		return Token{}, errors.New("a name has 1 to 64 of letters, digits . _ -")
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
	t.SHA256 = sha256.Sum256([]byte(fields[1]))
	return t, nil
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

// overreaches is the answer to a call that says it is essential, of a credential that may not: nothing is decided.
func (a *api) overreaches(caller string, b *callBody) *fault {
	essential := b.priority == allocation.Essential
	for i := range b.items {
		essential = essential || b.items[i].priority == allocation.Essential
	}
	if !essential || a.tokens.mayBeEssential(caller) {
		return nil
	}
	f := reasonFault(allocation.ScopeDenied, "priority: credential "+caller+" may not say essential; use interactive or batch, or write essential behind its token in the node's token file")
	return &f
}

// caller is the credential's name of a request, or why it is refused. With fromLoopback a caller on this machine needs no
// token.
func (t tokens) caller(r *http.Request, fromLoopback bool) (string, *fault) {
	if len(t) == 0 {
		return LoopbackCredential, nil
	}
	given := r.Header.Values("Authorization")
	if len(given) == 0 && fromLoopback && isLoopback(r.RemoteAddr) {
		return LoopbackCredential, nil
	}
	return t.bearer(given)
}

// bearer is the credential's name for the values of an Authorization header, or why it is refused.
func (t tokens) bearer(given []string) (string, *fault) {
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
