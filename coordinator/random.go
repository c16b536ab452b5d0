package coordinator

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"sync"
)

// randomness reads ids, stamps and secrets from one source, which need not be safe for concurrent use.
type randomness struct {
	mu   sync.Mutex
	from io.Reader
}

// newRandomness reads from a source; nil: crypto/rand.
func newRandomness(from io.Reader) *randomness {
	if from == nil {
		from = rand.Reader
	}
	return &randomness{from: from}
}

// Read fills b, so that parts of a replica can share its source.
func (r *randomness) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return io.ReadFull(r.from, b)
}

// hex is n random bytes in hex.
func (r *randomness) hex(n int) string {
	b := make([]byte, n)
	if _, err := r.Read(b); err != nil {
		panic("no random bytes: " + err.Error()) // crypto/rand never fails; without stamps nothing may be granted
	}
	return hex.EncodeToString(b)
}
