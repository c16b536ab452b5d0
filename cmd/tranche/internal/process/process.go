// Package process runs this binary again as a child: the demo's and the tests' coordinator, nodes and etcd members are
// real processes, so that a kill is a kill.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// tailBound is how much of a child's output an error carries, in bytes.
const tailBound = 4 << 10

// EndsWithin is how long a coordinator or a node that is asked to end may take for it. It is said in deploy/docs/failures.md:
// whoever manages such a process may kill it after this time, and not before.
const EndsWithin = 20 * time.Second

// Program is the name under which a child is called. It is no path, so that a test binary that stands in for tranche can
// tell that it is meant to be tranche.
const Program = "tranche"

// Child is one life of a process. Its methods may be called by several goroutines.
type Child struct {
	Name  string // for messages
	log   string
	os    *os.Process
	ended chan struct{}
	err   error // how it ended; read it after ended is closed
}

// Command is this binary with the given arguments, and the environment without our own variables: a child is told
// everything by its arguments and by env.
func Command(env []string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program to run it again: %w", err)
	}
	cmd := &exec.Cmd{Path: self, Args: append([]string{Program}, args...)}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TRANCHE_") || strings.HasPrefix(v, "TRANCHE_POSTGRES_BIN=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd, nil
}

// Start runs this binary with the arguments; both outputs are appended to the file log. On Linux the child dies with us.
//
// The kernel ties "kill me when my parent dies" to the parent's thread, so the goroutine that starts the child keeps its
// thread until the child has ended.
func Start(name, log string, env []string, args ...string) (*Child, error) {
	return StartIn(func() error { return nil }, name, log, env, args...)
}

// StartIn is Start on a thread that enter has prepared, such as by moving it into a network namespace.
func StartIn(enter func() error, name, log string, env []string, args ...string) (*Child, error) {
	cmd, err := Command(env, args...)
	if err != nil {
		return nil, err
	}
	output, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer output.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	apart(cmd.SysProcAttr)
	c := &Child{Name: name, log: log, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := errors.Join(enter(), cmd.Start()); err != nil {
			started <- err
			return
		}
		c.os = cmd.Process
		started <- nil
		c.err = cmd.Wait()
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// PID is the process number.
func (c *Child) PID() int { return c.os.Pid }

// Ended is closed when the child has ended.
func (c *Child) Ended() <-chan struct{} { return c.ended }

// Kill ends the child by SIGKILL, and returns when it has ended.
func (c *Child) Kill() {
	_ = c.os.Kill() // its only failure is that it has ended
	<-c.ended
}

// Stop asks the child to end in order, and kills it if it does not within the patience.
func (c *Child) Stop(patience time.Duration) error {
	_ = c.os.Signal(syscall.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("%s ended with %w%s", c.Name, c.err, c.Tail())
		}
		return nil
	case <-timer.C:
		c.Kill()
		return fmt.Errorf("%s did not end within %s and was killed%s", c.Name, patience, c.Tail())
	}
}

// Failure is an error for a child that ended when it should not have, or nil while it runs.
func (c *Child) Failure() error {
	select {
	case <-c.ended:
		return fmt.Errorf("%s ended by itself (%w)%s", c.Name, orClean(c.err), c.Tail())
	default:
		return nil
	}
}

func orClean(err error) error {
	if err == nil {
		return errors.New("without an error")
	}
	return err
}

// Tail is the end of what the child printed, as the end of a message.
func (c *Child) Tail() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return fmt.Sprintf(" (%v)", err)
	}
	text = bytes.TrimSpace(text[max(0, len(text)-tailBound):])
	if len(text) == 0 {
		return " (it printed nothing)"
	}
	return fmt.Sprintf("; it printed last:\n%s", text)
}
