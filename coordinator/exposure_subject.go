package coordinator

import (
	"fmt"
	"slices"

	"tranche/allocation"
)

// subject is whose requests are meant, as labels that are known and those of which several are possible.
type subject struct {
	ExposedSubject
	cut *Cut
}

func (s *Service) subjectOf(q *ExposureQuery) (subject, error) {
	if q.Key == "" {
		x := subject{ExposedSubject: ExposedSubject{Tenant: q.Tenant}}
		if q.Capability != "" {
			x.Capabilities = []string{q.Capability}
		}
		return x, nil
	}
	found := s.state.keysOf(q.Key)
	if len(found) == 0 {
		fix := "name one as `tranche keys list` shows it"
		if allocation.ValidFingerprint(q.Key) {
			fix = "it is no key of this deployment; of an external key only the gateway knows the tenant: ask by --tenant"
		}
		return subject{}, invalid(askKey, fmt.Sprintf("there is no key %.70q", q.Key), fix)
	}
	d := found[0]
	k, err := d.Key()
	if err != nil {
		return subject{}, err
	}
	x := subject{ExposedSubject: ExposedSubject{Fingerprint: d.Name, Name: k.Name, Tenant: k.Tenant, Capabilities: k.Capabilities}}
	if slices.Contains(k.Capabilities, "*") {
		x.Capabilities = nil
	}
	if q.Since == 0 {
		q.Since = k.Made
	}
	for _, ref := range s.state.sortedDocuments(allocation.KindKey) {
		other, err := s.state.documents[ref].value.Key()
		ended := other.Until != 0 && other.Until <= q.Since || other.Revoked != nil && other.Revoked.At <= q.Since
		if err == nil && other.Name == k.Name && ref.Name != d.Name && !ended {
			x.OtherKeys = append(x.OtherKeys, ref.Name)
		}
	}
	switch state := k.State(s.instant()); {
	case k.Revoked != nil:
		x.cut = &Cut{How: CutRevoked, At: k.Revoked.At, Number: d.Number}
	case state == "expired":
		x.cut = &Cut{How: CutExpired, At: k.Until, Number: d.Number}
	}
	return x, nil
}

// blocked notes the oldest block that refuses all of the subject everywhere, unless it is cut already.
func (x *subject) blocked(s *Service) {
	now := s.instant()
	for _, ref := range s.state.sortedDocuments(allocation.KindBlock) {
		d := s.state.documents[ref].value
		b, err := d.Block()
		if err != nil || len(b.Regions) > 0 || b.Lifted != nil || now >= b.Until {
			continue
		}
		if _, every := x.hitBy(b); !every {
			continue
		}
		if x.cut == nil || x.cut.How == CutBlocked && d.Number < x.cut.Number {
			x.cut = &Cut{How: CutBlocked, Block: ref.Name, At: b.From, Number: d.Number, Until: &b.Until}
		}
	}
}

// hitBy says whether a block refuses some, and whether it refuses every request of the subject.
func (x ExposedSubject) hitBy(b allocation.Block) (some, every bool) {
	some, every = x.meets(b.Match)
	switch {
	case b.Fingerprint == "":
		return some, every
	case x.Fingerprint == "": // of all that a tenant or a capability sends, what comes with that key
		return some, false
	}
	same := b.Fingerprint == x.Fingerprint
	return some && same, every && same
}

// meets says whether some, and whether every request of the subject may carry these labels.
func (x ExposedSubject) meets(match map[string]string) (some, every bool) {
	some, every = true, true
	for label, value := range match {
		switch {
		case label == askTenant && x.Tenant != "":
			some = some && value == x.Tenant
		case label == askCapability && len(x.Capabilities) > 0:
			some = some && slices.Contains(x.Capabilities, value)
			every = every && len(x.Capabilities) == 1
		default:
			every = false
		}
	}
	return some, some && every
}

// RegionBlock is a block that counts in one region only.
type RegionBlock struct {
	ID    string             `json:"id"`
	Says  string             `json:"says"`
	Until allocation.Instant `json:"until"`
	Every bool               `json:"every"` // it refuses every request of the subject; else some
	By    string             `json:"by"`
	Told  bool               `json:"told"` // the coordinator knows of it
}

// blocksIn are the blocks in force that count in a region alone and refuse some of the subject.
func (x ExposedSubject) blocksIn(s *Service, region string) (list []RegionBlock) {
	now := s.instant()
	for _, ref := range s.state.sortedDocuments(allocation.KindBlock) {
		b, err := s.state.documents[ref].value.Block()
		if err != nil || len(b.Regions) == 0 || !b.Counts(region, now) {
			continue
		}
		if r, some := x.RegionBlock(ref.Name, b); some {
			r.Told = true
			list = append(list, r)
		}
	}
	return list
}

// RegionBlock is a block as the exposure shows it; false: it refuses nothing of the subject.
func (x ExposedSubject) RegionBlock(id string, b allocation.Block) (RegionBlock, bool) {
	some, every := x.hitBy(b)
	return RegionBlock{ID: id, Says: b.Says(), Until: b.Until, Every: every, By: b.By}, some
}
