package allocation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const testSecret = "0123456789abcdef0123456789abcdef01234567"

// acmeKey is a key of tenant acme, its text and its document.
func acmeKey(edit func(*Key)) (string, Document) {
	text := KeyText("acme", testSecret)
	k, err := Key{Name: "acme", Tenant: "acme", Capabilities: []string{"*"}, Made: 1, By: "op"}.Seal(text, strings.Repeat("5a", 16))
	if err != nil {
		panic(err)
	}
	if edit != nil {
		edit(&k)
	}
	return text, Document{Kind: KindKey, Name: Fingerprint(text), Version: 1, Number: 1, Final: k.Revoked != nil, Body: body(k)}
}

func body(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return out
}

func blockOf(name string, b Block) Document {
	return Document{Kind: KindBlock, Name: name, Version: 1, Number: 1, Final: b.Lifted != nil, Body: body(b)}
}

func withDocuments(documents ...Document) func(*faulty) {
	return func(f *faulty) {
		f.late = append(f.late, func() { f.Catalogue = f.Catalogue.WithDocuments(documents) })
	}
}

// withKey lets the request come with a key, unless it has one.
func withKey(edit func(*Key)) func(*faulty) {
	text, d := acmeKey(edit)
	return func(f *faulty) {
		if f.r.Presented == (Presented{}) {
			f.r.Presented, _ = Present(text)
		}
		withDocuments(d)(f)
	}
}

// What a key may do. If this fails, a tenant's key spends another's budget, or a revoked one still spends.
func TestKeys(t *testing.T) {
	text, valid := acmeKey(nil)
	_, export := acmeKey(func(k *Key) { k.Capabilities = []string{"export", "search"} })
	_, expired := acmeKey(func(k *Key) { k.Until = firstMinute })
	_, revoked := acmeKey(func(k *Key) { k.Revoked = &Lifted{At: 1, By: "op"} })
	_, otherHash := acmeKey(func(k *Key) { k.Hash = strings.Repeat("0", 64) })
	_, otherName := acmeKey(func(k *Key) { k.Name = "globex" })
	_, noHash := acmeKey(func(k *Key) { k.Hash, k.Salt = "", "" })
	for name, c := range map[string]struct {
		key    Document
		text   string
		tenant string
		labels Labels
		all    Reason // spend, reserve, check, extend
		ends   Reason // settle, release
	}{
		"valid":               {key: valid},
		"another text":        {key: valid, text: KeyText("acme", "ffff"), all: KeyUnknown, ends: KeyUnknown},
		"another name":        {key: otherName, all: KeyUnknown, ends: KeyUnknown},
		"another hash":        {key: otherHash, all: KeyUnknown, ends: KeyUnknown},
		"no hash":             {key: noHash, all: KeyUnknown, ends: KeyUnknown},
		"expired":             {key: expired, all: KeyRevoked},
		"revoked":             {key: revoked, all: KeyRevoked},
		"another tenant":      {key: valid, tenant: "globex", all: ScopeDenied, ends: ScopeDenied},
		"no tenant":           {key: valid, tenant: "-", all: ScopeDenied, ends: ScopeDenied},
		"its capability":      {key: export, labels: Labels{"capability": "search"}},
		"another capability":  {key: export, labels: Labels{"capability": "delete"}, all: ScopeDenied},
		"no capability":       {key: export, all: ScopeDenied},
		"revoked, other's":    {key: revoked, tenant: "globex", all: KeyRevoked, ends: ScopeDenied},
		"a document of none":  {key: Document{Kind: "note", Name: valid.Name, Version: 1, Body: valid.Body}, all: KeyUnknown, ends: KeyUnknown},
		"a body that is none": {key: Document{Kind: KindKey, Name: valid.Name, Version: 1, Body: []byte(`"x"`)}, all: KeyUnknown, ends: KeyUnknown},
	} {
		catalogue := NewCatalogue("here").WithDocuments([]Document{c.key})
		for _, op := range []Op{Spend, Reserve, Check, Extend, Settle, Release, Lapse} {
			r := request(op, "x", requests(1))
			if c.text == "" {
				c.text = text
			}
			r.Presented, _ = Present(c.text)
			if r.Labels["capability"] = c.labels["capability"]; c.labels == nil {
				delete(r.Labels, "capability")
			}
			if c.tenant != "" {
				r.Labels["tenant"], r.Key.Tenant = strings.Trim(c.tenant, "-"), strings.Trim(c.tenant, "-")
			}
			want := c.all
			switch op {
			case Settle, Release:
				want = c.ends
			case Extend:
				if name == "another capability" || name == "no capability" {
					want = "" // it was admitted
				}
			case Lapse:
				want = ""
			}
			if got, why := catalogue.Bars(r, firstMinute); got != want || (got != "") != (why != "") {
				t.Errorf("%s: %s is %q (%s), want %q", name, op, got, why, want)
			}
		}
	}
}

// A block wins over everything but the end of what was admitted, ends by itself, and counts where it is to count.
func TestBlocks(t *testing.T) {
	text, key := acmeKey(nil)
	external := Fingerprint("sk-external")
	for name, c := range map[string]struct {
		block Block
		hit   bool
	}{
		"tenant":             {Block{Match: Labels{"tenant": "acme"}, Until: firstMinute + 1}, true},
		"its end":            {Block{Match: Labels{"tenant": "acme"}, Until: firstMinute}, false},
		"lifted":             {Block{Match: Labels{"tenant": "acme"}, Until: firstMinute + 1, Lifted: &Lifted{By: "op"}}, false},
		"another tenant":     {Block{Match: Labels{"tenant": "globex"}, Until: firstMinute + 1}, false},
		"both labels":        {Block{Match: Labels{"tenant": "acme", "caller": "kim"}, Until: firstMinute + 1}, true},
		"one label differs":  {Block{Match: Labels{"tenant": "acme", "caller": "lee"}, Until: firstMinute + 1}, false},
		"this region":        {Block{Match: Labels{"tenant": "acme"}, Regions: []string{"there", "here"}, Until: firstMinute + 1}, true},
		"another region":     {Block{Match: Labels{"tenant": "acme"}, Regions: []string{"there"}, Until: firstMinute + 1}, false},
		"its own key":        {Block{Fingerprint: Fingerprint(text), Until: firstMinute + 1}, true},
		"another key":        {Block{Fingerprint: external, Until: firstMinute + 1}, false},
		"key and label":      {Block{Fingerprint: Fingerprint(text), Match: Labels{"tenant": "acme"}, Until: firstMinute + 1}, true},
		"key, other's label": {Block{Fingerprint: Fingerprint(text), Match: Labels{"tenant": "globex"}, Until: firstMinute + 1}, false},
	} {
		catalogue := NewCatalogue("here").WithDocuments([]Document{key, blockOf("b-1", c.block), blockOf("b-0", Block{Match: Labels{"tenant": "initech"}, Until: firstMinute + 9999})})
		for _, op := range []Op{Spend, Reserve, Check, Settle, Release, Lapse} {
			r := request(op, "x", requests(1))
			r.Presented, _ = Present(text)
			want := Reason("")
			if c.hit && r.admits() {
				want = Blocked
			}
			if got, _ := catalogue.Bars(r, firstMinute); got != want {
				t.Errorf("%s: %s is %q, want %q", name, op, got, want)
			}
		}
	}
	// An external key is blocked by the fingerprint that a trusted gateway names; the gateway's own word about ours counts less.
	catalogue := NewCatalogue("here").WithDocuments([]Document{blockOf("b-1", Block{Fingerprint: external, Until: firstMinute + 1})})
	r := request(Spend, "x", requests(1))
	for f, want := range map[string]Reason{"": "", external: Blocked, Fingerprint("sk-other"): ""} {
		r.Fingerprint = f
		if got, _ := catalogue.Bars(r, firstMinute); got != want {
			t.Errorf("an external key %s: %q", f, got)
		}
	}
	// What extends a reservation of a blocked tenant prolongs what is to end.
	catalogue = NewCatalogue("here").WithDocuments([]Document{blockOf("b-1", Block{Match: Labels{"tenant": "acme"}, Until: firstMinute + 1})})
	if got, _ := catalogue.Bars(Request{Op: Extend, Key: IDKey{Tenant: "acme", ID: "x"}}, firstMinute); got != Blocked {
		t.Errorf("extend: %q", got)
	}
}

// Revocation and block win over a replay, and over a budget that has plenty; the settle of what was admitted is taken.
func TestARevocationWinsOverAReplay(t *testing.T) {
	text, valid := acmeKey(nil)
	_, revoked := acmeKey(func(k *Key) { k.Revoked = &Lifted{At: 1, By: "op"} })
	for name, end := range map[Reason]Document{
		KeyRevoked: revoked, Blocked: blockOf("b-1", Block{Match: Labels{"tenant": "acme"}, Until: firstMinute + 3600}),
	} {
		l := newOwner(granted{testBudget("a", "requests", 100), 50})
		l.Catalogue = l.Catalogue.WithDocuments([]Document{valid})
		ask := func(op Op, id string, n int64) Decision {
			r := request(op, id, requests(n))
			r.Presented, _ = Present(text)
			r.Key.Credential = r.Presented.Credential()
			return l.put(r)
		}
		if d := ask(Reserve, "one", 5); !d.Admitted() || d.Evidence.Fingerprint != Fingerprint(text) {
			t.Fatalf("%+v", d)
		}
		l.Catalogue = l.Catalogue.WithDocuments([]Document{end, valid}) // and what was before does not come back
		for _, id := range []string{"one", "two"} {
			if d := ask(Reserve, id, 5); d.Reason != name || l.account("a") != "0/5/0" {
				t.Errorf("%s of id %s: %s, %s", name, id, d.Reason, l.account("a"))
			}
		}
		if d := ask(Settle, "one", 3); !d.Admitted() || l.account("a") != "3/0/0" {
			t.Errorf("%s: a settle is %s, %s", name, d.Reason, l.account("a"))
		}
	}
}

// A block of a capability, or of an external key, stops what is reserved from growing as well, though whoever extends it names
// neither; what it holds is settled. If this fails, a runaway export that was blocked goes on for as long as it is extended.
func TestABlockEndsExtensions(t *testing.T) {
	external := Fingerprint("sk-external")
	for name, c := range map[string]struct {
		block Block
		want  Reason
	}{
		"its capability":            {Block{Match: Labels{"capability": "export"}}, Blocked},
		"tenant and its capability": {Block{Match: Labels{"tenant": "acme", "capability": "export"}}, Blocked},
		"its key":                   {Block{Fingerprint: external}, Blocked},
		"its key and capability":    {Block{Fingerprint: external, Match: Labels{"capability": "export"}}, Blocked},
		"another capability":        {Block{Match: Labels{"tenant": "acme", "capability": "search"}}, Allow},
		"another tenant's":          {Block{Match: Labels{"tenant": "globex", "capability": "export"}}, Allow},
		"another key":               {Block{Fingerprint: Fingerprint("sk-other")}, Allow},
		"another region":            {Block{Match: Labels{"capability": "export"}, Regions: []string{"there"}}, Allow},
	} {
		l := newOwner(granted{testBudget("a", "requests", 100), 50})
		r := request(Reserve, "x", requests(5))
		r.Labels["capability"], r.Fingerprint = "export", external
		l.put(r)
		c.block.Until = firstMinute + 3600
		l.Catalogue = l.Catalogue.WithDocuments([]Document{blockOf("b-1", c.block)})
		d, account := l.ask(Extend, "x", requests(9)), map[Reason]string{Blocked: "0/5/0", Allow: "0/9/0"}[c.want]
		if d.Reason != c.want || d.State != StateReserved || l.account("a") != account {
			t.Errorf("%s: %s, state %s, %s", name, d.Reason, d.State, l.account("a"))
		}
		if c.want == Blocked {
			record, d := kept(t, l, request(Extend, "x", requests(9)))
			sameAgain(t, name, record, d)
		}
		if d := l.ask(Settle, "x", requests(3)); !d.Admitted() || l.account("a") != "3/0/0" {
			t.Errorf("%s: a settle is %s, %s", name, d.Reason, l.account("a"))
		}
	}
	// Who extends with a key that is blocked, an admission of another key of the name.
	l := newOwner(granted{testBudget("a", "requests", 100), 50})
	l.ask(Reserve, "x", requests(5))
	l.Catalogue = l.Catalogue.WithDocuments([]Document{blockOf("b-1", Block{Fingerprint: external, Until: firstMinute + 3600})})
	r := request(Extend, "x", requests(9))
	if r.Fingerprint = external; l.put(r).Reason != Blocked {
		t.Error("a blocked key extends")
	}
}

// Whatever prints a key as it was shown prints nothing that opens anything.
func TestAPresentedKeyPrintsAsItsFingerprint(t *testing.T) {
	text := KeyText("acme", testSecret)
	p, ok := Present(text)
	if !ok || p.Credential() != "key:acme" || !IsKeyCredential(p.Credential()) || !ValidFingerprint(p.Fingerprint) {
		t.Fatalf("%+v", p)
	}
	shown := fmt.Sprintf("%v %+v %#v %s", p, p, p, p) + string(body(p)) + string(body(Request{Presented: p}))
	if strings.Contains(shown, testSecret) || !strings.Contains(shown, p.Fingerprint) {
		t.Errorf("it prints as %s", shown)
	}
	for _, wrong := range []string{"", "tranche_key_", "tranche_key_acme", "tranche_key_acme_", "tranche_key_Acme_x", "tranche_admin_acme_x", "x" + text} {
		if _, ok := Present(wrong); ok {
			t.Errorf("%q is taken for a key", wrong)
		}
	}
}

// An end that is missing would block for ever; a reason that is missing helps nobody later.
func TestWrongKeysAndBlocksNameTheField(t *testing.T) {
	block := Block{Match: Labels{"tenant": "acme"}, From: 100, Until: 200, Reason: "leak", By: "op"}
	key := Key{Name: "acme", Tenant: "acme", Capabilities: []string{"*"}, Made: 100, By: "op"}
	if block.Validate() != nil || key.Validate() != nil {
		t.Fatal(block.Validate(), key.Validate())
	}
	for want, edit := range map[string]func(){
		"match: is missing":         func() { block.Match = nil },
		"match:":                    func() { block.Match = Labels{"Tenant": "acme"} },
		"fingerprint:":              func() { block.Fingerprint = "sk-secret" },
		"for: is missing":           func() { block.Until = 0 },
		"for: ends":                 func() { block.Until = 100 },
		"for: is longer":            func() { block.Until = 100 + 367*86400 },
		"for: is missing: a block":  func() { block.Until = Never },
		"reason:":                   func() { block.Reason = " " },
		"by:":                       func() { block.By = "" },
		"name:":                     func() { key.Name = "a_b" },
		"tenant:":                   func() { key.Tenant = "" },
		"capabilities: are 0":       func() { key.Capabilities = nil },
		"capabilities: name others": func() { key.Capabilities = []string{"*", "x"} },
		"capabilities: name \"x\"":  func() { key.Capabilities = []string{"x", "x"} },
		"capabilities:":             func() { key.Capabilities = []string{""} },
		"for: ends before":          func() { key.Until = 99 },
	} {
		b, k := block, key
		edit()
		err := block.Validate()
		if err == nil {
			err = key.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		block, key = b, k
	}
}
