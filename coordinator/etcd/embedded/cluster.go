//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// MaxMembers is the most that etcd's authors advise: more only slow it down.
	MaxMembers = 7

	// startPatience bounds a start of members when the caller's context does not.
	startPatience = 60 * time.Second
	// askPatience bounds one question whether a member serves.
	askPatience = 2 * time.Second
	askEvery    = 20 * time.Millisecond

	// Ports are chosen below the range that Linux gives to outgoing connections:
	// while a member is down, no connection of anybody can take its port.
	lowestPort, highestPort = 25000, 32000
	portAttempts            = 100
)

// Cluster is a number of members, each in a process of its own. Endpoints may be
// called at any time; the others by one caller at a time.
type Cluster struct {
	dir     string
	command func(Options) *exec.Cmd
	members []*member
}

type member struct {
	options Options
	output  string   // the file that holds what it printed
	life    *process // nil before the first start
}

// StartProcesses starts n members and returns when all of them serve. The
// command must make the child call RunMember with OptionsFromEnvironment;
// StartProcesses itself adds that environment variable. Data and outputs are in
// a temporary folder that Stop removes. If an error is returned nothing runs and
// no folder is left. On Linux the members die with this process.
func StartProcesses(ctx context.Context, n int, command func(Options) *exec.Cmd) (*Cluster, error) {
	if n < 1 || n > MaxMembers {
		return nil, fmt.Errorf("start %d etcd members: must be 1 to %d", n, MaxMembers)
	}
	dir, err := os.MkdirTemp("", "tranche-etcd-")
	if err != nil {
		return nil, fmt.Errorf("start etcd members: %w", err)
	}
	c := &Cluster{dir: dir, command: command}
	if err := c.startAll(ctx, n); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) startAll(ctx context.Context, n int) error {
	ports, err := freePorts(2 * n)
	if err != nil {
		return err
	}
	var initial []string
	for i := range n {
		name := fmt.Sprintf("member-%d", i)
		o := Options{
			Dir:        filepath.Join(c.dir, name),
			Name:       name,
			ClientAddr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2*i])),
			PeerAddr:   net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2*i+1])),
		}
		initial = append(initial, o.Name+"=http://"+o.PeerAddr)
		c.members = append(c.members, &member{options: o, output: filepath.Join(c.dir, name+".log")})
	}
	for _, m := range c.members {
		m.options.InitialCluster = strings.Join(initial, ",")
		if err := c.start(m); err != nil {
			return err
		}
	}
	for _, m := range c.members {
		if err := m.untilServing(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) start(m *member) error {
	cmd := c.command(m.options)
	variable, err := m.options.environment()
	if err != nil {
		return err
	}
	output, err := os.OpenFile(m.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start etcd %s: %w", m.options.Name, err)
	}
	defer output.Close() // the child has its own
	cmd.Env = append(cmd.Environ(), variable)
	cmd.Stdout, cmd.Stderr = output, output
	if m.life, err = launch(cmd); err != nil {
		return fmt.Errorf("start etcd %s: %w", m.options.Name, err)
	}
	return nil
}

// untilServing asks for a read that a majority confirms: after it the member has
// caught up with all that was committed before the question.
func (m *member) untilServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		err := m.ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-m.life.ended:
			return fmt.Errorf("start etcd %s: it ended before it served (%v)%s", m.options.Name, m.life.err, outputTail(m.output))
		case <-ctx.Done():
			return fmt.Errorf("start etcd %s: %w (%w)%s", m.options.Name, ctx.Err(), err, outputTail(m.output))
		case <-tick.C:
		}
	}
}

// ask dials first: a client that finds the port closed would wait a second
// before it tries again.
func (m *member) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.options.ClientAddr)
	if err != nil {
		return err
	}
	conn.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Get(ctx, "serving?")
	return err
}

func (m *member) endpoint() string { return "http://" + m.options.ClientAddr }

// Endpoints is where clients reach the members, in the order of their numbers,
// whether they run or not.
func (c *Cluster) Endpoints() []string {
	var endpoints []string
	for _, m := range c.members {
		endpoints = append(endpoints, m.endpoint())
	}
	return endpoints
}

// Dir is the folder with the data of a member. It is removed by Stop.
func (c *Cluster) Dir(i int) string { return c.members[i].options.Dir }

// Kill ends member i by SIGKILL and returns when it has ended. Its data stays.
func (c *Cluster) Kill(i int) error {
	m, err := c.running(i)
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	m.life.signal(syscall.SIGKILL)
	<-m.life.ended
	return nil
}

// Restart starts member i again on its data and its addresses, after killing it
// if it still runs, and returns when it has caught up with the others.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	if _, err := c.running(i); err == nil {
		if err := c.Kill(i); err != nil {
			return err
		}
	}
	if i < 0 || i >= len(c.members) {
		return fmt.Errorf("restart: there is no etcd member %d", i)
	}
	if err := c.start(c.members[i]); err != nil {
		return err
	}
	return c.members[i].untilServing(ctx)
}

// Pause stops member i without ending it: its connections stay open and nothing
// answers. It returns when the member stands still.
func (c *Cluster) Pause(i int) error {
	m, err := c.running(i)
	if err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	m.life.signal(syscall.SIGSTOP)
	awaitStopped(m.life.os.Pid)
	return nil
}

// Resume lets a paused member go on.
func (c *Cluster) Resume(i int) error {
	m, err := c.running(i)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	m.life.signal(syscall.SIGCONT)
	return nil
}

func (c *Cluster) running(i int) (*member, error) {
	if i < 0 || i >= len(c.members) {
		return nil, fmt.Errorf("there is no etcd member %d", i)
	}
	m := c.members[i]
	if m.life == nil || !m.life.running() {
		return nil, fmt.Errorf("etcd %s is not running", m.options.Name)
	}
	return m, nil
}

// Stop kills all members and removes their data; members that end in order would
// wait seconds for each other. Stopping again does nothing.
func (c *Cluster) Stop() error {
	for i := range c.members {
		if m, err := c.running(i); err == nil {
			m.life.signal(syscall.SIGKILL)
			<-m.life.ended
		}
	}
	return os.RemoveAll(c.dir)
}

var portsGiven atomic.Uint32

func init() { portsGiven.Store(rand.Uint32N(highestPort - lowestPort)) }

// freePorts are ports that nobody listens on. One process is given each only once in a long time, also while a server that had it is
// down; where it begins is by chance, so that processes side by side are seldom given the same.
func freePorts(n int) (ports []int, err error) {
	for range portAttempts {
		if len(ports) == n {
			return ports, nil
		}
		port := lowestPort + int(portsGiven.Add(1)%(highestPort-lowestPort))
		listener, listenErr := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if listenErr != nil {
			err = listenErr
			continue
		}
		defer listener.Close()
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("find %d free ports: %w", n, err)
}
