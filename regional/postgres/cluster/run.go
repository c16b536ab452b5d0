//go:build unix

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// startPatience bounds one start when the caller's context does not:
	// recovery after a crash replays the log since the last checkpoint.
	startPatience = 60 * time.Second
	// startAttempts and attemptEvery bound how long a start waits for a former
	// postmaster of the same directory to be gone, or for its port: 5 s.
	startAttempts = 50
	attemptEvery  = 100 * time.Millisecond
)

// passing are the failures of a start that go away by themselves: the former
// postmaster, killed with its parent a moment ago, still holds the directory or
// its memory; or somebody else took the port between our look and the bind.
var passing = []string{
	`lock file "postmaster.pid" already exists`,
	"pre-existing shared memory block",
	"could not bind IPv4 address",
}

// run starts the postmaster and waits until it accepts.
func (c *Cluster) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	wait := time.NewTicker(attemptEvery)
	defer wait.Stop()
	for attempt := 1; ; attempt++ {
		logged := logSize(c.at.log())
		err := c.attempt(ctx)
		if err == nil {
			c.logger.Info("postgres started", "dir", c.at.dir, "port", c.Port(), "pid", c.PID())
			return nil
		}
		said := logSince(c.at.log(), logged)
		if attempt == startAttempts || !willPass(said) {
			return fmt.Errorf("start postgres in %s: %w%s", c.at.dir, err, logTail(c.at.log(), logged))
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
			return fmt.Errorf("start postgres in %s: %w%s", c.at.dir, ctx.Err(), logTail(c.at.log(), logged))
		}
	}
}

func willPass(said string) bool {
	for _, failure := range passing {
		if strings.Contains(said, failure) {
			return true
		}
	}
	return false
}

// attempt leaves no process behind if it fails.
func (c *Cluster) attempt(ctx context.Context) error {
	if c.anyPort {
		port, err := FreePort()
		if err != nil {
			return err
		}
		c.port.Store(int32(port))
	}
	if err := writeSettings(c.at.data(), c.who, c.Port(), c.settings); err != nil {
		return err
	}
	output, err := openLog(c.at.log(), c.who)
	if err != nil {
		return err
	}
	defer output.Close()
	p, err := launch(exec.Command(c.with.Postgres, "-D", c.at.data()), c.who, c.at.dir, output, quitWithParent)
	if err != nil {
		return err
	}
	c.current.Store(p)
	if err := c.untilAccepted(ctx, p); err != nil {
		if killed := c.Kill(); killed != nil {
			return fmt.Errorf("%w; then %w", err, killed)
		}
		return err
	}
	return nil
}

// untilAccepted first reads in the postmaster's own file that it is ready: a
// connection alone would not tell our server from another one on that port.
func (c *Cluster) untilAccepted(ctx context.Context, p *process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !c.saysReady(p) {
		select {
		case <-p.ended:
			return fmt.Errorf("it ended before it was ready (%v)", p.err)
		case <-ctx.Done():
			return fmt.Errorf("wait until it is ready: %w", ctx.Err())
		case <-tick.C:
		}
	}
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect with the password in %s: %w", c.at.password(), err)
	}
	return conn.Close(ctx)
}

// saysReady reads postmaster.pid: the process number in line 1 (a file left by a
// crash names another one) and the state in line 8.
func (c *Cluster) saysReady(p *process) bool {
	text, err := os.ReadFile(filepath.Join(c.at.data(), "postmaster.pid"))
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(p.pid) && strings.TrimSpace(lines[7]) == "ready"
}
