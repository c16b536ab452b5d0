//go:build !linux

package process

import "syscall"

// apart keeps a Ctrl-C at the terminal from the child: we end it ourselves, in order.
func apart(a *syscall.SysProcAttr) { a.Setpgid = true }
