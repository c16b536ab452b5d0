//go:build unix

package postgres

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy passes bytes on between clients and the server, and cuts.
type proxy struct {
	url             string
	loseNextRequest atomic.Bool // the next bytes to the server are lost, and the connection with them
	loseNextAnswer  atomic.Bool // the next bytes to the server arrive, the answer is lost, and the connection with it

	loseAnswerTo atomic.Pointer[string] // the same, for the next bytes in which this text stands

	mu   sync.Mutex
	held chan struct{} // while not nil, bytes of the connections that are open now wait
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	u.Host = listener.Addr().String()
	p := &proxy{url: u.String()}
	var pipes sync.WaitGroup
	pipes.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			pipes.Go(func() { p.serve(client, server) })
		}
	})
	t.Cleanup(func() { // after the stores that use it are shut
		listener.Close()
		pipes.Wait()
	})
	return p
}

// holdRequests keeps back what connections that are open now send, until release.
func (p *proxy) holdRequests() (release func()) {
	held := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	return sync.OnceFunc(func() { close(held) })
}

func (p *proxy) hold() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

func (p *proxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	opened := p.hold()
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		_, _ = io.Copy(client, server)
		client.Close()
	})
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if n > 0 {
			if h := p.hold(); h != nil && h != opened {
				<-h
			}
			if p.loseNextRequest.CompareAndSwap(true, false) {
				break
			}
			lose := p.loseNextAnswer.CompareAndSwap(true, false)
			if text := p.loseAnswerTo.Load(); text != nil && bytes.Contains(buffer[:n], []byte(*text)) {
				p.loseAnswerTo.Store(nil)
				lose = true
			}
			if lose {
				client.Close()
			}
			if _, err := server.Write(buffer[:n]); err != nil {
				break
			}
			if lose {
				break
			}
		}
		if err != nil {
			break
		}
	}
	client.Close()
	if c, ok := server.(*net.TCPConn); ok {
		c.CloseWrite() // the server still reads what was sent
	}
	both.Wait()
}

func withParam(url, param string) string {
	return url + map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] + param
}
