package stage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/proxy"
	"tranche/coordinator"
	"tranche/coordinator/etcd/embedded"
	"tranche/regional/postgres/cluster"
)

// FreeAddress finds a port below the range that Linux gives to outgoing connections, so that no connection takes it while
// its process is down.
func FreeAddress() (string, error) {
	port, err := cluster.FreePort()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
}

// Start starts the process, also again after a kill, and returns when it is ready.
func (s *Server) Start(ctx context.Context) error {
	if err := s.Launch(); err != nil {
		return err
	}
	c := s.life()
	return Until(ctx, readyPatience, s.Name+" is ready", func() (bool, error) {
		if err := c.Failure(); err != nil {
			return false, Fatal{err}
		}
		return s.ready(ctx) == nil, nil
	})
}

// With gives the process more arguments, from its next start on.
func (s *Server) With(args ...string) { s.args = append(slices.Clone(s.args), args...) }

// Launch starts the process and does not wait until it is ready: one that must not be.
func (s *Server) Launch() error {
	c, err := process.StartIn(s.enter, s.Name, s.log, s.env, s.args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = c
	return nil
}

// Signal sends a signal to the process, such as one that stops it for a while.
func (s *Server) Signal(signal syscall.Signal) error {
	c := s.life()
	if c == nil {
		return fmt.Errorf("signal %s: it does not run", s.Name)
	}
	return syscall.Kill(c.PID(), signal)
}

// MoreLinks are further links to the coordinators, which the stage's own cuts do not cut.
func (s *Stage) MoreLinks() (links []*proxy.Link, err error) {
	for _, c := range s.Coordinators {
		link, err := proxy.Listen(strings.TrimPrefix(c.Address, "http://"))
		if err := s.forward(link, err); err != nil {
			return nil, err
		}
		links = append(links, link)
	}
	return links, nil
}

// NodeOn is one more node of a region, on a database of its own choice. It is not started; the stage ends it.
func (s *Stage) NodeOn(r *Region, database string) (*Server, error) {
	n, err := s.node(&Region{Name: r.Name, Database: database, Links: r.Links, token: r.token}, len(r.Nodes)+1)
	if err == nil {
		r.Nodes = append(r.Nodes, n)
	}
	return n, err
}

// Kill ends the process as a crash would, and returns when it has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	c := s.child
	s.child = nil
	s.mu.Unlock()
	if c != nil {
		c.Kill()
	}
}

// Running says whether the process was started and not killed.
func (s *Server) Running() bool { return s.life() != nil }

func (s *Server) life() *process.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

func (s *Server) stop() error {
	c := s.life()
	if c == nil {
		return nil
	}
	return c.Stop(stopPatience)
}

// answers is a server's readiness: /readyz says so.
func (s *Server) answers(ctx context.Context) error {
	client, err := api.New("server", s.Address, "", s.ca)
	if err != nil {
		return err
	}
	defer client.Close()
	status, _, _, err := client.Send(ctx, api.Call{Method: http.MethodGet, Path: "/readyz"})
	if err == nil && status != http.StatusOK {
		err = errors.New("it is not ready")
	}
	return err
}

// startGlobal starts etcd and the coordinators.
func (s *Stage) startGlobal(ctx context.Context) (err error) {
	where := []string{"--dev", "--data-dir", filepath.Join(s.Dir, "coordinator")}
	if s.options.EtcdMembers > 0 {
		if s.Etcd, err = embedded.StartProcesses(ctx, s.options.EtcdMembers, member); err != nil {
			return err
		}
		where = []string{"--etcd-endpoints", strings.Join(s.Etcd.Endpoints(), ",")}
	}
	for i := range s.options.Coordinators {
		address, err := FreeAddress()
		if err != nil {
			return err
		}
		name := fmt.Sprintf("coordinator-%d", i+1)
		server := &Server{Name: name, Address: "http://" + address, log: filepath.Join(s.Dir, name+".log")}
		listen, secured, err := s.placeCoordinator(server, address)
		if err != nil {
			return err
		}
		if s.options.EtcdMembers > 0 {
			secured = append(secured, "--state-dir", filepath.Join(s.Dir, name+".state"))
		}
		server.args = append([]string{"coordinator", "--listen", listen, "--log-level", "warn", "--report-unreachable-after", s.options.Unreachable.String(), "--admin-token-file", s.adminFile()}, append(secured, where...)...)
		server.ready = func(ctx context.Context) error {
			text, err := os.ReadFile(s.adminFile())
			if s.AdminToken = strings.TrimSpace(string(text)); err != nil || s.AdminToken == "" {
				return errors.Join(err, errors.New("there is no admin token yet"))
			}
			return server.answers(ctx)
		}
		s.Coordinators = append(s.Coordinators, server)
		if err := server.Start(ctx); err != nil { // one after the other: the first makes the deployment
			return err
		}
	}
	return nil
}

func (s *Stage) adminFile() string { return filepath.Join(s.Dir, "admin.token") }

func (s *Stage) startPostgres(ctx context.Context, r *Region) (err error) {
	if url := s.options.Databases[r.Name]; url != "" {
		r.Database = url
		return nil
	}
	if r.Postgres, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(s.Dir, r.Name)}); err != nil {
		return err
	}
	r.Database, err = r.Postgres.CreateDatabase(ctx, "tranche")
	return err
}

// startRegion registers a region, and starts its links and its nodes.
func (s *Stage) startRegion(ctx context.Context, r *Region) error {
	admin, err := s.Admin(0)
	if err != nil {
		return err
	}
	var answer coordinator.RegionAnswer
	call := api.Call{Method: http.MethodPost, Path: "/v1/regions", Body: map[string]string{"region": r.Name}}
	if _, err := admin.Do(ctx, call, &answer); err != nil {
		return fmt.Errorf("register region %s: %w", r.Name, err)
	}
	r.token = filepath.Join(s.Dir, r.Name+".token")
	if err := os.WriteFile(r.token, []byte(answer.Token+"\n"), 0o600); err != nil {
		return err
	}
	var tokens strings.Builder
	for name, token := range s.Gateways {
		fmt.Fprintf(&tokens, "%s %s\n", name, token)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, r.Name+".gateways"), []byte(tokens.String()), 0o600); err != nil {
		return err
	}
	if err := s.connect(r); err != nil {
		return err
	}
	var parts []func(context.Context) error
	for i := range s.options.NodesEach {
		n, err := s.node(r, i+1)
		if err != nil {
			return err
		}
		r.Nodes = append(r.Nodes, n)
		parts = append(parts, n.Start)
	}
	return Together(ctx, parts...)
}

// node is a node that is not started yet.
func (s *Stage) node(r *Region, number int) (*Server, error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	n := &Server{Name: fmt.Sprintf("%s-%d", r.Name, number), Address: "http://" + address, env: []string{"TRANCHE_POSTGRES_URL=" + r.Database}}
	n.log = filepath.Join(s.Dir, n.Name+".log")
	n.args = []string{
		"node", "--name", n.Name, "--region-token-file", r.token, "--coordinator", strings.Join(s.coordinatorsOf(r), ","), "--listen", address,
		"--gateway-token-file", filepath.Join(s.Dir, r.Name+".gateways"), "--sync-every", "250ms", "--log-level", "warn",
	}
	if s.options.Certificate != "" {
		n.args = append(n.args, "--coordinator-ca", s.options.Certificate)
	}
	n.ready = n.answers
	return n, s.place(r.Name, address, n)
}
