package regional

import (
	"strings"
	"syscall"
	"time"
)

// UserTimeout is a net.Dialer's Control that bounds how long sent data may stay unacknowledged: keep-alives are not sent while data
// waits, so they alone do not notice that the other side is gone.
func UserTimeout(most time.Duration) func(network, address string, raw syscall.RawConn) error {
	return func(network, _ string, raw syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		const tcpUserTimeout = 0x12
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(most.Milliseconds()))
		})
		if err != nil {
			return err
		}
		return failed
	}
}
