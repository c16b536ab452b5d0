package process

import "syscall"

// apart makes the kernel kill the child when we die, however we die, and keeps a Ctrl-C at the terminal from it: we end it
// ourselves, in order.
func apart(a *syscall.SysProcAttr) {
	a.Pdeathsig = syscall.SIGKILL
	a.Setpgid = true
}
