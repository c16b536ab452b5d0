//go:build !linux

package regional

import (
	"syscall"
	"time"
)

// UserTimeout does nothing here: the system's own timeouts hold.
func UserTimeout(time.Duration) func(network, address string, raw syscall.RawConn) error {
	return func(_, _ string, _ syscall.RawConn) error { return nil }
}
