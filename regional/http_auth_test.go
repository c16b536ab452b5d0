package regional

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"tranche/allocation"
)

const (
	tokenA = "a-secret-of-gateway-a"
	tokenB = "b-secret-of-gateway-b"
)

func twoTokens(t testing.TB) []Token {
	t.Helper()
	sum := sha256.Sum256([]byte(tokenB))
	list, err := ParseTokens([]byte("# gateways\n\nedge-a " + tokenA + "\n  edge-b   sha256:" + hex.EncodeToString(sum[:]) + "\r\n"))
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	return list
}

// If this failed, anybody could spend, or one gateway's ids would be another's.
func TestAPITokens(t *testing.T) {
	w := newAPIWorld(t, twoTokens(t)...)
	for _, c := range []struct {
		header, reason string
	}{
		{"", "token_missing"},
		{"Authorization: " + tokenA, "token_missing"},
		{"Authorization: Basic " + tokenA, "token_missing"},
		{"Authorization: Bearer", "token_missing"},
		{"Authorization: Bearer wrong", "token_unknown"},
		{"Authorization: Bearer " + tokenA[:len(tokenA)-1], "token_unknown"},
		{"Authorization: Bearer " + tokenA + "x", "token_unknown"},
	} {
		headers := []string{"Admission-Id: a"}
		if c.header != "" {
			headers = append(headers, c.header)
		}
		for _, path := range []string{"/v1/admit", "/v1/admit/batch", "/v1/settle", "/v1/release", "/v1/extend", "/v1/match"} {
			r := w.call("POST", path, `{"labels":{"tenant":"acme"}}`, headers...)
			if c.header == "Authorization: Bearer" {
				wantStatus(t, r, 401)
				continue
			}
			wantStatus(t, r, 401, c.reason)
			if r.Header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(bodyOf(t, r), "secret") {
				t.Error(path, r.Header)
			}
		}
	}
	for _, path := range []string{"/v1/decisions/a", "/v1/reservations", "/v1/account", "/v1/status", "/metrics"} {
		wantStatus(t, w.call("GET", path, ""), 401, "token_missing")
	}
	if len(w.owner.asked) != 0 {
		t.Fatal("was asked of the owner")
	}
	body := `{"labels":{"tenant":"acme"}}`
	wantStatus(t, w.call("POST", "/v1/admit", body, "Admission-Id: a", "Authorization: Bearer "+tokenA), 200, `"credential":"edge-a"`, `"replayed":false`)
	wantStatus(t, w.call("POST", "/v1/admit", body, "Admission-Id: a", "Authorization: bearer "+tokenB), 200, `"credential":"edge-b"`, `"replayed":false`)
	wantStatus(t, w.call("POST", "/v1/admit", body, "Admission-Id: a", "Authorization: Bearer "+tokenA, "Authorization: Bearer "+tokenB), 401)
	wantStatus(t, w.call("GET", "/metrics", "", "Authorization: Bearer "+tokenA), 200, "tranche_admissions_total")
}

// If this failed, a rotated token would make its gateway's retries new admissions.
func TestAPITokenRotation(t *testing.T) {
	body, both := `{"labels":{"tenant":"acme"}}`, "edge "+tokenA+"\nedge "+tokenB
	list, err := ParseTokens([]byte(both))
	if err != nil {
		t.Fatal(err)
	}
	w := newAPIWorld(t, list...)
	wantStatus(t, w.call("POST", "/v1/admit", body, "Admission-Id: a", "Authorization: Bearer "+tokenA), 200)
	wantStatus(t, w.call("POST", "/v1/admit", body, "Admission-Id: a", "Authorization: Bearer "+tokenB), 200, `"replayed":true`)
}

// If this failed, a mistake in a token file would be found out by an attacker, or printed with the secret.
func TestParseTokens(t *testing.T) {
	for _, c := range [][2]string{
		{"edge", "line 1"},
		{"\nedge a b", "line 2"},
		{"edge short", "16 to 512 bytes"},
		{"edge " + strings.Repeat("s", 600), "16 to 512 bytes"},
		{"ed:ge " + tokenA, "letters"},
		{strings.Repeat("n", 65) + " " + tokenA, "letters"},
		{"edge sha256:abcd", "64 hexadecimal"},
		{"edge sha256:" + strings.Repeat("zz", 32), "64 hexadecimal"},
		{"a " + tokenA + "\nb " + tokenA, "same token"},
		{"a " + tokenA + "\n" + manyTokens(MaxTokens), "more than 256"},
	} {
		text, word := c[0], c[1]
		list, err := ParseTokens([]byte(text))
		if err == nil || list != nil || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	if list, err := ParseTokens(nil); list != nil || err != nil {
		t.Error(list, err)
	}
}

func manyTokens(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("n a-secret-number-" + strings.Repeat("x", i+1) + "\n")
	}
	return b.String()
}

// If this failed, an API without a token would be open to a network.
func TestCheckListen(t *testing.T) {
	some := twoTokens(t)
	for _, c := range []struct {
		addr   string
		tokens []Token
		tls    bool
		word   string
	}{
		{"127.0.0.1:8080", nil, false, ""},
		{"127.9.9.9:0", nil, false, ""},
		{"[::1]:8080", nil, false, ""},
		{"localhost:8080", nil, false, ""},
		{":8080", nil, true, "gateway tokens"},
		{"0.0.0.0:8080", nil, true, "gateway tokens"},
		{"[::]:8080", nil, true, "gateway tokens"},
		{"10.0.0.1:8080", nil, true, "gateway tokens"},
		{"node-1.internal:8080", nil, true, "gateway tokens"},
		{"localhost.example.com:8080", nil, true, "gateway tokens"},
		{":8080", some, false, "TLS"},
		{":8080", some, true, ""},
		{"8080", some, true, "a host and a port"},
	} {
		err := CheckListen(c.addr, c.tokens, c.tls)
		if (err == nil) != (c.word == "") || err != nil && !strings.Contains(err.Error(), c.word) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// If this failed, a scraper beside the node would need a secret, or one on the network none.
func TestAPIMetricsFromLoopback(t *testing.T) {
	for addr, want := range map[string]bool{"127.0.0.1:5": true, "[::1]:5": true, "10.0.0.1:5": false, "": false} {
		if isLoopback(addr) != want {
			t.Error(addr)
		}
	}
	w := newAPIWorld(t)
	wantStatus(t, w.call("GET", "/metrics", ""), 200, "tranche_ready 1")
	if w.owner.force = allocation.Overloaded; len(w.tokens()) != 0 {
		t.Error("has tokens")
	}
}
