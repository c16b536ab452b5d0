//go:build unix

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// quitWithParent ends a postmaster at once but lets it take its children
	// along; what was committed is recovered at the next start.
	quitWithParent = syscall.SIGQUIT
	// killWithParent is for a program that has nothing to take along.
	killWithParent = syscall.SIGKILL

	// pollEvery is how often we look for what nobody reports: a postmaster that
	// accepts, a process of another parent that has ended.
	pollEvery = 5 * time.Millisecond
	// signalPatience is how long a process may take to obey SIGSTOP or SIGKILL:
	// at once, unless it is deep in the kernel waiting for a disk.
	signalPatience = 10 * time.Second
)

// process is a child of ours.
type process struct {
	pid   int
	ended chan struct{} // closed once it has ended and was waited for
	err   error         // how it ended; read it after ended is closed
}

// launch starts the command as the account, in dir, with both outputs to the
// file.
//
// The kernel ties "signal me when my parent dies" to the parent's thread, not
// to its process. The child is therefore started from a goroutine that keeps
// its thread until the child has ended: otherwise the Go runtime might end that
// thread at any time, and a healthy postmaster with it.
func launch(cmd *exec.Cmd, who account, dir string, output *os.File, withParent syscall.Signal) (*process, error) {
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = childEnvironment(os.Environ())
	cmd.SysProcAttr = attributes(withParent)
	cmd.SysProcAttr.Credential = who.credential()

	p := &process{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		started <- nil
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// childEnvironment drops what would change Postgres' behaviour behind our back,
// such as PGPORT or a language for its messages.
func childEnvironment(ours []string) []string {
	var kept []string
	for _, entry := range ours {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "LANG") {
			continue
		}
		kept = append(kept, entry)
	}
	return append(kept, "LC_ALL=C")
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal does nothing once the process was waited for: its number may belong to
// somebody else by then.
func (p *process) signal(s syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(p.pid, s) // the only failure left is that it has just ended
	}
}

func (p *process) kill() { p.signal(syscall.SIGKILL) }

// family stops the process, lists its children, and leaves it stopped: while it
// stands still no child can be born unseen.
func (p *process) family() ([]member, error) {
	p.signal(syscall.SIGSTOP)
	if !eventually(func() bool { return !p.running() || standsStill(p.pid) }) {
		return nil, fmt.Errorf("stop process %d: it runs on", p.pid)
	}
	return childrenOf(p.pid)
}

// eventually polls until the condition holds, for signalPatience at most.
func eventually(condition func() bool) bool {
	deadline := time.NewTimer(signalPatience)
	defer deadline.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}
