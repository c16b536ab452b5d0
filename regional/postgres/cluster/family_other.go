//go:build unix && !linux

package cluster

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// attributes cannot tie the child to our life here.
func attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// member is one process of a postmaster's family.
type member struct{ pid int }

func childrenOf(parent int) ([]member, error) {
	out, err := exec.Command("ps", "-axo", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []member
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			children = append(children, member{pid: pid})
		}
	}
	return children, nil
}

func (m member) alive() bool { return syscall.Kill(m.pid, 0) == nil }

func (m member) signal(s syscall.Signal) {
	_ = syscall.Kill(m.pid, s) // the only failure left is that it has just ended
}

// standsStill cannot be asked cheaply here; SIGSTOP is obeyed at once.
func standsStill(int) bool { return true }
