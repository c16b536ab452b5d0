package gateways

import (
	"os/exec"
	"syscall"
)

// dieWithUs makes the kernel end the gateway when the tests end, however they end.
func dieWithUs(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
