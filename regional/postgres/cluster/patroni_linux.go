package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrNoPatroni says that Patroni is not installed.
var ErrNoPatroni = errors.New("no patroni found; install it (Debian, Ubuntu: apt-get install patroni)")

const (
	patroniPatience  = 60 * time.Second
	patroniEvery     = 100 * time.Millisecond
	replicator       = "replicator"
	patroniNamespace = "/patroni/"
)

// PatroniOptions say which group of Postgres servers to start.
type PatroniOptions struct {
	// Dir holds a folder for each member.
	Dir string
	// Etcd is the address, host:port, at which the members agree on who leads.
	Etcd string
	// Members is how many there are; one leads.
	Members int
	// Asynchronous: a commit waits for no replica. Else it waits for one, or for ever.
	Asynchronous bool
}

// Patroni is a group of Postgres servers that Patroni keeps: one leads, the others follow it. Its members are killed and
// started again by one caller at a time.
type Patroni struct {
	options  PatroniOptions
	with     Binaries
	who      account
	program  string
	password string
	members  []*patroniMember
}

type patroniMember struct {
	name           string
	dir            string
	postgres, rest int // ports
	current        *process
}

// StartPatroni starts the members and returns when one leads and the others follow. The group is never nil, so that what
// came up can be stopped.
func StartPatroni(ctx context.Context, o PatroniOptions) (*Patroni, error) {
	p := &Patroni{options: o, password: "of-a-test"}
	var err error
	if p.program, err = exec.LookPath("patroni"); err != nil {
		return p, ErrNoPatroni
	}
	if p.with, err = Find(); err != nil {
		return p, err
	}
	if p.who, err = chooseAccount(); err != nil {
		return p, err
	}
	for i := range o.Members {
		m := &patroniMember{name: fmt.Sprintf("member-%d", i+1)}
		m.dir = filepath.Join(o.Dir, m.name)
		if m.postgres, err = FreePort(); err != nil {
			return p, err
		}
		if m.rest, err = FreePort(); err != nil {
			return p, err
		}
		p.members = append(p.members, m)
		if err := p.StartMember(i); err != nil {
			return p, err
		}
	}
	return p, p.Settled(ctx)
}

// StartMember starts a member, also again after a kill, and does not wait for it.
func (p *Patroni) StartMember(i int) error {
	m := p.members[i]
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	if err := errors.Join(p.who.own(m.dir), p.who.reach(m.dir)); err != nil {
		return err
	}
	file := filepath.Join(m.dir, "patroni.yml")
	if err := p.who.writeFile(file, []byte(p.configuration(m))); err != nil {
		return err
	}
	output, err := openLog(filepath.Join(m.dir, "patroni.log"), p.who)
	if err != nil {
		return err
	}
	defer output.Close()
	if m.current, err = launch(exec.Command(p.program, file), p.who, m.dir, output, syscall.SIGTERM); err != nil {
		return fmt.Errorf("start patroni %s: %w", m.name, err)
	}
	return nil
}

// configuration fails over within seconds. A member that was killed and comes back is made anew from the leader if it
// lacks what the leader has.
func (p *Patroni) configuration(m *patroniMember) string {
	return fmt.Sprintf(`scope: tranche
namespace: %[1]s
name: %[2]s
restapi: {listen: "127.0.0.1:%[3]d", connect_address: "127.0.0.1:%[3]d"}
etcd3: {host: "%[4]s"}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: %[5]t
    synchronous_mode_strict: %[5]t
    postgresql: {parameters: {max_connections: 60, synchronous_commit: "on"}}
  initdb: [{encoding: UTF8}, {auth-host: scram-sha-256}, {auth-local: trust}]
postgresql:
  listen: 127.0.0.1:%[6]d
  connect_address: 127.0.0.1:%[6]d
  data_dir: %[7]s/data
  bin_dir: %[8]s
  pgpass: %[7]s/pgpass
  remove_data_directory_on_diverged_timelines: true
  remove_data_directory_on_rewind_failure: true
  authentication:
    superuser: {username: %[9]s, password: %[10]s}
    replication: {username: %[11]s, password: %[10]s}
  parameters: {unix_socket_directories: %[7]s}
  pg_hba:
    - local all all trust
    - host replication %[11]s 127.0.0.1/32 scram-sha-256
    - host all all 127.0.0.1/32 scram-sha-256
`, patroniNamespace, m.name, m.rest, p.options.Etcd, !p.options.Asynchronous, m.postgres, m.dir, p.with.Dir, superuser, p.password, replicator)
}

// URL is how a client reaches a database of whoever leads, as the superuser. It holds the password.
func (p *Patroni) URL(database string) string {
	var hosts []string
	for _, m := range p.members {
		hosts = append(hosts, net.JoinHostPort("127.0.0.1", strconv.Itoa(m.postgres)))
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, p.password), Host: strings.Join(hosts, ","), Path: "/" + database,
		RawQuery: "sslmode=disable&target_session_attrs=read-write&connect_timeout=2",
	}
	return u.String()
}

// CreateDatabase makes a database and returns its URL.
func (p *Patroni) CreateDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
	return p.URL(name), err
}

// state is what the REST API of any member tells of all.
type patroniState struct {
	Members []struct {
		Name  string `json:"name"`
		Role  string `json:"role"`
		State string `json:"state"`
	} `json:"members"`
}

func (p *Patroni) state(ctx context.Context) (patroniState, error) {
	var errs []error
	for _, m := range p.members {
		var s patroniState
		err := p.ask(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/cluster", m.rest), "", &s)
		if err == nil {
			return s, nil
		}
		errs = append(errs, err)
	}
	return patroniState{}, errors.Join(errs...)
}

func (p *Patroni) ask(ctx context.Context, method, to, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patroniPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if into != nil {
		return json.NewDecoder(answer.Body).Decode(into)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, to, answer.Status)
	}
	return nil
}

// Leader is the number of the member that leads.
func (p *Patroni) Leader(ctx context.Context) (int, error) {
	s, err := p.state(ctx)
	if err != nil {
		return 0, err
	}
	for _, m := range s.Members {
		if m.Role != "leader" || m.State != "running" {
			continue
		}
		for i := range p.members {
			if p.members[i].name == m.Name {
				return i, nil
			}
		}
	}
	return 0, errors.New("nobody leads")
}

// Settled waits until one member leads and all others follow it, synchronously unless that was not asked for.
func (p *Patroni) Settled(ctx context.Context) error {
	return p.until(ctx, "one leads and the others follow", func() bool {
		s, err := p.state(ctx)
		leaders, followers, synchronous := 0, 0, 0
		for _, m := range s.Members {
			switch {
			case m.State != "running" && m.State != "streaming":
			case m.Role == "leader":
				leaders++
			case m.Role == "sync_standby":
				synchronous++
				followers++
			default:
				followers++
			}
		}
		return err == nil && leaders == 1 && followers == len(p.members)-1 && (p.options.Asynchronous || synchronous > 0)
	})
}

func (p *Patroni) until(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patroniPatience)
	defer cancel()
	tick := time.NewTicker(patroniEvery)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; see the logs in %s", what, ctx.Err(), p.options.Dir)
		}
	}
	return nil
}

// StopReplication cuts the replicas off from the leader, over a connection to it: they keep what they have.
func (p *Patroni) StopReplication(ctx context.Context, leader *pgx.Conn) error {
	for _, statement := range []string{
		"alter role " + replicator + " nologin",
		"select pg_terminate_backend(pid) from pg_stat_replication",
	} {
		if _, err := leader.Exec(ctx, statement); err != nil {
			return fmt.Errorf("stop the replication: %w", err)
		}
	}
	return nil
}

// Switchover hands the lead to another member, in order, and returns when that leads.
func (p *Patroni) Switchover(ctx context.Context) error {
	i, err := p.Leader(ctx)
	if err != nil {
		return err
	}
	m := p.members[i]
	return p.ask(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/switchover", m.rest), fmt.Sprintf(`{"leader":%q}`, m.name), nil)
}

// KillLeader ends the leading member as a power cut would, Postgres and Patroni, and says which it was.
func (p *Patroni) KillLeader(ctx context.Context) (int, error) {
	i, err := p.Leader(ctx)
	if err != nil {
		return 0, err
	}
	return i, p.killMember(p.members[i])
}

// killMember ends a member at once. Its postmaster is no child of Patroni's: its own file says which process it is.
func (p *Patroni) killMember(m *patroniMember) error {
	if m.current == nil {
		return nil
	}
	m.current.kill()
	<-m.current.ended
	m.current = nil
	text, err := os.ReadFile(filepath.Join(m.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil // it does not run
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return fmt.Errorf("read which process the postmaster of %s is: %w", m.name, err)
	}
	s, ok := statusOf(pid)
	if !ok {
		return nil
	}
	children, err := childrenOf(pid)
	family := append([]member{{pid: pid, birth: s.birth}}, children...)
	for _, process := range family {
		process.signal(syscall.SIGKILL)
	}
	gone := func() bool {
		for _, process := range family {
			if process.alive() {
				return false
			}
		}
		return true
	}
	if !eventually(gone) {
		return fmt.Errorf("kill the Postgres of %s: a process of it is still there after %v", m.name, signalPatience)
	}
	return err
}

// Stop ends all members at once. What they hold stays in Dir.
func (p *Patroni) Stop() error {
	var errs []error
	for _, m := range p.members {
		errs = append(errs, p.killMember(m))
	}
	return errors.Join(errs...)
}
