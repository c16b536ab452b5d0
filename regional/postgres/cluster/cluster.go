//go:build unix

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options says which cluster to start. The zero value is a fresh cluster in a
// temporary folder on a free port.
type Options struct {
	// Dir holds the data directory, the password and the log. It is made if it
	// is missing; a data directory in it is used again. Empty: a temporary
	// folder, removed at Stop.
	Dir string
	// Port on 127.0.0.1. Zero: a free one, kept for the life of the Cluster.
	Port int
	// Settings are further postgresql.conf settings, by lower-case name. Those
	// that would give up durability are refused.
	Settings map[string]string
	// Logger hears of starts and ends. Nil: nobody does.
	Logger hclog.Logger
}

// Cluster is a Postgres instance that we started. URL, Port, PID and Dir may be
// called at any time, CreateDatabase while it runs; Stop, Kill, StartAgain,
// Restart, Pause and Resume by one caller at a time.
type Cluster struct {
	with     Binaries
	who      account
	at       layout
	password string
	settings map[string]string
	logger   hclog.Logger

	anyPort bool         // the port was ours to choose and nobody was told of it yet
	port    atomic.Int32 // fixed once Start has returned
	current atomic.Pointer[process]
}

// Start makes the cluster if it is not there, starts it, and returns when it
// accepts connections. The context bounds the start only, not the cluster's
// life. If an error is returned nothing runs and no temporary folder is left.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if err := checkSettings(options.Settings); err != nil {
		return nil, err
	}
	if options.Port < 0 || options.Port > 65535 {
		return nil, fmt.Errorf("port %d: must be 0 (any) to 65535", options.Port)
	}
	with, err := Find()
	if err != nil {
		return nil, err
	}
	who, err := chooseAccount()
	if err != nil {
		return nil, err
	}
	c := &Cluster{with: with, who: who, settings: options.Settings, logger: options.Logger}
	if c.logger == nil {
		c.logger = hclog.NewNullLogger()
	}
	c.anyPort = options.Port == 0
	c.port.Store(int32(options.Port))
	if err := c.make(ctx, options.Dir); err != nil {
		return nil, errors.Join(err, c.removeTemporary())
	}
	c.anyPort = false // callers may hold its URL from here on
	return c, nil
}

func (c *Cluster) make(ctx context.Context, dir string) error {
	var err error
	if c.at, err = prepareDir(dir, c.who); err != nil {
		return fmt.Errorf("prepare the folder of the cluster: %w", err)
	}
	if c.password, err = initialize(ctx, c.with, c.who, c.at); err != nil {
		return fmt.Errorf("make a data directory in %s: %w", c.at.dir, err)
	}
	return c.run(ctx)
}

// URL is how a client reaches a database of this cluster, as its superuser. It
// holds the password: do not log it.
func (c *Cluster) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port())),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Dir is the folder that holds the data directory, the password and the log.
func (c *Cluster) Dir() string { return c.at.dir }

// Port is the port on 127.0.0.1. It stays the same over Kill and StartAgain.
func (c *Cluster) Port() int { return int(c.port.Load()) }

// PID is the postmaster's process number, or 0 if none runs.
func (c *Cluster) PID() int {
	if p := c.current.Load(); p != nil && p.running() {
		return p.pid
	}
	return 0
}

// CreateDatabase makes a database, unless it is there, and returns its URL.
func (c *Cluster) CreateDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	const duplicateDatabase = "42P04"
	_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	if refused := new(pgconn.PgError); errors.As(err, &refused) && refused.Code == duplicateDatabase {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return c.URL(name), nil
}

// Stop shuts the cluster down in order: open transactions are rolled back, the
// data is checkpointed. If the context ends first everything is killed, which
// loses no commit, and the context's error is returned. A temporary folder is
// removed. Stopping again does nothing.
func (c *Cluster) Stop(ctx context.Context) error {
	return errors.Join(c.shutDown(ctx), c.removeTemporary())
}

func (c *Cluster) shutDown(ctx context.Context) error {
	p := c.current.Load()
	if p == nil || !p.running() {
		return nil
	}
	p.signal(syscall.SIGINT)
	if err := c.Resume(); err != nil { // a paused process cannot obey
		return errors.Join(err, c.Kill())
	}
	select {
	case <-p.ended:
		c.logger.Info("postgres stopped", "dir", c.at.dir)
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop postgres %d: %w", p.pid, ctx.Err()), c.Kill())
	}
}

func (c *Cluster) removeTemporary() error {
	if !c.at.temporary {
		return nil
	}
	return os.RemoveAll(c.at.dir)
}

// Kill ends the postmaster and all its children by SIGKILL, as a crash would,
// and returns when none is left, so that the data directory can be started
// again. The folder is kept.
func (c *Cluster) Kill() error {
	p := c.current.Load()
	if p == nil || !p.running() {
		return nil
	}
	children, err := p.family()
	p.kill()
	<-p.ended
	if err != nil {
		return fmt.Errorf("list the children of postgres %d: %w", p.pid, err)
	}
	for _, child := range children {
		child.signal(syscall.SIGKILL)
	}
	gone := func() bool {
		for _, child := range children {
			if child.alive() {
				return false
			}
		}
		return true
	}
	if !eventually(gone) {
		return fmt.Errorf("kill postgres %d: a child of it is still there after %v", p.pid, signalPatience)
	}
	c.logger.Info("postgres killed", "dir", c.at.dir)
	return nil
}

// StartAgain starts the cluster after Kill, Stop or a crash, on the same data
// and the same port, and returns when it accepts connections.
func (c *Cluster) StartAgain(ctx context.Context) error {
	if c.PID() != 0 {
		return fmt.Errorf("start postgres in %s: it is running as process %d", c.at.dir, c.PID())
	}
	if _, err := os.Stat(c.at.data()); err != nil {
		return fmt.Errorf("start postgres again: %w", err)
	}
	return c.run(ctx)
}

// Restart shuts down in order and starts again.
func (c *Cluster) Restart(ctx context.Context) error {
	if err := c.shutDown(ctx); err != nil {
		return err
	}
	return c.StartAgain(ctx)
}

// Pause stops all processes of the cluster without ending them: connections
// stay open and nothing answers. It returns when they stand still.
func (c *Cluster) Pause() error {
	p := c.current.Load()
	if p == nil || !p.running() {
		return fmt.Errorf("pause postgres in %s: it is not running", c.at.dir)
	}
	children, err := p.family()
	if err != nil {
		return fmt.Errorf("pause postgres %d: %w", p.pid, err)
	}
	for _, child := range children {
		child.signal(syscall.SIGSTOP)
	}
	still := func() bool {
		for _, child := range children {
			if child.alive() && !standsStill(child.pid) {
				return false
			}
		}
		return true
	}
	if !eventually(still) {
		return fmt.Errorf("pause postgres %d: a child of it runs on", p.pid)
	}
	return nil
}

// Resume lets a paused cluster go on. It does nothing to one that runs.
func (c *Cluster) Resume() error {
	p := c.current.Load()
	if p == nil || !p.running() {
		return nil
	}
	children, err := childrenOf(p.pid)
	p.signal(syscall.SIGCONT)
	for _, child := range children {
		child.signal(syscall.SIGCONT)
	}
	if err != nil {
		return fmt.Errorf("resume postgres %d: %w", p.pid, err)
	}
	return nil
}
