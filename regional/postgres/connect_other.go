//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing here: the system's own timeouts hold.
func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
