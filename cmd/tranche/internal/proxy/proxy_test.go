package proxy

import (
	"io"
	"net"
	"testing"
	"time"
)

// echo answers every byte, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return listener.Addr().String()
}

// ask sends a byte and waits for it to come back.
func ask(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte{7}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// A cut that left a connection open, or let a new one through, would make the demo's partition a lie.
func TestCutAndHeal(t *testing.T) {
	l, err := Listen(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if err := ask(before); err != nil {
		t.Fatal(err)
	}
	// anew asks by a new connection. A cut link may break it while it is still being made, or a moment later.
	anew := func() error {
		c, err := net.Dial("tcp", l.Addr())
		if err != nil {
			return err
		}
		defer c.Close()
		return ask(c)
	}
	l.Cut()
	if ask(before) == nil {
		t.Error("a connection outlived the cut")
	}
	if anew() == nil {
		t.Error("a new connection passed a cut link")
	}
	l.Heal()
	if err := anew(); err != nil {
		t.Errorf("after the link healed: %v", err)
	}
	if ask(before) == nil {
		t.Error("a broken connection came back")
	}
}
