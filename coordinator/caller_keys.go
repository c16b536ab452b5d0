package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// maxRotation is how long two keys, or two tokens, of one name may be valid at once.
const maxRotation = allocation.Duration(90 * allocation.Day)

// KeyRequest issues a key.
type KeyRequest struct {
	Name         string              `json:"name"`
	Tenant       string              `json:"tenant"`
	Capabilities []string            `json:"capabilities"`
	Essential    bool                `json:"essential,omitempty"`
	For          allocation.Duration `json:"for,omitempty"` // 0: it does not expire
	// MaxEvidenceAge is for how long a region that is cut off takes the key. 0: as long as it holds permits.
	MaxEvidenceAge allocation.Duration `json:"max_evidence_age,omitempty"`
}

// KeyAnswer is a key as it is listed. Key is its text, said once, when it is issued.
type KeyAnswer struct {
	Fingerprint    string              `json:"fingerprint"`
	Name           string              `json:"name"`
	Tenant         string              `json:"tenant"`
	Capabilities   []string            `json:"capabilities"`
	Essential      bool                `json:"essential,omitempty"`
	MaxEvidenceAge allocation.Duration `json:"max_evidence_age,omitempty"`
	State          string              `json:"state"` // valid, expired, revoked
	Made           allocation.Instant  `json:"made"`
	By             string              `json:"by"`
	Until          *allocation.Instant `json:"until,omitempty"`
	Revoked        *allocation.Lifted  `json:"revoked,omitempty"`
	LastUsed       *time.Time          `json:"last_used,omitempty"` // that a node told of
	Number         int64               `json:"number"`              // the configuration number of its last change
	Key            string              `json:"key,omitempty"`
	Replaces       []string            `json:"replaces,omitempty"` // of a rotation: the fingerprints that end
}

// KeysList is all keys by name, the newest of a name first.
type KeysList struct {
	Keys []KeyAnswer `json:"keys"`
}

func keyRef(fingerprint string) allocation.DocumentRef {
	return allocation.DocumentRef{Kind: allocation.KindKey, Name: fingerprint}
}

func (s *Service) answerKey(d allocation.Document) KeyAnswer {
	k, err := d.Key()
	if err != nil {
		return KeyAnswer{Fingerprint: d.Name, State: "unknown", Number: d.Number}
	}
	a := KeyAnswer{
		Fingerprint: d.Name, Name: k.Name, Tenant: k.Tenant, Capabilities: k.Capabilities, Essential: k.Essential, MaxEvidenceAge: k.MaxEvidenceAge,
		State: k.State(s.instant()), Made: k.Made, By: k.By, Revoked: k.Revoked, Number: d.Number,
	}
	if k.Until != 0 {
		a.Until = &k.Until
	}
	a.LastUsed = s.state.lastUsed(d.Name)
	return a
}

// newKey makes the text and the document's body of a key.
func (s *Service) newKey(k allocation.Key) (text string, sealed allocation.Key, err error) {
	text = allocation.KeyText(k.Name, s.random.hex(20))
	sealed, err = k.Seal(text, s.random.hex(16))
	return text, sealed, err
}

// issueKey makes a key of a name that has no valid one.
func (s *Service) issueKey(ctx context.Context, who actor, q KeyRequest) (KeyAnswer, error) {
	now := s.instant()
	k := allocation.Key{Name: q.Name, Tenant: q.Tenant, Capabilities: q.Capabilities, Essential: q.Essential, MaxEvidenceAge: q.MaxEvidenceAge, Made: now, By: who.name}
	if q.For != 0 {
		k.Until = now + allocation.Instant(q.For)
	}
	if err := k.Validate(); err != nil {
		return KeyAnswer{}, err
	}
	var answer KeyAnswer
	err := s.inTurn(ctx, func() (Change, error) {
		if valid := s.state.validKeys(q.Name, s.instant()); len(valid) > 0 {
			return Change{}, problem(409, CodeExists, fmt.Sprintf("there is a valid key of the name %s, %s", q.Name, valid[0].Name),
				"rotate it with `tranche keys rotate "+q.Name+"`, or choose another name")
		}
		text, sealed, err := s.newKey(k)
		if err != nil {
			return Change{}, err
		}
		ref := keyRef(allocation.Fingerprint(text))
		change, next, err := s.changeDocument(who, "key.issue", ref, func(*ConfigDocument) (any, bool, error) { return sealed, false, nil })
		answer = s.answerKey(next)
		answer.Key = text
		return change, err
	})
	return answer, err
}

// validKeys are the keys of a name that are valid now, the newest first: a rotation gives the key that it makes and those that it
// ends one number, so what it ended comes behind.
func (s *state) validKeys(name string, now allocation.Instant) (list []allocation.Document) {
	newest := map[string]bool{}
	for ref, d := range s.documents {
		if ref.Kind != allocation.KindKey {
			continue
		}
		if k, err := d.value.Key(); err == nil && k.Name == name && k.State(now) == "valid" {
			newest[ref.Name] = !k.Replaced
			list = append(list, d.value.Document)
		}
	}
	slices.SortFunc(list, func(a, b allocation.Document) int {
		if newest[a.Name] != newest[b.Name] {
			if newest[a.Name] {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// rotateKey issues a second key of a name, like its newest valid one, and lets those before it end after the overlap. All of
// it is one act: no caller is without a key, and no old one stays for ever.
func (s *Service) rotateKey(ctx context.Context, who actor, name string, overlap, lasts allocation.Duration) (KeyAnswer, error) {
	if overlap < 0 || overlap > maxRotation {
		return KeyAnswer{}, invalid("overlap", fmt.Sprintf("is %s", overlap), fmt.Sprintf("use 0s to %s", maxRotation))
	}
	var answer KeyAnswer
	err := s.inTurn(ctx, func() (Change, error) {
		now := s.instant()
		valid := s.state.validKeys(name, now)
		if len(valid) == 0 {
			return Change{}, notFound("valid key of the name", name)
		}
		old, err := valid[0].Key()
		if err != nil {
			return Change{}, err
		}
		k := old
		k.Made, k.By, k.Until, k.Revoked, k.Replaced, k.Lasts = now, who.name, 0, nil, false, 0
		if lasts == 0 {
			lasts = old.Life() // as long as the one before it
		}
		if lasts > 0 {
			k.Until = now + allocation.Instant(lasts)
		}
		text, sealed, err := s.newKey(k)
		if err != nil {
			return Change{}, err
		}
		change, next, err := s.changeDocument(who, "key.rotate", keyRef(allocation.Fingerprint(text)), func(*ConfigDocument) (any, bool, error) { return sealed, false, nil })
		if err != nil {
			return Change{}, err
		}
		answer = s.answerKey(next)
		answer.Key = text
		return s.endAfter(change, who, valid, now+allocation.Instant(overlap), &answer)
	})
	return answer, err
}

// endAfter adds to a change that keys end at an instant, unless they end sooner.
func (s *Service) endAfter(change Change, who actor, keys []allocation.Document, at allocation.Instant, answer *KeyAnswer) (Change, error) {
	for _, d := range keys {
		old, err := d.Key()
		if err != nil || old.Until != 0 && old.Until <= at {
			continue
		}
		more, _, err := s.changeDocument(who, "key.end", d.Ref(), func(*ConfigDocument) (any, bool, error) {
			old.Replaced, old.Lasts = true, old.Life()
			old.Until = at
			return old, false, nil
		})
		if err != nil {
			return Change{}, err
		}
		// Both have the configuration's next number: its document is read and put once.
		change.Reads, change.Puts = append(change.Reads, more.Reads[1:]...), append(change.Puts, more.Puts[1:]...)
		answer.Replaces = append(answer.Replaces, d.Name)
	}
	return change, nil
}

// revokeKey ends a key, by its fingerprint or by its name (all of that name), for good.
func (s *Service) revokeKey(ctx context.Context, who actor, nameOrFingerprint, reason string) ([]KeyAnswer, error) {
	if err := checkWhy(reason); err != nil {
		return nil, err
	}
	who.reason = reason
	var answers []KeyAnswer
	err := s.inTurn(ctx, func() (Change, error) {
		answers = nil
		var change Change
		for _, d := range s.state.keysOf(nameOrFingerprint) {
			more, next, err := s.changeDocument(who, "key.revoke", d.Ref(), func(cur *ConfigDocument) (any, bool, error) {
				k, err := cur.Key()
				if k.Revoked == nil {
					k.Revoked = &allocation.Lifted{At: s.instant(), By: who.name, Reason: reason}
				}
				return k, true, err
			})
			if err != nil {
				return Change{}, err
			}
			if d.Final {
				answers = append(answers, s.answerKey(d))
				continue
			}
			if len(change.Puts) > 0 {
				more.Reads, more.Puts = more.Reads[1:], more.Puts[1:]
			}
			change.Reads, change.Puts = append(change.Reads, more.Reads...), append(change.Puts, more.Puts...)
			answers = append(answers, s.answerKey(next))
		}
		if len(answers) == 0 {
			return Change{}, notFound("key", nameOrFingerprint)
		}
		return change, nil
	})
	return answers, err
}

// keysOf are the keys of a fingerprint or a name: valid ones, or if none is, the newest.
func (s *state) keysOf(nameOrFingerprint string) (list []allocation.Document) {
	if d := s.documents[keyRef(nameOrFingerprint)]; d != nil {
		return []allocation.Document{d.value.Document}
	}
	if list = s.validKeys(nameOrFingerprint, allocation.At(s.now())); len(list) > 0 {
		return list
	}
	for _, ref := range s.sortedDocuments(allocation.KindKey) {
		d := s.documents[ref].value.Document
		if k, err := d.Key(); err == nil && k.Name == nameOrFingerprint && (len(list) == 0 || d.Number > list[0].Number) {
			list = []allocation.Document{d}
		}
	}
	return list
}

// sortedDocuments are those of a kind by name.
func (s *state) sortedDocuments(kind string) (refs []allocation.DocumentRef) {
	for ref := range s.documents {
		if ref.Kind == kind {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, allocation.DocumentRef.Compare)
	return refs
}

func (s *Service) listKeys() KeysList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := KeysList{Keys: []KeyAnswer{}}
	for _, ref := range s.state.sortedDocuments(allocation.KindKey) {
		list.Keys = append(list.Keys, s.answerKey(s.state.documents[ref].value.Document))
	}
	slices.SortStableFunc(list.Keys, func(a, b KeyAnswer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Made, a.Made)) })
	return list
}
