// Package proxy is a TCP proxy that can be cut and healed, as a network link can: for the demo and for tests.
//
// A cut link drops the connections that are open and accepts no new ones; what was under way is lost on both sides,
// and neither learns more than that the connection broke. It is the one thing that the demo simulates.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the connection to the target.
const dialTimeout = 3 * time.Second

// Link passes connections on to one target. It is safe for concurrent use.
type Link struct {
	target   string
	listener net.Listener
	dial     Dial
	done     sync.WaitGroup

	mu     sync.Mutex
	cut    bool
	closed bool
	open   map[net.Conn]struct{}
}

// Dial connects to an address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Listen starts a link on a free port of 127.0.0.1. Close ends it.
func Listen(target string) (*Link, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a link to %s: %w", target, err)
	}
	return Between(listener, target, new(net.Dialer).DialContext), nil
}

// Between starts a link from a listener to what dial connects to, such as one in another network namespace. Close ends it.
func Between(listener net.Listener, target string, dial Dial) *Link {
	l := &Link{target: target, listener: listener, dial: dial, open: map[net.Conn]struct{}{}}
	l.done.Go(l.accept)
	return l
}

// Addr is where the link listens, host:port.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut breaks all connections, and every new one until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	l.breakAll()
}

// Heal lets new connections through again.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

// Close ends the link and all its connections, and returns when nothing of it runs.
func (l *Link) Close() error {
	l.mu.Lock()
	l.closed = true
	l.breakAll()
	l.mu.Unlock()
	err := l.listener.Close()
	l.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// breakAll resets the connections, so that no byte that waits in a buffer arrives later.
func (l *Link) breakAll() {
	for c := range l.open {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // the connection may be gone already
		}
		_ = c.Close()
	}
	clear(l.open)
}

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // such as a connection that was reset before it was accepted
		}
		if !l.keep(c) {
			continue
		}
		l.done.Go(func() { l.pass(c) })
	}
}

// keep remembers a connection; false, and it is broken, if the link is cut.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	if l.cut || l.closed {
		l.breakAll()
		return false
	}
	return true
}

func (l *Link) forget(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
	_ = c.Close()
}

func (l *Link) pass(from net.Conn) {
	defer l.forget(from)
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	to, err := l.dial(ctx, "tcp", l.target)
	if err != nil {
		return
	}
	defer l.forget(to)
	if !l.keep(to) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { transfer(to, from) })
	both.Go(func() { transfer(from, to) })
	both.Wait()
}

// transfer passes one direction on, and its end too.
func transfer(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either side may break at any time; the other then hears of it
	if t, ok := to.(*net.TCPConn); ok {
		_ = t.CloseWrite()
	}
}
