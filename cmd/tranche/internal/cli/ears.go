package cli

import (
	"net"
	"sync"
	"time"
)

// silentFor is how long a connection that has said nothing may still do so once the service is to end.
const silentFor = 250 * time.Millisecond

// ears is a listener that knows which of its connections have said nothing yet: those that a caller or a load balancer
// opened ahead, and those of a dial that was given up. A server that ends waits for what they may be about to ask, net/http
// for 5 s and gRPC for as long as a handshake may take. Nothing was asked on them, so nothing is lost when they are closed.
type ears struct {
	net.Listener

	mu     sync.Mutex
	silent map[*heard]struct{}
	hushed bool
}

// heard is a connection.
type heard struct {
	net.Conn
	of   *ears
	once sync.Once
}

func newEars(l net.Listener) *ears { return &ears{Listener: l, silent: map[*heard]struct{}{}} }

// Accept waits for the next connection.
func (e *ears) Accept() (net.Conn, error) {
	c, err := e.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h := &heard{Conn: c, of: e}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hushed { // it came beside the end
		_ = c.Close() // the server finds that out, and goes on to the next
		return h, nil
	}
	e.silent[h] = struct{}{}
	return h, nil
}

// hush closes the connections that have said nothing, and takes no more.
func (e *ears) hush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hushed = true
	for h := range e.silent {
		_ = h.Conn.Close() // its server finds that out
	}
	clear(e.silent)
}

func (h *heard) spoke() {
	h.once.Do(func() {
		h.of.mu.Lock()
		defer h.of.mu.Unlock()
		delete(h.of.silent, h)
	})
}

// Read notes that the connection is in use.
func (h *heard) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if n > 0 {
		h.spoke()
	}
	return n, err
}

// Close ends it.
func (h *heard) Close() error {
	h.spoke()
	return h.Conn.Close()
}
