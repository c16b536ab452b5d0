// Package stage brings up a whole deployment of real processes on this machine, for the demo and for tests of failures:
// every part can be killed, as a crash would, and started again on what it left.
//
//	Stage ─┬─ etcd          inside the coordinator, or members as processes of their own
//	       ├─ coordinators  processes of this binary
//	       └─ regions ─┬─ Postgres (package cluster)
//	                   ├─ links to the coordinators (package proxy), which can be cut
//	                   └─ nodes, processes of this binary
//
// Stop leaves nothing behind; on Linux the processes die with this one even if it is killed, and Sweep removes its folder.
package stage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/proxy"
	"tranche/coordinator/etcd/embedded"
	"tranche/regional/postgres/cluster"
)

// The gateways' names; each has a token that all nodes know.
const (
	Edge1 = "edge-1"
	Edge2 = "edge-2"
)

const (
	stopPatience   = process.EndsWithin // whoever takes longer breaks a promise
	readyPatience  = 30 * time.Second
	conditionEvery = 20 * time.Millisecond
)

// Options say what to bring up.
type Options struct {
	Regions      []string
	NodesEach    int
	Coordinators int // more than one needs EtcdMembers
	EtcdMembers  int // processes of their own; 0: one inside the one coordinator
	Unreachable  time.Duration
	// Databases are URLs of databases that are there already, by region; the others get a Postgres of their own.
	Databases map[string]string
	// Apart puts each region, and the global side, which is named "global", into a network of its own. Nil: all are in ours.
	Apart Apart
	// Certificate and Key are files with which the coordinators serve TLS: they must when regions reach them from elsewhere.
	Certificate, Key string
	// Progress hears what takes its time; nil: nobody does.
	Progress func(format string, args ...any)
}

// Stage is everything that runs.
type Stage struct {
	Dir          string
	AdminToken   string
	Gateways     map[string]string // tokens by name
	Coordinators []*Server
	Etcd         *embedded.Cluster // nil: inside the coordinator
	Regions      map[string]*Region

	options   Options
	owner     *os.File      // see makeFolder
	mu        sync.Mutex    // of forwarded
	forwarded []*proxy.Link // see Apart
}

// Region is one region.
type Region struct {
	Name     string
	Postgres *cluster.Cluster
	Database string        // URL
	Links    []*proxy.Link // one to each coordinator
	Nodes    []*Server
	token    string // a file
}

// Server is a process that serves an API. Kill and Start are for one caller at a time.
type Server struct {
	Name    string
	Address string // URL
	ca      string // a file
	enter   func() error
	log     string
	env     []string
	args    []string
	ready   func(ctx context.Context) error
	mu      sync.Mutex
	child   *process.Child
}

// Start brings everything up. The stage is never nil, so that what came up can be stopped.
func Start(ctx context.Context, o Options) (*Stage, error) {
	s := &Stage{Gateways: map[string]string{Edge1: secret(), Edge2: secret()}, Regions: map[string]*Region{}, options: o}
	if o.Progress == nil {
		s.options.Progress = func(string, ...any) {}
	}
	started := time.Now()
	var err error
	if s.Dir, s.owner, err = makeFolder(); err != nil {
		return s, fmt.Errorf("start a deployment: %w", err)
	}
	for _, name := range o.Regions {
		s.Regions[name] = &Region{Name: name}
	}
	s.options.Progress("starting etcd and the coordinator, and a Postgres for each region")
	parts := []func(context.Context) error{s.startGlobal}
	for _, r := range s.Regions {
		parts = append(parts, func(ctx context.Context) error { return s.startPostgres(ctx, r) })
	}
	if err := Together(ctx, parts...); err != nil {
		return s, err
	}
	s.options.Progress("up after %.1f s; registering the regions and starting %d nodes in each", time.Since(started).Seconds(), o.NodesEach)
	parts = nil
	for _, r := range s.Regions {
		parts = append(parts, func(ctx context.Context) error { return s.startRegion(ctx, r) })
	}
	if err := Together(ctx, parts...); err != nil {
		return s, err
	}
	s.options.Progress("all is up after %.1f s", time.Since(started).Seconds())
	return s, nil
}

// Together runs the parts at the same time and joins their errors.
func Together(ctx context.Context, parts ...func(context.Context) error) error {
	errs := make([]error, len(parts))
	var wait sync.WaitGroup
	for i, part := range parts {
		wait.Go(func() { errs[i] = part(ctx) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Fatal is an error after which it is pointless to wait on.
type Fatal struct{ Err error }

// Error is the error itself.
func (f Fatal) Error() string { return f.Err.Error() }

func (f Fatal) Unwrap() error { return f.Err }

// Until polls for a condition, for patience at most; what says what was awaited. An error is only told if the time is over,
// unless it is Fatal.
func Until(ctx context.Context, patience time.Duration, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(conditionEvery)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok && err == nil {
			return nil
		}
		if fatal, is := errors.AsType[Fatal](err); is {
			return fmt.Errorf("wait until %s: %w", what, fatal.Err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait until %s: %w", what, context.Cause(ctx)), err)
		}
	}
}

func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// Admin is a client of coordinator i with the first admin token.
func (s *Stage) Admin(i int) (*api.Client, error) {
	return api.New("coordinator", s.Coordinators[i].Address, s.AdminToken, s.options.Certificate)
}

// Gateway is a client of a node as one of the gateways.
func (s *Stage) Gateway(name string, n *Server) (*api.Client, error) {
	return api.New("node", n.Address, s.Gateways[name], "")
}

// servers are all that were made, nodes first: they rest on the others.
func (s *Stage) servers() (nodes, coordinators []*Server) {
	for _, r := range s.Regions {
		nodes = append(nodes, r.Nodes...)
	}
	return nodes, s.Coordinators
}

// Failure names processes that ended though nobody ended them.
func (s *Stage) Failure() error {
	nodes, coordinators := s.servers()
	var errs []error
	for _, server := range append(nodes, coordinators...) {
		if c := server.life(); c != nil {
			errs = append(errs, c.Failure())
		}
	}
	return errors.Join(errs...)
}

// Stop ends everything and removes the folder. Nodes end in order, then what they rest on.
func (s *Stage) Stop() error {
	ctx := context.Background()
	nodes, coordinators := s.servers()
	var first, then, last []func(context.Context) error
	for _, n := range nodes {
		first = append(first, func(context.Context) error { return n.stop() })
	}
	for _, c := range coordinators {
		then = append(then, func(context.Context) error { return c.stop() })
	}
	for _, r := range s.Regions {
		last = append(last, func(ctx context.Context) error { return r.stop(ctx) })
	}
	if s.Etcd != nil {
		last = append(last, func(context.Context) error { return s.Etcd.Stop() })
	}
	err := errors.Join(Together(ctx, first...), Together(ctx, then...), Together(ctx, last...))
	for _, l := range s.forwarded {
		_ = l.Close() // nobody uses it any more
	}
	if s.Dir != "" {
		err = errors.Join(err, os.RemoveAll(s.Dir))
	}
	if s.owner != nil {
		_ = s.owner.Close() // nothing rests on what stands in it
	}
	return err
}

func (r *Region) stop(ctx context.Context) error {
	for _, l := range r.Links {
		_ = l.Close() // nobody uses it any more
	}
	if r.Postgres == nil {
		return nil
	}
	end, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	return r.Postgres.Stop(end)
}

// Cut cuts all links of the region.
func (r *Region) Cut() {
	for _, l := range r.Links {
		l.Cut()
	}
}

// Heal heals all links of the region.
func (r *Region) Heal() {
	for _, l := range r.Links {
		l.Heal()
	}
}

// member is the command of an etcd member that is a process of its own.
func member(embedded.Options) *exec.Cmd {
	cmd, err := process.Command(nil, "etcd-member")
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	return cmd
}
