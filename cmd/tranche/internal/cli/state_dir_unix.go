//go:build unix

package cli

import (
	"os"
	"syscall"
)

// lockFile takes a lock that ends with the process; it fails at once if another process has it.
func lockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
