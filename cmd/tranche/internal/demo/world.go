package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/proxy"
	"tranche/coordinator"
	"tranche/regional/postgres/cluster"
)

// world is everything that runs.
type world struct {
	tell        *teller
	dir         string
	record      *record
	coordinator *process.Child
	admin       *api.Client
	adminToken  string
	gateways    map[string]string // their tokens, by name
	regions     map[string]*region

	mu       sync.Mutex
	children []*process.Child
	killed   map[*process.Child]bool // those that we ended on purpose
}

// region is one region: its database, its link, its nodes.
type region struct {
	name     string
	postgres *cluster.Cluster
	database string
	link     *proxy.Link
	token    string // a file
	nodes    []*node
}

// node is one regional process.
type node struct {
	name    string
	address string // URL
	child   *process.Child
}

const (
	edge1 = "edge-1" // the gateways, by the names of their tokens
	edge2 = "edge-2"

	stopPatience = 4 * time.Second
	nodesEach    = 2
)

// start brings everything up. The world is never nil, so that what came up can be stopped.
func start(ctx context.Context, t *teller) (*world, error) {
	w := &world{
		tell: t, record: newRecord(), gateways: map[string]string{edge1: secret(), edge2: secret()},
		regions: map[string]*region{regionA: {name: regionA}, regionB: {name: regionB}}, killed: map[*process.Child]bool{},
	}
	var err error
	if w.dir, err = os.MkdirTemp("", "tranche-demo-"); err != nil {
		return w, fmt.Errorf("start the demo: %w", err)
	}
	if err := os.Chmod(w.dir, 0o755); err != nil { // Postgres may run as another user, who must reach its own folder
		return w, fmt.Errorf("start the demo: %w", err)
	}
	t.progress("starting etcd and a coordinator, and a Postgres for each region")
	parts := []func(context.Context) error{w.startCoordinator}
	for _, r := range w.regions {
		parts = append(parts, func(ctx context.Context) error { return w.startPostgres(ctx, r) })
	}
	if err := together(ctx, parts...); err != nil {
		return w, err
	}
	t.progress("up after %.1f s; registering the regions and starting two nodes in each", t.seconds())
	parts = nil
	for _, r := range w.regions {
		parts = append(parts, func(ctx context.Context) error { return w.startRegion(ctx, r) })
	}
	if err := together(ctx, parts...); err != nil {
		return w, err
	}
	t.progress("all is up after %.1f s\n", t.seconds())
	return w, nil
}

// together runs the parts at the same time and joins their errors.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	errs := make([]error, len(parts))
	var wait sync.WaitGroup
	for i, part := range parts {
		wait.Go(func() { errs[i] = part(ctx) })
	}
	wait.Wait()
	return errors.Join(errs...)
}

func secret() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// freeAddress finds a port below the range that Linux gives to outgoing connections, so that no connection takes it while
// its process starts.
func freeAddress() (string, error) {
	var last error
	for range 100 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+mrand.N(17000)))
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			last = err
			continue
		}
		return address, listener.Close()
	}
	return "", fmt.Errorf("find a free port: %w", last)
}

// child starts this program again.
func (w *world) child(name string, env []string, args ...string) (*process.Child, error) {
	c, err := process.Start(name, filepath.Join(w.dir, name+".log"), env, args...)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.children = append(w.children, c)
	return c, nil
}

func (w *world) startCoordinator(ctx context.Context) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, "admin.token")
	w.coordinator, err = w.child("coordinator", nil, "coordinator", "--dev", "--data-dir", filepath.Join(w.dir, "coordinator"),
		"--listen", address, "--report-unreachable-after", unreachable.String(), "--admin-token-file", file, "--log-level", "warn")
	if err != nil {
		return err
	}
	err = until(ctx, "the coordinator serves", func() (bool, error) {
		if err := w.coordinator.Failure(); err != nil {
			return false, err
		}
		text, err := os.ReadFile(file)
		w.adminToken = strings.TrimSpace(string(text))
		return err == nil && w.adminToken != "", nil
	})
	if err != nil {
		return err
	}
	w.admin, err = api.New("coordinator", "http://"+address, w.adminToken, "")
	return err
}

func (w *world) startPostgres(ctx context.Context, r *region) (err error) {
	if r.postgres, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(w.dir, r.name)}); err != nil {
		return err
	}
	r.database, err = r.postgres.CreateDatabase(ctx, "tranche")
	return err
}

// startRegion registers a region, and starts its link and its nodes.
func (w *world) startRegion(ctx context.Context, r *region) error {
	var answer coordinator.RegionAnswer
	call := api.Call{Method: http.MethodPost, Path: "/v1/regions", Body: map[string]string{"region": r.name}}
	if _, err := w.admin.Do(ctx, call, &answer); err != nil {
		return fmt.Errorf("register region %s: %w", r.name, err)
	}
	r.token = filepath.Join(w.dir, r.name+".token")
	if err := os.WriteFile(r.token, []byte(answer.Token+"\n"), 0o600); err != nil {
		return err
	}
	tokens := fmt.Sprintf("%s %s\n%s %s\n", edge1, w.gateways[edge1], edge2, w.gateways[edge2])
	if err := os.WriteFile(filepath.Join(w.dir, r.name+".gateways"), []byte(tokens), 0o600); err != nil {
		return err
	}
	link, err := proxy.Listen(strings.TrimPrefix(w.admin.Address(), "http://"))
	if err != nil {
		return err
	}
	r.link = link
	for i := range nodesEach {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, &node{name: fmt.Sprintf("%s-%d", r.name, i+1), address: "http://" + address})
	}
	var parts []func(context.Context) error
	for _, n := range r.nodes {
		parts = append(parts, func(ctx context.Context) error { return w.startNode(ctx, r, n) })
	}
	return together(ctx, parts...)
}

func (w *world) startNode(ctx context.Context, r *region, n *node) (err error) {
	n.child, err = w.child(n.name, []string{"TRANCHE_POSTGRES_URL=" + r.database}, "node", "--name", n.name,
		"--region-token-file", r.token, "--coordinator", "http://"+r.link.Addr(), "--listen", strings.TrimPrefix(n.address, "http://"),
		"--gateway-token-file", filepath.Join(w.dir, r.name+".gateways"), "--sync-every", "250ms", "--log-level", "warn")
	if err != nil {
		return err
	}
	client, err := w.client(edge1, n)
	if err != nil {
		return err
	}
	return until(ctx, n.name+" is ready", func() (bool, error) {
		if err := n.child.Failure(); err != nil {
			return false, err
		}
		status, _, _, err := client.Send(ctx, api.Call{Method: http.MethodGet, Path: "/readyz"})
		return err == nil && status == http.StatusOK, nil
	})
}

// client speaks to a node as one of the gateways.
func (w *world) client(gateway string, n *node) (*api.Client, error) {
	return api.New("node", n.address, w.gateways[gateway], "")
}

// failure names processes that ended though nobody ended them.
func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, c := range w.children {
		if !w.killed[c] {
			errs = append(errs, c.Failure())
		}
	}
	return errors.Join(errs...)
}

// kill ends a process as a crash would.
func (w *world) kill(c *process.Child) {
	w.mu.Lock()
	w.killed[c] = true
	w.mu.Unlock()
	c.Kill()
}

// stop ends everything and removes the folder. Nodes end in order, then what they rest on.
func (w *world) stop() error {
	w.mu.Lock()
	children := w.children
	w.mu.Unlock()
	var nodes, rest []func(context.Context) error
	for _, c := range children {
		end := func(context.Context) error {
			if w.killed[c] {
				return nil
			}
			return c.Stop(stopPatience)
		}
		if c == w.coordinator {
			rest = append(rest, end)
		} else {
			nodes = append(nodes, end)
		}
	}
	for _, r := range w.regions {
		rest = append(rest, func(ctx context.Context) error {
			if r.link != nil {
				_ = r.link.Close() // nobody uses it any more
			}
			if r.postgres == nil {
				return nil
			}
			end, cancel := context.WithTimeout(ctx, stopPatience)
			defer cancel()
			return r.postgres.Stop(end)
		})
	}
	ctx := context.Background()
	err := errors.Join(together(ctx, nodes...), together(ctx, rest...))
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}
