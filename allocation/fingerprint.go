package allocation

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	fingerprintTag  = "fp_"
	fingerprintSize = 10 // bytes of the hash
)

// Fingerprint is the name by which a secret is spoken of: stable, the same everywhere, and of no use to whoever has it, since
// the secret cannot be found from it. A gateway that names an external key sends this of it.
func Fingerprint(secret string) string {
	sum := sha256.Sum256([]byte("tranche fingerprint\n" + secret))
	return fingerprintTag + hex.EncodeToString(sum[:fingerprintSize])
}

// ValidFingerprint says whether this is the form of a fingerprint.
func ValidFingerprint(f string) bool {
	digits, ok := strings.CutPrefix(f, fingerprintTag)
	if !ok || len(digits) != 2*fingerprintSize || strings.ToLower(digits) != digits {
		return false
	}
	_, err := hex.DecodeString(digits)
	return err == nil
}
