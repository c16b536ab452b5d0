package embedded

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// tailBound is how much of a member's output an error carries, in bytes.
const tailBound = 2 << 10

// process is one life of a member.
type process struct {
	os    *os.Process
	ended chan struct{} // closed once it has ended and was waited for
	err   error         // how it ended; read it after ended is closed
}

// launch starts a member. The kernel ties "kill me when my parent dies" to the
// parent's thread, so the goroutine that starts the child keeps its thread until
// the child has ended.
func launch(cmd *exec.Cmd) (*process, error) {
	tieToParent(cmd)
	p := &process{ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		p.os = cmd.Process
		started <- nil
		p.err = cmd.Wait()
		close(p.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// signal has one failure, a process that has just ended, which is what the
// callers see in ended.
func (p *process) signal(s os.Signal) { _ = p.os.Signal(s) }

// outputTail is the end of a member's output as the end of an error message.
func outputTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf(" (%v)", err)
	}
	text = bytes.TrimSpace(text[max(0, len(text)-tailBound):])
	if len(text) == 0 {
		return fmt.Sprintf(" (nothing in %s)", path)
	}
	return fmt.Sprintf("; %s ends with:\n%s", path, text)
}
