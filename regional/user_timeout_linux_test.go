package regional

import (
	"net"
	"syscall"
	"testing"
)

// A machine that is gone says nothing. The kernel gives its connection up after what is set here; measured over a network
// namespace whose address was taken away, a held call ended after 5.1 s.
func TestSilentCoordinatorIsGivenUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := silenceNoticed().DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const keepIdle, keepInterval, keepCount, userTimeout = 0x4, 0x5, 0x6, 0x12
	got := map[int]int{}
	err = raw.Control(func(fd uintptr) {
		for _, option := range []int{keepIdle, keepInterval, keepCount, userTimeout} {
			if got[option], err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, option); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if silent := got[keepIdle] + got[keepInterval]*got[keepCount]; silent != 5 || got[userTimeout] != 5000 {
		t.Errorf("a connection is given up after %d s of silence, and after %d ms with data on the way", silent, got[userTimeout])
	}
}
