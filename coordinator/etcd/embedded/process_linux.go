package embedded

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// tieToParent makes the kernel kill the child when we die, however we die.
func tieToParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}

// awaitStopped returns when a child of ours that was sent SIGSTOP has obeyed, with all its threads, or has ended. Until then
// some thread of it may still answer. It takes nothing from whoever waits for the child's end.
func awaitStopped(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
