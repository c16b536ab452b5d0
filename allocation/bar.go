package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	tenantLabel = "tenant"
)

// policy is what the documents of a catalogue say of requests, found fast. It is never changed, only made anew.
type policy struct {
	keys   map[string]*Key // by fingerprint
	blocks map[string]namedBlock

	byLabel       map[string][]namedBlock // by the first of a block's labels, as name=value
	byFingerprint map[string][]namedBlock // blocks that name no label
}

type namedBlock struct {
	name string
	Block
}

// with is the policy after documents changed.
func (p *policy) with(changed []Document) *policy {
	out := &policy{keys: p.keys, blocks: p.blocks, byLabel: p.byLabel, byFingerprint: p.byFingerprint}
	keys, blocks := false, false
	for _, d := range changed {
		switch d.Kind {
		case KindKey:
			if k, err := d.Key(); err == nil {
				if !keys {
					keys, out.keys = true, cloned(p.keys)
				}
				out.keys[d.Name] = &k
			}
		case KindBlock:
			if b, err := d.Block(); err == nil {
				if !blocks {
					blocks, out.blocks = true, cloned(p.blocks)
				}
				out.blocks[d.Name] = namedBlock{d.Name, b}
			}
		}
	}
	if blocks {
		out.index()
	}
	return out
}

func cloned[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return maps.Clone(m)
}

// index sorts the blocks that are in force under one of their labels: a request looks at those of its own labels only.
func (p *policy) index() {
	p.byLabel, p.byFingerprint = map[string][]namedBlock{}, map[string][]namedBlock{}
	for _, name := range slices.Sorted(maps.Keys(p.blocks)) {
		b := p.blocks[name]
		switch labels := slices.Sorted(maps.Keys(b.Match)); {
		case b.Lifted != nil:
		case len(labels) > 0:
			at := labels[0] + "=" + b.Match[labels[0]]
			p.byLabel[at] = append(p.byLabel[at], b)
		default:
			p.byFingerprint[b.Fingerprint] = append(p.byFingerprint[b.Fingerprint], b)
		}
	}
}

func (b namedBlock) words() string {
	return fmt.Sprintf("block %s (%s) is in force until %s", b.name, b.Says(), b.Until)
}

// blocked finds the block that a request falls under: of several, the first by name.
func (p *policy) blocked(region string, labels Labels, fingerprint string, now Instant) (hit namedBlock, found bool) {
	look := func(list []namedBlock) {
		for _, b := range list {
			if b.Counts(region, now) && b.hits(labels, fingerprint) && (!found || b.name < hit.name) {
				hit, found = b, true
			}
		}
	}
	if len(p.byLabel) > 0 {
		for name, value := range labels {
			look(p.byLabel[name+"="+value])
		}
	}
	if fingerprint != "" {
		look(p.byFingerprint[fingerprint])
	}
	return hit, found
}

// KeyOf is the key that a caller showed, if it is one of this deployment, valid or not.
func (c *Catalogue) KeyOf(p Presented) (Key, bool) {
	k := c.policy.keys[p.Fingerprint]
	if k == nil {
		p.matches(&Key{Salt: p.Fingerprint}) // takes as long as a key that is there
		return Key{}, false
	}
	return *k, p.matches(k) && k.Name == p.Name
}

// Bars says why a request may not even be looked at, in this order: a block, the caller's key, what the key may do. It comes
// before whatever budgets, ids and shares say, so a revocation wins over what is left, and over a replay. Settle and release
// of what was admitted are taken all the same, from a block's target and from a key that is over.
func (c *Catalogue) Bars(r Request, now Instant) (Reason, string) {
	if r.Op == Lapse {
		return "", ""
	}
	if r.admits() {
		r.Labels = c.Complete(r.Labels)
	}
	ends := r.Op == Settle || r.Op == Release
	if b, hit := c.blockOn(r, now); hit {
		return Blocked, b.words()
	}
	if r.Presented == (Presented{}) {
		return "", ""
	}
	k, known := c.KeyOf(r.Presented)
	switch over := k.over(now); {
	case !known:
		return KeyUnknown, "no key of this deployment has this text; look at its fingerprint with: tranche keys show"
	case over != "" && !ends:
		return KeyRevoked, over + "; use the one that took its place"
	case r.Key.Tenant != k.Tenant:
		return ScopeDenied, fmt.Sprintf("key %s speaks for tenant %s, and the request names %s", k.Name, k.Tenant, named(r.Key.Tenant))
	case !r.admits():
		return "", ""
	}
	return k.exceeded(r)
}

// blockOn finds the block that a request, its labels completed, falls under.
func (c *Catalogue) blockOn(r Request, now Instant) (namedBlock, bool) {
	labels := r.Labels
	switch r.Op {
	case Settle, Release, Lapse:
		return namedBlock{}, false
	case Extend:
		labels = Labels{tenantLabel: r.Key.Tenant}
	}
	return c.policy.blocked(c.Region, labels, r.fingerprint(), now)
}

// blockOnMore finds the block that an admission falls under by what is known of it, so that nothing more is reserved for it: its
// tenant, its capability and its key. Whoever extends it names neither capability nor key again. Other labels are not kept.
func (c *Catalogue) blockOnMore(r Request, a *Admission, now Instant) (namedBlock, bool) {
	labels := Labels{tenantLabel: a.Tenant, LabelCapability: a.First.Capability}
	b, hit := c.policy.blocked(c.Region, labels, a.First.Fingerprint, now)
	if !hit && r.fingerprint() != a.First.Fingerprint {
		b, hit = c.policy.blocked(c.Region, labels, r.fingerprint(), now)
	}
	return b, hit
}

// exceeded says what of an admission the key may not ask for.
func (k *Key) exceeded(r Request) (Reason, string) {
	capability := r.Labels[LabelCapability]
	if !slices.Contains(k.Capabilities, anyCapability) && !slices.Contains(k.Capabilities, capability) {
		return ScopeDenied, fmt.Sprintf("key %s is for capability %s, and the request names %s", k.Name, strings.Join(k.Capabilities, ", "), named(capability))
	}
	if r.priority() == Essential && !k.Essential {
		return ScopeDenied, fmt.Sprintf("key %s may not say that a request is essential; use interactive or batch", k.Name)
	}
	return "", ""
}

func named(value string) string {
	if value == "" {
		return "none"
	}
	return value
}

// fingerprint is that of the caller's key, or the external one that a trusted gateway names.
func (r Request) fingerprint() string {
	if r.Presented.Fingerprint != "" {
		return r.Presented.Fingerprint
	}
	return r.Fingerprint
}
