package coordinator_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// typed makes a request and reads a typed answer of that status.
func typed[T any](w *world, r *replica, status int, method, path string, body any) (out T) {
	w.t.Helper()
	recorder := w.request(r, method, path, body)
	if recorder.Code != status {
		w.t.Fatalf("%s %s answers %d %s", method, path, recorder.Code, recorder.Body.String())
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// bars is what a region that holds these documents says of a key.
func (f *fakeRegion) bars(text string) allocation.Reason {
	f.w.t.Helper()
	var all []allocation.Document
	for _, d := range f.documents {
		all = append(all, d.Document)
	}
	p, ok := allocation.Present(text)
	if !ok {
		f.w.t.Fatalf("%.20s… is no key", text)
	}
	r := allocation.Request{Op: allocation.Spend, Labels: allocation.Labels{"tenant": "acme"}, Key: allocation.IDKey{Tenant: "acme"}, Presented: p}
	reason, _ := allocation.NewCatalogue(f.name).WithDocuments(all).Bars(r, allocation.At(f.w.clock.now()))
	return reason
}

const keyJSON = `{"name":"acme","tenant":"acme","capabilities":["*"],"for":"90d"}`

// A rotation without a second key, or one whose first key stays, is downtime or a leak.
func TestAKeysLife(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	first := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", keyJSON)
	if !strings.HasPrefix(first.Key, "tranche_key_acme_") || first.Fingerprint != allocation.Fingerprint(first.Key) || first.State != "valid" || first.Until == nil {
		t.Fatalf("%+v", first)
	}
	w.must(r, 409, "POST", "/v1/keys", keyJSON)
	east.untilQuiet(r)
	if got := east.bars(first.Key); got != "" {
		t.Errorf("a key that was issued: %s", got)
	}
	second := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys/acme/rotate", `{"overlap":"1h"}`)
	if len(second.Replaces) != 1 || second.Replaces[0] != first.Fingerprint || second.Tenant != "acme" || second.Key == first.Key {
		t.Fatalf("%+v", second)
	}
	east.untilQuiet(r)
	if a, b := east.bars(first.Key), east.bars(second.Key); a != "" || b != "" {
		t.Errorf("in a rotation: %q and %q", a, b)
	}
	w.clock.move(time.Hour)
	if a, b := east.bars(first.Key), east.bars(second.Key); a != allocation.KeyRevoked || b != "" {
		t.Errorf("after the overlap: %q and %q", a, b)
	}
	gone := typed[coordinator.KeysList](w, r, 200, "POST", "/v1/keys/acme/revoke", `{"reason":"leaked"}`)
	if len(gone.Keys) != 1 || gone.Keys[0].Fingerprint != second.Fingerprint || gone.Keys[0].State != "revoked" || gone.Keys[0].Revoked.Reason != "leaked" {
		t.Fatalf("%+v", gone)
	}
	again := typed[coordinator.KeysList](w, r, 200, "POST", "/v1/keys/"+second.Fingerprint+"/revoke", `{"reason":"once more"}`)
	if again.Keys[0].Number != gone.Keys[0].Number || again.Keys[0].Revoked.Reason != "leaked" {
		t.Errorf("revoking again changes %+v", again)
	}
	east.untilQuiet(r)
	if got := east.bars(second.Key); got != allocation.KeyRevoked {
		t.Errorf("a revoked key: %q", got)
	}
	w.must(r, 404, "POST", "/v1/keys/acme/rotate", `{"overlap":"1h"}`)
	w.must(r, 404, "POST", "/v1/keys/nobody/revoke", `{"reason":"leaked"}`)
	w.refuses(r, "/v1/keys/acme/revoke", "reason", `{}`, `{"reason":" "}`, `{"reason":"`+strings.Repeat("x", 501)+`"}`)
	third := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", keyJSON)
	if list := get[coordinator.KeysList](w, r, "/v1/keys"); len(list.Keys) != 3 || third.Fingerprint == second.Fingerprint {
		t.Errorf("%+v", list)
	}
	w.must(r, 422, "POST", "/v1/keys", `{"name":"x","capabilities":["*"]}`)
	w.must(r, 422, "POST", "/v1/keys/acme/rotate", `{"overlap":"999d"}`)
	for _, act := range []string{"key.issue", "key.rotate", "key.end", "key.revoke"} {
		if len(w.acts(r, act)) == 0 {
			t.Errorf("no audit line of %s", act)
		}
	}
	// Nothing that etcd, the audit or a list holds opens anything, and the audit has not even the hash.
	var stored strings.Builder
	for _, i := range w.backup() {
		stored.Write(i.Value)
	}
	for _, k := range []coordinator.KeyAnswer{first, second, third} {
		_, secret, _ := strings.Cut(strings.TrimPrefix(k.Key, "tranche_key_"), "_")
		for what, text := range map[string]string{"etcd": stored.String(), "the list": w.request(r, "GET", "/v1/keys", nil).Body.String()} {
			if strings.Contains(text, secret) {
				t.Errorf("%s holds the secret of %s", what, k.Fingerprint)
			}
		}
	}
	if audit := w.request(r, "GET", "/v1/audit?limit=1000", nil).Body.String(); strings.Contains(audit, `"hash":"`+"0") || strings.Contains(audit, `"salt":"0`) || strings.Count(audit, `"salt":""`) == 0 {
		t.Error("the audit holds what keys are compared with")
	}
}

// refuses: each of these bodies is answered 422, naming the field and the fix.
func (w *world) refuses(r *replica, path, field string, bodies ...string) {
	w.t.Helper()
	for _, body := range bodies {
		if status, a := w.ask(r, "POST", path, body); status != 422 || a["field"] != field || a["fix"] == "" {
			w.t.Errorf("%s %.60s: %d %v", path, body, status, a)
		}
	}
}

// A revocation of which nobody can say where it counts is a hope.
func TestEnforcement(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", keyJSON)
	east.untilQuiet(r)
	west.untilQuiet(r)
	number := typed[coordinator.KeysList](w, r, 200, "POST", "/v1/keys/acme/revoke", `{"reason":"leaked"}`).Keys[0].Number
	path := "/v1/enforced/" + jsonNumber(number) + "?labels=tenant=acme"
	w.clock.move(43 * time.Millisecond)
	east.sync(r)
	if a := get[coordinator.EnforcedAnswer](w, r, path); a.All || a.Regions[1].Enforced || a.Regions[1].Cause != "waiting" {
		t.Errorf("it was told, and has not stored it: %+v", a)
	}
	east.sync(r)
	a := get[coordinator.EnforcedAnswer](w, r, path)
	if e := a.Regions[1]; !e.Enforced || e.AfterMS == nil || *e.AfterMS != 43 || a.All || a.Regions[0].Cause != "waiting" {
		t.Errorf("%+v", a)
	}
	w.clock.move(2 * time.Minute)
	east.sync(r)
	a = get[coordinator.EnforcedAnswer](w, r, path+"&wait_ms=10000") // nobody in contact is waited for
	if e := a.Regions[0]; e.Cause != "unreachable" || len(e.AtMost) != 1 || e.AtMost[0].Now != 40 || e.AtMost[0].Ahead == 0 || e.AtMost[0].Budget != "acme/requests" {
		t.Errorf("of a region that cannot be asked: %+v", e)
	}
	if a := get[coordinator.EnforcedAnswer](w, r, "/v1/enforced/"+jsonNumber(number)+"?labels=tenant=globex"); len(a.Regions[0].AtMost) != 0 {
		t.Errorf("another tenant's budget bounds it: %+v", a.Regions[0])
	}
	if west.bars(k.Key) != "" {
		t.Error("a region that was not told refuses it already")
	}
	west.untilQuiet(r)
	if a := get[coordinator.EnforcedAnswer](w, r, path); !a.All {
		t.Errorf("%+v", a)
	}
	w.must(r, 422, "GET", "/v1/enforced/x", nil)
	w.must(r, 422, "GET", path+"&wait_ms=99999", nil)
}

func jsonNumber(n int64) string { return string(must(json.Marshal(n))) }

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// A leaked key is cut off everywhere in one act, and a block that nobody can end or find is an outage.
func TestABlocksLife(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	for field, body := range map[string]string{
		"for": `{"match":{"tenant":"acme"},"reason":"leak"}`, "reason": `{"match":{"tenant":"acme"},"for":"2h"}`, "match": `{"for":"2h","reason":"leak"}`,
	} {
		if p := w.must(r, 422, "POST", "/v1/blocks", body); p["field"] != field {
			t.Errorf("%s: %v", field, p)
		}
	}
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", keyJSON)
	b := typed[coordinator.BlockAnswer](w, r, 201, "POST", "/v1/blocks", `{"match":{"tenant":"acme"},"for":"2h","reason":"leak","by":"kim"}`)
	if b.State != "in force" || !strings.HasPrefix(b.By, "kim (token ") || b.Until != b.From+7200 {
		t.Fatalf("%+v", b)
	}
	east.untilQuiet(r)
	if got := east.bars(k.Key); got != allocation.Blocked {
		t.Errorf("%q", got)
	}
	lifted := typed[coordinator.BlockAnswer](w, r, 200, "POST", "/v1/blocks/"+b.ID+"/lift", `{"reason":"rotated"}`)
	if lifted.State != "lifted" || lifted.Lifted.Reason != "rotated" {
		t.Errorf("%+v", lifted)
	}
	east.untilQuiet(r)
	if got := east.bars(k.Key); got != "" {
		t.Errorf("after the lift: %q", got)
	}
	typed[coordinator.BlockAnswer](w, r, 201, "POST", "/v1/blocks", `{"fingerprint":"`+k.Fingerprint+`","for":"1m","reason":"leak"}`)
	east.untilQuiet(r)
	if got := east.bars(k.Key); got != allocation.Blocked {
		t.Errorf("by fingerprint: %q", got)
	}
	w.clock.move(time.Minute)
	if got := east.bars(k.Key); got != "" {
		t.Errorf("it does not end by itself: %q", got)
	}
	if now, all := get[coordinator.BlocksList](w, r, "/v1/blocks"), get[coordinator.BlocksList](w, r, "/v1/blocks?all=true"); len(now.Blocks) != 0 || len(all.Blocks) != 2 {
		t.Errorf("%d in force, %d in all", len(now.Blocks), len(all.Blocks))
	}
	w.must(r, 404, "POST", "/v1/blocks/b-none/lift", `{"reason":"over"}`)
	w.refuses(r, "/v1/blocks/"+b.ID+"/lift", "reason", `{}`, `{"reason":" ","by":"kim"}`)
	if lines := w.acts(r, "block"); len(lines) != 2 || lines[0].Reason != "leak" || len(w.acts(r, "unblock")) != 1 {
		t.Errorf("%+v", lines)
	}
}

// etcd restored to before a revocation and before a block: a leaked key would be valid again.
func TestARestoreRevivesNoKeyAndLiftsNoBlock(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", keyJSON)
	east.untilQuiet(r)
	west.untilQuiet(r)
	backup := w.backup()
	w.must(r, 200, "POST", "/v1/keys/acme/revoke", `{"reason":"leaked"}`)
	b := typed[coordinator.BlockAnswer](w, r, 201, "POST", "/v1/blocks", `{"match":{"tenant":"globex"},"for":"2h","reason":"leak"}`)
	east.untilQuiet(r)
	w.restore(backup)
	if list := get[coordinator.KeysList](w, r, "/v1/keys"); list.Keys[0].State != "valid" {
		t.Fatal("the backup knows what came after it")
	}
	east.sync(r)
	w.round(r, east, west)
	if got := west.bars(k.Key); got != allocation.KeyRevoked {
		t.Errorf("the other region takes the key: %q", got)
	}
	if list := get[coordinator.KeysList](w, r, "/v1/keys"); list.Keys[0].State != "revoked" || list.Keys[0].Revoked.Reason != "leaked" {
		t.Errorf("%+v", list.Keys)
	}
	if list := get[coordinator.BlocksList](w, r, "/v1/blocks"); len(list.Blocks) != 1 || list.Blocks[0].ID != b.ID {
		t.Errorf("%+v", list.Blocks)
	}
}

// For how long a region that is cut off takes a key is said when it is issued, listed, and kept by a rotation.
func TestAKeysEvidenceAge(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	p := w.must(r, 422, "POST", "/v1/keys", `{"name":"acme","tenant":"acme","capabilities":["*"],"max_evidence_age":"31d"}`)
	if p["field"] != "max_evidence_age" {
		t.Errorf("%v", p)
	}
	hour := allocation.Duration(allocation.Hour)
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", `{"name":"acme","tenant":"acme","capabilities":["*"],"max_evidence_age":"1h"}`)
	next := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys/acme/rotate", `{"overlap":"1h"}`)
	if k.MaxEvidenceAge != hour || next.MaxEvidenceAge != hour {
		t.Errorf("%+v, then %+v", k, next)
	}
	for _, listed := range get[coordinator.KeysList](w, r, "/v1/keys/acme").Keys {
		if listed.MaxEvidenceAge != hour {
			t.Errorf("%+v", listed)
		}
	}
	east.untilQuiet(r)
	for _, fingerprint := range []string{k.Fingerprint, next.Fingerprint} {
		d := east.documents[allocation.DocumentRef{Kind: allocation.KindKey, Name: fingerprint}]
		if stored, err := d.Document.Key(); err != nil || stored.MaxEvidenceAge != hour {
			t.Errorf("the region has %+v, %v", stored, err)
		}
	}
}

// Whoever rotates again while two keys are valid, or after the newer one leaked, is to get a key that lasts as long as the first
// one: not as long as the overlap that the rotation before gave to it.
func TestARotationInARotation(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	for name, lasts := range map[string]allocation.Instant{"forever": 0, "short": 90 * 86400} {
		body := `{"name":"` + name + `","tenant":"acme","capabilities":["*"]}`
		if lasts != 0 {
			body = `{"name":"` + name + `","tenant":"acme","capabilities":["*"],"for":"90d"}`
		}
		typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", body)
		var last coordinator.KeyAnswer
		for range 8 { // each has a fingerprint by chance: none of them is to count
			last = typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys/"+name+"/rotate", `{"overlap":"1h"}`)
			if until := last.Until; (until == nil) != (lasts == 0) || until != nil && *until != last.Made+lasts {
				t.Fatalf("%s: %+v", name, last)
			}
		}
		for _, k := range get[coordinator.KeysList](w, r, "/v1/keys/"+name).Keys {
			if ends := k.Until != nil && *k.Until == k.Made+3600; ends == (k.Fingerprint == last.Fingerprint) {
				t.Errorf("%s: %+v", name, k)
			}
		}
		w.must(r, 200, "POST", "/v1/keys/"+last.Fingerprint+"/revoke", `{"reason":"leaked"}`)
		next := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys/"+name+"/rotate", `{"overlap":"0s"}`)
		if until := next.Until; (until == nil) != (lasts == 0) || until != nil && *until != next.Made+lasts {
			t.Errorf("%s, after a revocation: %+v", name, next)
		}
	}
}

// In a rotation both tokens are taken, and the old one not for ever.
func TestTokensRotate(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	made := w.must(r, 201, "POST", "/v1/tokens", `{"name":"kim","role":"viewer"}`)["token"].(string)
	next := w.must(r, 201, "POST", "/v1/tokens/kim/rotate", `{"overlap":"10m"}`)["token"].(string)
	reads := func(token string) int {
		status, _ := w.ask(r, "GET", "/v1/status", nil, "Authorization", "Bearer "+token)
		return status
	}
	if reads(made) != 200 || reads(next) != 200 || made == next {
		t.Errorf("in the rotation: %d and %d", reads(made), reads(next))
	}
	region := w.must(r, 201, "POST", "/v1/tokens/region:us-east/rotate", `{"overlap":"10m"}`)["token"].(string)
	call := string(must(json.Marshal(east.call())))
	for _, token := range []string{east.token, region} {
		if status, p := w.ask(r, "POST", "/v1/sync", call, "Authorization", "Bearer "+token); status != 200 {
			t.Errorf("in the rotation of a region's token: %d %v", status, p)
		}
	}
	w.clock.move(10 * time.Minute)
	if reads(made) != 401 || reads(next) != 200 {
		t.Errorf("after it: %d and %d", reads(made), reads(next))
	}
	if status, _ := w.ask(r, "POST", "/v1/sync", call, "Authorization", "Bearer "+east.token); status != 401 {
		t.Errorf("the region's old token is taken: %d", status)
	}
	w.must(r, 404, "POST", "/v1/tokens/nobody/rotate", `{"overlap":"1m"}`)
	w.must(r, 422, "POST", "/v1/tokens/kim/rotate", `{"overlap":"91d"}`)
}

// Whether a key is still used decides whether it may be revoked.
func TestLastUsed(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	k := typed[coordinator.KeyAnswer](w, r, 201, "POST", "/v1/keys", keyJSON)
	if k.LastUsed != nil {
		t.Fatal("it was used before it was made")
	}
	at := w.clock.now().Unix()
	report := allocation.RefusalReport{Format: allocation.SyncFormat, Node: "n", Run: "1", Used: map[string]int64{k.Fingerprint: at, "fp_unknown": at}}
	w.must(r, 200, "POST", "/v1/refusals", string(must(json.Marshal(report))), "Authorization", "Bearer "+east.token)
	if list := get[coordinator.KeysList](w, r, "/v1/keys/acme"); list.Keys[0].LastUsed == nil || list.Keys[0].LastUsed.Unix() != at {
		t.Errorf("%+v", list.Keys[0])
	}
}
