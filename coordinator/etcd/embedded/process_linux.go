package embedded

import (
	"os/exec"
	"syscall"
)

// tieToParent makes the kernel kill the child when we die, however we die.
func tieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
