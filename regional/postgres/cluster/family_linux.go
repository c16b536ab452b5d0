package cluster

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// attributes makes the kernel signal the child when the thread that started it
// dies.
func attributes(withParent syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: withParent}
}

// member is one process of a postmaster's family. The instant of its start tells
// it from a later process with the same number.
type member struct {
	pid   int
	birth string
}

// status is what /proc/<pid>/stat says about a process.
type status struct {
	state  string
	parent int
	birth  string
}

func statusOf(pid int) (status, bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return status{}, false
	}
	return parseStatus(string(text))
}

// parseStatus reads "pid (name) state ppid …"; the name may hold anything, also
// brackets, so the fields are counted from its last bracket. Field 22 is the
// start.
func parseStatus(text string) (status, bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return status{}, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 20 {
		return status{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return status{}, false
	}
	return status{state: fields[0], parent: parent, birth: fields[19]}, true
}

func childrenOf(parent int) ([]member, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var children []member
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s, ok := statusOf(pid); ok && s.parent == parent {
			children = append(children, member{pid: pid, birth: s.birth})
		}
	}
	return children, nil
}

// alive is false for a zombie too: it holds no file and no memory any more, and
// in a container nobody may ever wait for it.
func (m member) alive() bool {
	s, ok := statusOf(m.pid)
	return ok && s.birth == m.birth && s.state != "Z" && s.state != "X"
}

func (m member) signal(s syscall.Signal) {
	if m.alive() {
		_ = syscall.Kill(m.pid, s) // the only failure left is that it has just ended
	}
}

// standsStill reports that a process has obeyed SIGSTOP.
func standsStill(pid int) bool {
	s, ok := statusOf(pid)
	return ok && s.state == "T"
}
