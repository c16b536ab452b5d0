package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster"
)

// regionTokenVariable and postgresVariable are environment variables that hold secrets.
const (
	regionTokenVariable = "TRANCHE_REGION_TOKEN"
	postgresVariable    = "TRANCHE_POSTGRES_URL"
)

// nodeOptions are the flags of `tranche node`.
type nodeOptions struct {
	region, tokenFile    string
	coordinators         []string
	ca                   string
	postgres, direct     string
	connections          int
	dev                  bool
	dataDir              string
	listen               string
	tls                  serverTLS
	gatewayTokens        string
	name, advertise      string
	syncEvery, retention time.Duration
	lanes                int
	shadow               bool
	envoy                envoyOptions
	forward              forwardOptions
	memory               memoryOptions
	refusals             refusalOptions
	log                  logOptions
}

func (a *App) nodeCommand() *cobra.Command {
	var o nodeOptions
	c := &cobra.Command{
		Use: "node", Short: "Run the regional side: admissions over the region's Postgres", Args: exactly(),
		Long: `Run one node of a region. Any number of nodes may run over the region's one Postgres database.

The region's token comes from "tranche regions register REGION"; it names the region and its deployment.
When the coordinator cannot be reached the region goes on with the shares that it holds.`,
		Example: `  tranche node --dev --data-dir ./us-east --region-token-file us-east.token
  tranche node --postgres-url postgres://tranche@db/tranche --coordinator https://coordinator:7070 \
      --region-token-file us-east.token --gateway-token-file gateways.tokens \
      --listen 0.0.0.0:7080 --tls-cert cert.pem --tls-key key.pem`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runNode(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.region, "region", "", "`NAME` of the region (else read from its token)")
	f.StringVar(&o.tokenFile, "region-token-file", "", "`FILE` that holds the region's token (else "+regionTokenVariable+")")
	f.StringSliceVar(&o.coordinators, "coordinator", nil, "`URLS` of the coordinator's replicas (else TRANCHE_COORDINATOR; default http://127.0.0.1:7070)")
	f.StringVar(&o.ca, "coordinator-ca", "", "`FILE` of the authority that signed the coordinator's certificate")
	f.StringVar(&o.postgres, "postgres-url", "", "`URL` of the region's database (else "+postgresVariable+", which keeps a password out of process lists)")
	f.StringVar(&o.direct, "postgres-direct-url", "", "`URL` for migrations, where --postgres-url leads through a transaction pooler")
	f.IntVar(&o.connections, "postgres-connections", postgres.DefaultMaxConns, "size of the connection pool")
	f.BoolVar(&o.dev, "dev", false, "run a Postgres of our own under --data-dir")
	f.StringVar(&o.dataDir, "data-dir", "", "`FOLDER` of the Postgres of --dev")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7080", "`ADDRESS` to serve the API on")
	o.tls.flags(f)
	f.StringVar(&o.gatewayTokens, "gateway-token-file", "", "`FILE` of gateways' tokens, a line each: NAME TOKEN and what it may do; read again when it changes; needed to listen beyond this machine")
	f.StringVar(&o.name, "name", "", "`NAME` of this node, unique in its region (default: host name and port)")
	f.StringVar(&o.advertise, "advertise", "", "`URL` at which operators reach this node (default: from --listen)")
	f.DurationVar(&o.syncEvery, "sync-every", time.Second, "how long the coordinator may hold a call that has nothing to say")
	f.DurationVar(&o.retention, "retention", 24*time.Hour, "how long admission ids are remembered")
	f.IntVar(&o.lanes, "lanes", 2, "transactions in flight")
	f.BoolVar(&o.shadow, "shadow", false, "refuse nobody, whatever is wrong; say, count and report what would have been refused")
	o.envoy.flags(f)
	o.forward.flags(f)
	o.memory.flags(f)
	o.refusals.flags(f)
	o.log.flags(f)
	return c
}

func (o *nodeOptions) check() error {
	if len(o.coordinators) == 0 {
		o.coordinators = strings.Split(cmp.Or(os.Getenv("TRANCHE_COORDINATOR"), "http://127.0.0.1:7070"), ",")
	}
	if !o.dev {
		o.postgres = cmp.Or(o.postgres, os.Getenv(postgresVariable))
	}
	switch {
	case o.dev && o.postgres != "":
		return usagef("--dev runs a Postgres of its own; leave out --postgres-url, or --dev")
	case o.dev && o.dataDir == "":
		return usagef("--dev needs --data-dir FOLDER: what was spent must outlive the process")
	case !o.dev && o.dataDir != "":
		return usagef("--data-dir is the folder of --dev's Postgres; give --dev too, or leave it out")
	case !o.dev && o.postgres == "":
		return usagef("no database: give --postgres-url (or %s), or --dev --data-dir FOLDER to run one on this machine", postgresVariable)
	case o.lanes < 1 || o.lanes > 64:
		return usagef("--lanes %d: use 1 to 64", o.lanes)
	case o.connections < o.lanes+3:
		return usagef("--postgres-connections %d: %s at least %d", o.connections, plural(o.lanes, "lane needs", "lanes need"), o.lanes+3)
	case o.syncEvery < 50*time.Millisecond || o.syncEvery > time.Minute:
		return usagef("--sync-every %s: use 50ms to 1m", o.syncEvery)
	case o.retention < time.Minute:
		return usagef("--retention %s: use at least 1m; a retry after it is charged again", o.retention)
	}
	if err := o.refusals.check(); err != nil {
		return err
	}
	return o.memory.check()
}

// regionToken reads the token and what it says: tranche_region_DEPLOYMENT_REGION_SECRET.
func (o *nodeOptions) regionToken() (token, deployment string, err error) {
	token = os.Getenv(regionTokenVariable)
	if o.tokenFile != "" {
		if token, err = readSecret(o.tokenFile); err != nil {
			return "", "", err
		}
	}
	if token == "" {
		return "", "", usagef("no region token: give --region-token-file or %s; `tranche regions register REGION` makes one", regionTokenVariable)
	}
	parts := strings.Split(token, "_")
	if len(parts) != 5 || parts[0] != "tranche" || parts[1] != "region" || !allocation.ValidRegion(parts[3]) {
		return "", "", usagef("this is no region's token; `tranche regions register REGION` prints one, beginning with tranche_region_")
	}
	if o.region == "" {
		o.region = parts[3]
	}
	if o.region != parts[3] {
		return "", "", usagef("--region %s, but the token is of region %s; use the region's own token", o.region, parts[3])
	}
	return token, parts[2], nil
}

func (a *App) runNode(ctx context.Context, o nodeOptions) error {
	collectSeldom()
	if err := o.check(); err != nil {
		return err
	}
	log, err := o.log.logger(a.err, "node")
	if err != nil {
		return err
	}
	token, deployment, err := o.regionToken()
	if err != nil {
		return err
	}
	gateways, err := o.gateways()
	if err != nil {
		return err
	}
	tlsConfig, err := o.tls.config()
	if err != nil {
		return err
	}
	if err := o.checkDoors(gateways, tlsConfig != nil); err != nil {
		return err
	}
	forward, err := o.forward.open()
	if err != nil {
		return err
	}
	coordinator, err := o.contact(token)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w; choose another --listen, or end what uses it", err)
	}
	defer listener.Close()
	if o.dev {
		stop, err := o.startPostgres(ctx, log)
		if err != nil {
			return err
		}
		defer stop()
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := regional.NewMetrics(registry)
	config := regional.Config{
		Region: o.region, Name: o.nodeName(listener.Addr()), URL: o.url(listener.Addr()), Version: Version(), Shadow: o.shadow, Deployment: deployment,
		Coordinator: coordinator, SyncEvery: o.syncEvery, Retention: allocation.Duration(o.retention / time.Second), Lanes: o.lanes,
		Log: log, Metrics: metrics, Memory: o.memory.open(), Sampling: o.refusals.sampling,
	}
	live := regional.NewLiveTokens(gateways)
	door := regional.HTTPConfig{
		Live: live, Metrics: metrics, Logger: log.Named("http"), Forward: forward, Shadow: o.shadow, Watch: regional.NewWatch(a.now()), Receipts: receiptsOf(deployment, token, config),
	}
	open := func(ctx context.Context) (*postgres.Store, error) { return a.openOwner(ctx, o, deployment, log) }
	backend, run, shut, err := o.backend(ctx, config, open, log)
	if err != nil {
		return err
	}
	beside, err := o.envoy.open(door, backend, tlsConfig, log.Named("envoy"))
	if err != nil {
		shut()
		return err
	}
	go o.reread(ctx, live, coordinator, log)
	log.Info("listening", "address", listener.Addr().String(), "tls", tlsConfig != nil, "region", o.region, "version", Version())
	return serve(ctx, nodeServer(door, backend, tlsConfig, log), listener, run, log, beside)
}

// receiptsOf is what the node signs refusals with: a key that follows from the region's token.
func receiptsOf(deployment, token string, c regional.Config) *regional.Receipts {
	return &regional.Receipts{Key: allocation.ReceiptKeyOf(deployment, c.Region, token), Node: c.Name}
}

// nodeServer is the server of a node's API.
func nodeServer(door regional.HTTPConfig, b regional.Backend, withTLS *tls.Config, log hclog.Logger) *http.Server {
	server := regional.NewServer(regional.NewHandler(door, b))
	server.TLSConfig = withTLS
	server.ErrorLog = log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})
	return server
}

// backend is the node over its database, and what runs it and shuts the database; shut is for one that is never run. In shadow the database may come later.
func (o *nodeOptions) backend(ctx context.Context, config regional.Config, open func(context.Context) (*postgres.Store, error), log hclog.Logger) (
	b regional.Backend, run func(context.Context) error, shut func(), err error,
) {
	if o.shadow {
		log.Warn("in shadow: this node refuses nobody, whatever is wrong")
		s := &shadowed{
			Late: regional.NewLate(config.Region, config.Name), open: open, log: log,
			make: func(owner *postgres.Store) *regional.Node { return regional.NewNode(config, owner) },
		}
		return s, s.run, func() {}, nil
	}
	owner, err := open(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	node := regional.NewNode(config, owner)
	run = func(ctx context.Context) error {
		defer owner.Shut()
		return node.Run(ctx)
	}
	return node, run, owner.Shut, nil
}

// contact is the way to the coordinator.
func (o *nodeOptions) contact(token string) (*regional.HTTPCoordinator, error) {
	trusted, err := trust(o.ca)
	if err != nil {
		return nil, err
	}
	c, err := regional.NewHTTPCoordinator(o.coordinators, token, trusted)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// checkDoors refuses to listen where tokens or requests would travel in the clear.
func (o *nodeOptions) checkDoors(gateways []regional.Token, encrypted bool) error {
	if err := regional.CheckListen(o.listen, gateways, encrypted); err != nil {
		return usageError{err}
	}
	return o.envoy.check(gateways, encrypted)
}

func (o *nodeOptions) gateways() ([]regional.Token, error) {
	if o.gatewayTokens == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.gatewayTokens)
	if err != nil {
		return nil, fmt.Errorf("read the gateways' tokens: %w", err)
	}
	list, err := regional.ParseTokens(text)
	if err != nil {
		return nil, usagef("%s: %w", o.gatewayTokens, err)
	}
	if len(list) == 0 {
		return nil, usagef("%s holds no token; write lines of a name and a token", o.gatewayTokens)
	}
	return list, nil
}

// openOwner opens the database, and says of a failure what an operator can do.
func (a *App) openOwner(ctx context.Context, o nodeOptions, deployment string, log hclog.Logger) (*postgres.Store, error) {
	owner, err := postgres.Open(ctx, postgres.Config{
		URL: o.postgres, DirectURL: o.direct, Region: o.region, Deployment: deployment, MaxConns: o.connections, Logger: log.Named("postgres"),
	})
	if errors.Is(err, regional.ErrNotReady) {
		return nil, fmt.Errorf("%w; each region needs a database of its own: correct --postgres-url or the region's token", err)
	}
	return owner, onceEach(err)
}

// startPostgres runs the Postgres of --dev.
func (o *nodeOptions) startPostgres(ctx context.Context, log hclog.Logger) (stop func(), err error) {
	dir, err := filepath.Abs(o.dataDir)
	if err == nil {
		// Postgres may run as another user (it refuses to be root): it must be able to enter. Its own folder is closed.
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("make the folder of Postgres: %w", err)
	}
	c, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(dir, "postgres"), Logger: log.Named("postgres")})
	if err != nil {
		return nil, err
	}
	stop = func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), postgresPatience)
		defer cancel()
		if err := c.Stop(end); err != nil {
			log.Warn("stop postgres", "error", err)
		}
	}
	if o.postgres, err = c.CreateDatabase(ctx, "tranche"); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (o *nodeOptions) nodeName(at net.Addr) string {
	if o.name != "" {
		return o.name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "node"
	}
	_, port, _ := net.SplitHostPort(at.String())
	return host + ":" + port
}

// url is where operators reach this node, as the coordinator is told.
func (o *nodeOptions) url(at net.Addr) string {
	if o.advertise != "" {
		return o.advertise
	}
	scheme := "http://"
	if o.tls.given() {
		scheme = "https://"
	}
	host, port, _ := net.SplitHostPort(at.String())
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return scheme + net.JoinHostPort(host, port)
}
