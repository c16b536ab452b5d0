package allocation

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// KindKey is the kind of a Document that is a caller's key. Its name is the key's fingerprint.
const KindKey = "key"

// Bounds of keys.
const (
	MaxCapabilities = 64
	keyPrefix       = "tranche_key_"
	keyCredential   = "key:"
	keySecretBytes  = 20 // of randomness
	anyCapability   = "*"
)

// Key is a caller's key, scoped to one tenant and to capabilities. Its text is shown once, when it is issued; what is stored
// is a keyed hash. The name scopes admission ids: a rotation issues a second key of the same name, and both are valid until
// the older one ends. A revocation is Final: the key is never valid again.
//
//	tranche_key_NAME_SECRET      the text; NAME has no underscore
//	fp_0f3a…                     its fingerprint: how it is found, and how everybody speaks of it
type Key struct {
	Name         string   `json:"name"`
	Tenant       string   `json:"tenant"`              // the only value of the label tenant that it may send
	Capabilities []string `json:"capabilities"`        // the values of the label capability that it may send; "*": any, or none
	Essential    bool     `json:"essential,omitempty"` // it may say that a request is essential
	// MaxEvidenceAge is the greatest age of the coordinator's word to admit the key on: a region that is cut off for longer may have
	// missed its revocation. 0: any age.
	MaxEvidenceAge Duration `json:"max_evidence_age,omitempty"`
	Until          Instant  `json:"until,omitempty"` // it is valid before; 0: it does not expire
	Made           Instant  `json:"made"`
	By             string   `json:"by"`
	Revoked        *Lifted  `json:"revoked,omitempty"`
	Replaced       bool     `json:"replaced,omitempty"` // a rotation made the next one of its name, and set its end
	Lasts          Duration `json:"lasts,omitempty"`    // of one that is replaced: that it was issued for; 0: it would not have expired
	Salt           string   `json:"salt"`               // hex
	Hash           string   `json:"hash"`               // hex: see Presented
}

// Key reads a document of KindKey.
func (d Document) Key() (Key, error) {
	var k Key
	if d.Kind != KindKey {
		return k, fmt.Errorf("%s %s is no key", d.Kind, d.Name)
	}
	err := json.Unmarshal(d.Body, &k)
	return k, err
}

// Presented is a key as a caller showed it. The text is not in it: what is compared is a hash of it, keyed by the salt of
// the key that the fingerprint finds.
type Presented struct {
	Name        string
	Fingerprint string
	proof       [sha256.Size]byte
}

// Present reads the text of a key. It says nothing about whether there is such a key; false: the text is none.
func Present(text string) (Presented, bool) {
	rest, ours := strings.CutPrefix(text, keyPrefix)
	name, secret, ok := strings.Cut(rest, "_")
	if !ours || !ok || !ValidRegion(name) || secret == "" {
		return Presented{}, false
	}
	return Presented{Name: name, Fingerprint: Fingerprint(text), proof: sha256.Sum256([]byte("tranche proof\n" + text))}, true
}

// LooksLikeKey says whether a text means to be a key, also one that is mangled: it is never taken for another credential.
func LooksLikeKey(text string) bool { return strings.HasPrefix(text, keyPrefix) }

// Credential is the name that scopes the admission ids of the key: no gateway's name has a colon.
func (p Presented) Credential() string { return keyCredential + p.Name }

// IsKeyCredential says whether an admission id's credential is that of a key.
func IsKeyCredential(name string) bool { return strings.HasPrefix(name, keyCredential) }

// String keeps the proof out of whatever prints it.
func (p Presented) String() string { return p.Fingerprint }

// GoString is String.
func (p Presented) GoString() string { return p.Fingerprint }

// KeyText makes the text of a key from 20 random bytes in hex.
func KeyText(name, secret string) string { return keyPrefix + name + "_" + secret }

// Seal sets what the key is compared with.
func (k Key) Seal(text, salt string) (Key, error) {
	p, ok := Present(text)
	if !ok || p.Name != k.Name || len(salt) < 2*16 {
		return k, fmt.Errorf("key %s cannot be sealed: its text or its salt is not one", k.Name)
	}
	k.Salt, k.Hash = salt, hex.EncodeToString(p.hash(salt))
	return k, nil
}

func (p Presented) hash(salt string) []byte {
	h := hmac.New(sha256.New, []byte(salt))
	h.Write(p.proof[:])
	return h.Sum(nil)
}

// matches compares in constant time.
func (p Presented) matches(k *Key) bool {
	want, err := hex.DecodeString(k.Hash)
	return hmac.Equal(p.hash(k.Salt), want) && err == nil && len(want) == sha256.Size
}

// Validate returns Problems that name the field, or nil.
func (k Key) Validate() error {
	var found Problems
	if !ValidRegion(k.Name) {
		found.add("name", fmt.Sprintf("%.70q is not a key's name", k.Name), "use 1 to 63 of a-z 0-9 -")
	}
	if problem := valueProblem(k.Tenant); problem != "" {
		found.add("tenant", problem, "name the one tenant that the key speaks for, as the label tenant has it")
	}
	if len(k.Capabilities) == 0 || len(k.Capabilities) > MaxCapabilities {
		found.add("capabilities", fmt.Sprintf("are %d", len(k.Capabilities)), fmt.Sprintf("name 1 to %d values of the label capability, or \"*\" for all", MaxCapabilities))
	}
	for i, c := range k.Capabilities {
		switch problem := valueProblem(c); {
		case problem != "":
			found.add("capabilities", problem, "use values as the label capability has them")
		case slices.Contains(k.Capabilities[:i], c):
			found.add("capabilities", fmt.Sprintf("name %q twice", c), "name each once")
		case c == anyCapability && len(k.Capabilities) > 1:
			found.add("capabilities", "name others beside \"*\"", "\"*\" is all: leave the others out, or it")
		}
	}
	if k.MaxEvidenceAge < 0 || k.MaxEvidenceAge > MaxMaxEvidenceAge {
		found.add("max_evidence_age", fmt.Sprintf("is %s", k.MaxEvidenceAge), fmt.Sprintf("use 1s to %s, or leave it out for a key that is admitted on evidence of any age", MaxMaxEvidenceAge))
	}
	if k.Until != 0 && k.Until <= k.Made {
		found.add("for", "ends before it begins", "give a duration such as 90d, or leave it out for a key that does not expire")
	}
	return found.err()
}

// over says why the key is not valid any more, or empty.
func (k *Key) over(now Instant) string {
	switch {
	case k.Revoked != nil:
		return "the key was revoked"
	case k.Until != 0 && now >= k.Until:
		return "the key has expired"
	}
	return ""
}

// Life is how long the key was issued for, whatever end a rotation set; 0: it would not have expired.
func (k *Key) Life() Duration {
	switch {
	case k.Replaced:
		return k.Lasts
	case k.Until == 0:
		return 0
	}
	return Duration(k.Until - k.Made)
}

// State is what the key is now, in a word.
func (k Key) State(now Instant) string {
	switch {
	case k.Revoked != nil:
		return "revoked"
	case k.over(now) != "":
		return "expired"
	}
	return "valid"
}

// Public is the key without what it is compared with.
func (k Key) Public() Key {
	k.Salt, k.Hash = "", ""
	return k
}
