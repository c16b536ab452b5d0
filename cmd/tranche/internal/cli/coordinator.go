package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"tranche/coordinator"
	"tranche/coordinator/etcd"
	"tranche/coordinator/etcd/embedded"
)

// coordinatorOptions are the flags of `tranche coordinator`.
type coordinatorOptions struct {
	listen      string
	tls         serverTLS
	etcd        etcdOptions
	dev         bool
	dataDir     string
	stateDir    string
	coldStart   string
	goOn        goOnOptions
	unreachable time.Duration
	closings    closingOptions
	tokenFile   string
	hook        hookOptions
	log         logOptions
}

func (a *App) coordinatorCommand() *cobra.Command {
	var o coordinatorOptions
	c := &cobra.Command{
		Use: "coordinator", Short: "Run the global side: ledgers in etcd, sync, the admin API", Args: exactly(),
		Long: `Run one replica of the coordinator. Any number of replicas may run over one etcd.

With --dev it runs a single etcd member itself, for one machine. At the first start of a deployment
it prints the first admin token, once.`,
		Example: `  tranche coordinator --dev --data-dir ./coordinator
  tranche coordinator --etcd-endpoints https://etcd-1:2379,https://etcd-2:2379,https://etcd-3:2379 \
      --etcd-ca ca.pem --listen 0.0.0.0:7070 --tls-cert cert.pem --tls-key key.pem`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runCoordinator(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:7070", "`ADDRESS` to serve the API on")
	o.tls.flags(f)
	o.etcd.flags(f)
	f.BoolVar(&o.dev, "dev", false, "run an etcd of our own, a single member, under --data-dir")
	f.StringVar(&o.dataDir, "data-dir", "", "`FOLDER` of the etcd of --dev")
	f.StringVar(&o.stateDir, "state-dir", "", "`FOLDER`, on a disk that stays, in which this replica remembers what it wrote last (default with --dev: state in --data-dir)")
	f.StringVar(&o.coldStart, "cold-start", coldStartWait, "without memory: `wait` until another coordinator vouches or every region has stated; or trust-etcd")
	o.goOn.flags(f)
	o.closings.flags(f)
	f.DurationVar(&o.unreachable, "report-unreachable-after", coordinator.DefaultReportUnreachableAfter, "silence after which what a region holds is reported as stranded")
	f.StringVar(&o.tokenFile, "admin-token-file", "", "`FILE` to write the first admin token to (mode 0600) instead of printing it")
	o.hook.flags(f)
	o.log.flags(f)
	return c
}

func (o coordinatorOptions) check() error {
	switch {
	case o.dev && len(o.etcd.endpoints) > 0:
		return usagef("--dev runs an etcd of its own; leave out --etcd-endpoints, or --dev")
	case o.dev && o.dataDir == "":
		return usagef("--dev needs --data-dir FOLDER: the ledger must outlive the process")
	case !o.dev && o.dataDir != "":
		return usagef("--data-dir is the folder of --dev's etcd; give --dev too, or leave it out")
	case !o.dev && len(o.etcd.endpoints) == 0:
		return usagef("no etcd: give --etcd-endpoints http://HOST:2379,… , or --dev --data-dir FOLDER to run one on this machine")
	case o.coldStart != coldStartWait && o.coldStart != coldStartTrust:
		return usagef("--cold-start %q: use %s or %s", o.coldStart, coldStartWait, coldStartTrust)
	case o.closings.retention < time.Hour:
		return usagef("--closing-retention %s: use at least 1h", o.closings.retention)
	case o.unreachable < time.Second:
		return usagef("--report-unreachable-after %s: use at least 1s", o.unreachable)
	}
	if err := o.goOn.check(); err != nil {
		return err
	}
	return checkListen(o.listen, o.tls.given())
}

func (a *App) runCoordinator(ctx context.Context, o coordinatorOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	log, err := o.log.logger(a.err, "coordinator")
	if err != nil {
		return err
	}
	hook, err := o.hook.receiver()
	if err != nil {
		return err
	}
	tlsConfig, err := o.tls.config()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w; choose another --listen, or end what uses it", err)
	}
	defer listener.Close()
	if o.dev {
		member, err := startEtcd(ctx, o.dataDir, log)
		if err != nil {
			return err
		}
		defer member.Close()
		o.etcd.endpoints = member.Endpoints()
	}
	config, err := o.etcd.config(log)
	if err != nil {
		return err
	}
	store, err := etcd.Open(ctx, config)
	if err != nil {
		return err
	}
	defer store.Close()
	memory, err := o.memory(log)
	if err != nil {
		return err
	}
	if memory != nil {
		defer memory.Close()
	}
	closings, err := o.closings.open(memory, log)
	if err != nil {
		return err
	}
	if closings != nil {
		defer closings.Close()
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	service := coordinator.New(coordinator.Config{
		Store: store, Memory: asMemory(memory), TrustEtcd: o.coldStart == coldStartTrust, GoOn: o.goOn.value(), Log: log, Registry: registry, ReportUnreachableAfter: o.unreachable, ClosingRetention: o.closings.retention, Version: Version(),
		Webhook: hook, ClosingArchive: asArchive(closings),
		OnFirstAdminToken: func(token string) { a.firstToken(token, o.tokenFile, log) },
	})
	server := &http.Server{
		Handler: service.Handler(), TLSConfig: tlsConfig, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute + o.unreachable, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	log.Info("listening", "address", listener.Addr().String(), "tls", tlsConfig != nil, "version", Version())
	return serve(ctx, server, listener, service.Run, log, nil)
}

// What a replica does that starts without memory.
const (
	coldStartWait  = "wait"
	coldStartTrust = "trust-etcd"
)

// memory opens the state directory; nil: there is none.
func (o coordinatorOptions) memory(log hclog.Logger) (*stateDir, error) {
	if o.stateDir == "" && o.dev {
		o.stateDir = filepath.Join(o.dataDir, "state")
	}
	if o.stateDir == "" {
		log.Warn("no --state-dir: after each start this replica grants nothing until another one vouches or every region has stated")
		return nil, nil
	}
	return openStateDir(o.stateDir)
}

// asMemory keeps a nil pointer from looking like a memory.
func asMemory(s *stateDir) coordinator.Memory {
	if s == nil {
		return nil
	}
	return s
}

func startEtcd(ctx context.Context, dir string, log hclog.Logger) (*embedded.Server, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("make the folder of etcd: %w", err)
	}
	return embedded.Start(ctx, embedded.Options{Dir: filepath.Join(dir, "etcd"), Logger: log.Named("etcd")})
}

// firstToken says the first admin token, once: it is stored nowhere else.
func (a *App) firstToken(token, file string, log hclog.Logger) {
	if file == "" {
		a.printf("first admin token (it is shown only now): %s\n", token)
		return
	}
	err := writeSecret(file, token)
	if err == nil {
		log.Info("the first admin token is written", "file", file)
		return
	}
	log.Error("write the first admin token; it is printed instead", "error", err)
	a.printf("first admin token (it is shown only now): %s\n", token)
}

// writeSecret makes a file that only its owner may read, whole or not at all. It replaces none.
func writeSecret(path, secret string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(secret + "\n")
	return errors.Join(err, f.Close())
}

func (a *App) etcdMemberCommand() *cobra.Command {
	return &cobra.Command{
		Use: "etcd-member", Hidden: true, Args: exactly(), Short: "Run an etcd member for the demo and for tests",
		RunE: func(c *cobra.Command, _ []string) error {
			o, ok, err := embedded.OptionsFromEnvironment()
			if err != nil {
				return err
			}
			if !ok {
				return usagef("this is for child processes; set %s", embedded.MemberVariable)
			}
			return embedded.RunMember(c.Context(), o)
		},
	}
}
