package regional

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tranche/allocation"
)

const (
	worldSecret = "00112233445566778899aabbccddeeff00112233"
	worldEnd    = allocation.Instant(apiStart/1_000_000) + 7200
)

// worldKey is a key of tenant acme.
var worldKey = allocation.KeyText("acme", worldSecret)

func keyDocument(edit func(*allocation.Key)) allocation.Document {
	k, err := allocation.Key{Name: "acme", Tenant: "acme", Capabilities: []string{"*"}, Made: 1, By: "kim"}.Seal(worldKey, strings.Repeat("ab", 16))
	if err != nil {
		panic(err)
	}
	if edit != nil {
		edit(&k)
	}
	return documentOf(allocation.KindKey, allocation.Fingerprint(worldKey), k, k.Revoked != nil)
}

func blockDocument(name string, b allocation.Block) allocation.Document {
	return documentOf(allocation.KindBlock, name, b, b.Lifted != nil)
}

func documentOf(kind, name string, v any, final bool) allocation.Document {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return allocation.Document{Kind: kind, Name: name, Version: 1, Number: 1, Final: final, Body: body}
}

// learn lets the owner and its node know documents.
func (w *apiWorld) learn(documents ...allocation.Document) {
	w.owner.mu.Lock()
	defer w.owner.mu.Unlock()
	w.owner.catalogue = w.owner.catalogue.WithDocuments(documents)
}

// PutDocument implements DocumentMaker.
func (m *memoryOwner) PutDocument(_ context.Context, d allocation.Document) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.catalogue = m.catalogue.WithDocuments([]allocation.Document{d})
	return true, nil
}

// A key is a credential of its own: bad, missing or out of its scope, it is refused, and no other credential takes its place.
func TestAPIKeys(t *testing.T) {
	for _, tokens := range [][]Token{twoTokens(t), nil} {
		w := newAPIWorld(t, tokens...)
		send := func(status int, word, path, body string, headers ...string) {
			t.Helper()
			answersWith(t, w.call("POST", path, body, append(headers, "Admission-Id: a")...), status, word)
		}
		read := func(status int, word, path string, headers ...string) {
			t.Helper()
			answersWith(t, w.call("GET", path, "", append(headers, "Authorization: Bearer "+worldKey)...), status, word)
		}
		with := func(text string) string { return "Authorization: Bearer " + text }
		spend := `{"labels":{"tenant":"acme"}}`
		send(401, "key_unknown", "/v1/admit", spend, with(worldKey))
		w.learn(keyDocument(nil))
		for _, text := range []string{worldKey + "0", worldKey[:len(worldKey)-1], "tranche_key_", "tranche_key_acme"} {
			send(401, "key_unknown", "/v1/admit", spend, with(text))
		}
		send(200, `"credential":"key:acme"`, "/v1/admit", spend, "Authorization: "+worldKey) // the word Bearer is no secret
		send(401, "token_missing", "/v1/admit", spend, with(worldKey), with(tokenA))
		send(403, "scope_denied", "/v1/admit", `{"labels":{"tenant":"globex"}}`, with(worldKey))
		send(403, "scope_denied", "/v1/admit", `{"labels":{"tenant":"acme"},"priority":"essential"}`, with(worldKey))
		send(400, "key_fingerprint", "/v1/admit", `{"labels":{"tenant":"acme"},"key_fingerprint":"`+allocation.Fingerprint("x")+`"}`, with(worldKey))
		send(400, "costs.requests", "/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"requests":0}}`, with(worldKey))
		read(200, "", "/v1/authorize", "Tranche-Label-Tenant: acme", "Tranche-Token: "+tokenA, "Admission-Id: b")
		read(403, "scope_denied", "/v1/authorize", "Tranche-Label-Tenant: globex", "Tranche-Token: "+tokenA, "Admission-Id: c")
		send(422, "admission_id_conflict", "/v1/admit", `{"labels":{"tenant":"acme"},"op":"reserve"}`, with(worldKey))
		for _, path := range []string{"/v1/status", "/v1/account", "/v1/reservations", "/v1/blocks", "/metrics"} {
			read(403, "scope_denied", path)
		}
		find := "/v1/decisions/a"
		read(200, `"state":"spent"`, find+"?tenant=acme")
		read(403, "scope_denied", find+"?tenant=globex")
		w.learn(keyDocument(func(k *allocation.Key) { k.Revoked = &allocation.Lifted{At: 1, By: "kim"} }))
		send(401, "key_revoked", "/v1/admit", spend, with(worldKey)) // it was admitted: no replay
		send(401, "key_revoked", "/v1/match", spend, with(worldKey))
		read(401, "key_revoked", find+"?tenant=acme")
		read(401, "key_revoked", "/v1/authorize", "Tranche-Label-Tenant: acme")
		read(401, "key_revoked", "/v1/authorize", "Tranche-Label-Tenant: acme", "Tranche-Token: "+tokenA) // nor passes under a gateway's name
	}
}

// answersWith fails unless the answer has this status and word, or if it holds the key's secret.
func answersWith(t *testing.T, r *http.Response, status int, word string) {
	t.Helper()
	wantStatus(t, r, status, word)
	if strings.Contains(bodyOf(t, r), worldSecret) {
		t.Error("the answer holds the secret")
	}
}

// A gateway that is limited must not spend for others, and one that names the tenant must name it.
func TestGatewaysAreLimited(t *testing.T) {
	list, err := ParseTokens([]byte("one " + tokenA + " tenant=acme|trial\nany " + tokenB + " tenant=* essential\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := newAPIWorld(t, list...)
	for _, c := range []struct {
		token, path, body string
		status            int
	}{
		{tokenA, "/v1/admit", `{"labels":{"tenant":"acme"}}`, 200},
		{tokenA, "/v1/admit", `{"labels":{"tenant":"none"}}`, 403},
		{tokenA, "/v1/admit", `{"labels":{}}`, 403},
		{tokenA, "/v1/admit/batch", `{"items":[{"labels":{"tenant":"acme"},"admission_id":"b"},{"labels":{"tenant":"none"},"admission_id":"c"}]}`, 403},
		{tokenA, "/v1/settle", `{"tenant":"none","admission_id":"x","costs":{"requests":1}}`, 403},
		{tokenA, "/v1/settle", `{"tenant":"acme","admission_id":"x","costs":{"requests":1}}`, 404},
		{tokenB, "/v1/admit", `{"labels":{"tenant":"acme"},"priority":"essential"}`, 200},
		{tokenB, "/v1/admit", `{"labels":{"route":"x"}}`, 403},
		{tokenA, "/v1/match", `{"labels":{"tenant":"acme"}}`, 200},
		{tokenA, "/v1/match", `{"labels":{"tenant":"none"}}`, 403},
	} {
		headers := []string{"Authorization: Bearer " + c.token}
		if c.path == "/v1/admit" {
			headers = append(headers, "Admission-Id: a")
		}
		wantStatus(t, w.call("POST", c.path, c.body, headers...), c.status)
	}
	for _, path := range []string{"/v1/reservations", "/v1/account", "/v1/blocks"} { // of all tenants
		wantStatus(t, w.call("GET", path, "", "Authorization: Bearer "+tokenA), 403, "scope_denied")
	}
	for _, wrong := range []string{"a " + tokenA + " tenant", "a " + tokenA + " tenant=x tenant=y", "a " + tokenA + " Tenant=x", "a " + tokenA + " tenant=", "a " + worldKey} {
		if _, err := ParseTokens([]byte(wrong)); err == nil || strings.Contains(err.Error(), tokenA) || strings.Contains(err.Error(), worldSecret) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if _, err := ParseTokens([]byte("a " + tokenA + " tenant=x\na " + tokenB + "\n")); err == nil {
		t.Error("two tokens of a name may differ in what they may do")
	}
}

// In a rotation of a gateway's token both are taken; an empty file opens nothing.
func TestTokensChangeWhileServed(t *testing.T) {
	both := twoTokens(t)
	both[1].Name = both[0].Name
	w := newAPIWorld(t, both[0])
	admits := func(token string) int {
		return w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id: a", "Authorization: Bearer "+token).StatusCode
	}
	is := func(a, b int) {
		t.Helper()
		if gotA, gotB := admits(tokenA), admits(tokenB); gotA != a || gotB != b {
			t.Errorf("%d and %d, want %d and %d", gotA, gotB, a, b)
		}
	}
	is(200, 401)
	if err := w.live.Set(both); err != nil {
		t.Fatal(err)
	}
	is(200, 200) // the same id, so the same credential: the second is a replay
	if err := w.live.Set(both[1:]); err != nil {
		t.Fatal(err)
	}
	is(401, 200)
	if w.live.Set(nil) == nil {
		t.Error("an API with tokens became one without")
	}
	is(401, 200)
}

// Cut off, a region must be able to block for itself; only an operator, and never without an end.
func TestBlocksOfARegion(t *testing.T) {
	list, err := ParseTokens([]byte("gateway " + tokenA + "\nops " + tokenB + " operator\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := newAPIWorld(t, list...)
	gateway, ops := "Authorization: Bearer "+tokenA, "Authorization: Bearer "+tokenB
	spend := func(status int) {
		t.Helper()
		wantStatus(t, w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id: a", gateway), status)
	}
	block := `{"match":{"tenant":"acme"},"for":"2h","reason":"leak","by":"kim"}`
	spend(200)
	wantStatus(t, w.call("POST", "/v1/blocks", block, gateway), 403, "scope_denied")
	wantStatus(t, w.call("POST", "/v1/blocks", `{"match":{"tenant":"acme"},"reason":"leak"}`, ops), 400, `"for"`)
	wantStatus(t, w.call("POST", "/v1/blocks", `{"match":{"tenant":"acme"},"for":"2h"}`, ops), 400, `"reason"`)
	wantStatus(t, w.call("POST", "/v1/blocks", `{"until":"x"}`, ops), 400)
	spend(200)
	answer := bodyOf(t, w.call("POST", "/v1/blocks", block, ops))
	var made blockBody
	if err := json.Unmarshal([]byte(answer), &made); err != nil || !made.InForce || made.Told || made.By != "kim (token ops)" || len(made.Regions) != 1 {
		t.Fatalf("%s, %v", answer, err)
	}
	spend(403)
	wantStatus(t, w.call("GET", "/v1/blocks", "", gateway), 200, made.ID, `"in_force":true`)
	w.learn(blockDocument("b-global", allocation.Block{Match: allocation.Labels{"tenant": "trial"}, Until: worldEnd}))
	wantStatus(t, w.call("POST", "/v1/blocks/lift", `{"id":"b-global","reason":"over"}`, ops), 403, "scope_denied")
	wantStatus(t, w.call("POST", "/v1/blocks/lift", `{"id":"b-none","reason":"over"}`, ops), 404)
	wantStatus(t, w.call("POST", "/v1/blocks/lift", fmt.Sprintf(`{"id":%q}`, made.ID), ops), 400, `"reason"`)
	wantStatus(t, w.call("POST", "/v1/blocks/lift", fmt.Sprintf(`{"id":%q,"reason":"over"}`, made.ID), ops), 200, `"in_force":false`)
	spend(200)
	external := allocation.Fingerprint("sk-external")
	wantStatus(t, w.call("POST", "/v1/blocks", fmt.Sprintf(`{"fingerprint":%q,"for":"2h","reason":"leak"}`, external), ops), 200)
	wantStatus(t, w.call("POST", "/v1/admit", fmt.Sprintf(`{"labels":{"tenant":"acme"},"key_fingerprint":%q}`, external), "Admission-Id: a", gateway), 403, "blocked")
	wantStatus(t, w.call("GET", "/v1/authorize", "", gateway, "Tranche-Label-Tenant: acme", "Admission-Id: a", "Tranche-Key-Fingerprint: "+external), 403)
	wantStatus(t, w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"},"key_fingerprint":"sk-external"}`, "Admission-Id: a", gateway), 400, "key_fingerprint")
	spend(200)
}

// Made-up keys must not keep those who have one from being served.
func TestMadeUpKeysAreRefusedFromMemory(t *testing.T) {
	w := newAPIWorld(t, twoTokens(t)...)
	w.learn(keyDocument(nil))
	for range maxDoubtful {
		w.doubtful <- struct{}{}
	}
	before := len(w.owner.asked)
	made := allocation.KeyText("acme", "ffff")
	wantStatus(t, w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id: a", "Authorization: Bearer "+made), 401, "key_unknown")
	if len(w.owner.asked) != before {
		t.Error("the owner was asked")
	}
	wantStatus(t, w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id: a", "Authorization: Bearer "+worldKey), 200)
}
