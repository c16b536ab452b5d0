package regional

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"tranche/allocation"
)

// maxDoubtful bounds the calls under way with keys that this node does not know: each asks the database, since the key may
// have been issued a moment ago. Beyond it they are refused from memory, so that made-up keys keep nobody from being served.
const maxDoubtful = 32

// fingerprintHeader names an external key that a trusted gateway saw, by its fingerprint.
const fingerprintHeader = "Tranche-Key-Fingerprint"

type presentedKey struct{}

// keyIn finds a key among the values of an Authorization header. What looks like one is never taken for another credential.
func keyIn(given []string) (text string, found bool) {
	for _, value := range given {
		_, secret, _ := strings.Cut(value, " ")
		for _, t := range []string{strings.TrimSpace(secret), strings.TrimSpace(value)} {
			if allocation.LooksLikeKey(t) {
				return t, true
			}
		}
	}
	return "", false
}

// presented reads a key that a caller sent, for a route that takes keys.
func (a *api) presented(given []string, keys bool) (p allocation.Presented, found bool, refused *fault) {
	text, found := keyIn(given)
	if !found {
		return p, false, nil
	}
	if len(given) > 1 {
		return p, true, &fault{kind: tokenMissing, detail: "send one Authorization header, with Bearer and the key"}
	}
	p, whole := allocation.Present(text)
	switch {
	case !whole:
		f := reasonFault(allocation.KeyUnknown, "the key is not whole; copy it again, as it was shown when it was issued")
		return p, true, &f
	case !keys:
		f := reasonFault(allocation.ScopeDenied, "a caller's key is for admissions; this needs a gateway's token")
		return p, true, &f
	}
	return p, true, nil
}

func withKey(r *http.Request, p allocation.Presented) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), presentedKey{}, p))
}

// keyOf is the key that the call came with; zero: it came with a gateway's token.
func keyOf(ctx context.Context) allocation.Presented {
	p, _ := ctx.Value(presentedKey{}).(allocation.Presented)
	return p
}

// doubt takes a place for a call whose key this node does not know. Without one it is refused from memory.
func (a *api) doubt(p allocation.Presented) (leave func(), refused *fault) {
	if p == (allocation.Presented{}) {
		return func() {}, nil
	}
	if _, known := a.Catalogue().KeyOf(p); known {
		return func() {}, nil
	}
	select {
	case a.doubtful <- struct{}{}:
		return func() { <-a.doubtful }, nil
	default:
		f := reasonFault(allocation.KeyUnknown, "the key is not known to this node")
		return nil, &f
	}
}

// barsReading is why the caller's key may not read about a tenant's admissions; nil: it may, or a gateway asks.
func (a *api) barsReading(ctx context.Context, tenant string) *fault {
	p := keyOf(ctx)
	if p == (allocation.Presented{}) {
		return nil
	}
	r := allocation.Request{Op: allocation.Extend, Key: allocation.IDKey{Tenant: tenant}, Presented: p}
	reason, why := a.Catalogue().Bars(r, allocation.At(a.config.Now()))
	if reason == "" {
		return nil
	}
	f := reasonFault(reason, why)
	return &f
}

// overreaches is the answer to a call of a gateway that asks for more than its credential may: nothing is decided. What a
// key may do is decided with the request, by what the owner has stored.
func (a *api) overreaches(caller string, b *callBody) *fault {
	if allocation.IsKeyCredential(caller) {
		if b.anyFingerprint() {
			return invalid(allocation.FieldError{Field: "key_fingerprint", Problem: "is for a gateway that saw another key", Fix: "leave it out: the key that the call comes with counts"})
		}
		if b.anyForNothing() {
			return invalid(allocation.FieldError{Field: "costs.requests", Problem: "is 0", Fix: "leave it out: a request costs 1; only a gateway may say that one costs nothing"})
		}
		return nil
	}
	t, known := a.tokens().of(caller)
	essential := b.priority == allocation.Essential
	for i := range b.items {
		essential = essential || b.items[i].priority == allocation.Essential
	}
	if essential && !a.tokens().mayBeEssential(caller) {
		return a.beyond(caller, b, "priority: credential "+caller+" may not say essential; use interactive or batch, or write essential behind its token in the node's token file")
	}
	if !known || len(t.Limits) == 0 {
		return nil
	}
	bodies := b.items
	if len(bodies) == 0 {
		bodies = []callBody{*b}
	}
	for i := range bodies {
		if over := t.Limits.exceeded(a.Catalogue().Complete(bodies[i].labels)); over != "" {
			return a.beyond(caller, &bodies[i], over+"; credential "+caller+" is limited in the node's token file")
		}
	}
	return nil
}

// speaksFor is the answer to a call about an admission of a tenant that the gateway's credential is not limited to.
func (a *api) speaksFor(caller, tenant string) *fault {
	t, _ := a.tokens().of(caller)
	allowed := t.Limits[tenantLabel]
	if len(allowed) == 0 || slices.Contains(allowed, tenant) || slices.Contains(allowed, anyValue) && tenant != "" {
		return nil
	}
	f := reasonFault(allocation.ScopeDenied, "tenant: credential "+caller+" is limited to "+strings.Join(allowed, " or ")+" in the node's token file")
	return &f
}

// listsAll is the answer to a call for lists of all tenants, of a credential that is limited to some of them.
func (a *api) listsAll(caller string) *fault {
	if t, _ := a.tokens().of(caller); len(t.Limits) == 0 {
		return nil
	}
	f := reasonFault(allocation.ScopeDenied, "credential "+caller+" is limited in the node's token file, and this lists what is of all tenants; use one without limits")
	return &f
}

func (b *callBody) anyFingerprint() bool {
	return b.fingerprint != "" || slices.ContainsFunc(b.items, func(i callBody) bool { return i.fingerprint != "" })
}

// anyForNothing says whether a request is to be admitted that claims to be none.
func (b *callBody) anyForNothing() bool {
	n, said := b.costs["requests"]
	return said && n < 1 && b.op != allocation.Settle || slices.ContainsFunc(b.items, func(i callBody) bool { return i.anyForNothing() })
}

// forKey leaves what a caller with a key of its own may see: the evidence and the accounts are the gateways' and operators'.
func (b *answerBody) forKey() {
	b.Budgets = []budgetBody{}
	b.Evidence = evidenceBody{
		Correlation: b.Evidence.Correlation, Tenant: b.Evidence.Tenant, Credential: b.Evidence.Credential,
		Priority: b.Evidence.Priority, Fingerprint: b.Evidence.Fingerprint,
	}
}
