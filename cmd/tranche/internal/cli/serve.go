package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"tranche/cmd/tranche/internal/process"
	"tranche/coordinator/etcd"
)

// What an end may take: first the calls that are under way, then what the service has begun with its store. Whoever waits for
// a process of ours rests on their sum, process.EndsWithin.
const (
	shutdownPatience = 5 * time.Second
	workPatience     = process.EndsWithin - shutdownPatience - postgresPatience
	postgresPatience = 5 * time.Second // for the Postgres of --dev
)

// companion is a second API of a service: it is served beside the first, and told to end with it.
type companion struct {
	serve func() error // until it is stopped
	stop  func(grace context.Context)
}

// serve runs a service and its API, and the companion if there is one, until ctx ends or one of them fails. At the end it first tells held calls to return,
// then waits for those under way, then ends the service: nobody who was served hears of an end that came too soon. It does
// not wait for ever: what is not done in its time is given up, as by a crash.
func serve(ctx context.Context, server *http.Server, listener net.Listener, run func(context.Context) error, log hclog.Logger, beside *companion) error {
	work, endWork := context.WithCancel(context.WithoutCancel(ctx))
	defer endWork()
	calls, endCalls := context.WithCancel(work)
	server.BaseContext = func(net.Listener) context.Context { return calls }
	worked, served := make(chan error, 1), make(chan error, 2)
	go func() { worked <- run(work) }()
	front := newEars(listener)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(front, "", "")
			return
		}
		served <- server.Serve(front)
	}()
	if beside != nil {
		go func() { served <- beside.serve() }()
	}
	var failure error
	running := true
	select {
	case <-ctx.Done():
		log.Info("ending", "reason", "asked to")
	case failure = <-worked:
		running = false
	case failure = <-served:
		failure = fmt.Errorf("serve the API: %w", failure)
	}
	endCalls()
	endAPIs(context.WithoutCancel(ctx), server, front, log, beside)
	endWork()
	if running {
		failure = errors.Join(failure, ended(worked, workPatience))
	}
	return failure
}

// endAPIs lets the calls under way end, and closes what is left of them when their time is over.
func endAPIs(ctx context.Context, server *http.Server, front *ears, log hclog.Logger, beside *companion) {
	grace, cancel := context.WithTimeout(ctx, shutdownPatience)
	defer cancel()
	var both sync.WaitGroup
	defer both.Wait()
	if beside != nil {
		both.Go(func() { beside.stop(grace) })
	}
	quiet := time.AfterFunc(silentFor, front.hush)
	defer quiet.Stop()
	if err := server.Shutdown(grace); err != nil {
		log.Warn("calls were still under way", "error", err)
		_ = server.Close() // what is left of them
	}
}

// ended waits for the end of the service.
func ended(worked <-chan error, within time.Duration) error {
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-worked:
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	case <-late.C:
		return fmt.Errorf("what was begun with the database did not end within %s of being asked to; whether it was committed shows at the next start", within)
	}
}

// serverTLS are the flags of a server's certificate.
type serverTLS struct{ cert, key string }

func (t *serverTLS) flags(f *pflag.FlagSet) {
	f.StringVar(&t.cert, "tls-cert", "", "`FILE` of the server's certificate, PEM; needed to listen beyond this machine")
	f.StringVar(&t.key, "tls-key", "", "`FILE` of its private key, PEM")
}

func (t *serverTLS) given() bool { return t.cert != "" || t.key != "" }

func (t *serverTLS) config() (*tls.Config, error) {
	if !t.given() {
		return nil, nil
	}
	if t.cert == "" || t.key == "" {
		return nil, usagef("--tls-cert and --tls-key belong together; give both")
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s and its key %s: %w", t.cert, t.key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// trust reads certificates to trust; nil for the system's.
func trust(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificates to trust: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", file)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// etcdOptions are the flags of the connection to etcd.
type etcdOptions struct {
	endpoints          []string
	ca, cert, key      string
	user, passwordFile string
}

func (o *etcdOptions) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.endpoints, "etcd-endpoints", nil, "`URLS` of the etcd members, http://HOST:2379,…")
	f.StringVar(&o.ca, "etcd-ca", "", "`FILE` of the authority that signed etcd's certificates")
	f.StringVar(&o.cert, "etcd-cert", "", "`FILE` of our client certificate for etcd")
	f.StringVar(&o.key, "etcd-key", "", "`FILE` of its private key")
	f.StringVar(&o.user, "etcd-user", "", "`NAME` of our user in etcd")
	f.StringVar(&o.passwordFile, "etcd-password-file", "", "`FILE` that holds its password (else TRANCHE_ETCD_PASSWORD)")
}

func (o *etcdOptions) config(log hclog.Logger) (etcd.Config, error) {
	c := etcd.Config{Endpoints: o.endpoints, Username: o.user, Password: os.Getenv("TRANCHE_ETCD_PASSWORD"), Logger: log.Named("etcd")}
	if o.passwordFile != "" {
		secret, err := readSecret(o.passwordFile)
		if err != nil {
			return c, err
		}
		c.Password = secret
	}
	if o.user != "" && c.Password == "" {
		return c, usagef("--etcd-user %s needs a password: --etcd-password-file FILE or TRANCHE_ETCD_PASSWORD", o.user)
	}
	var err error
	if c.TLS, err = trust(o.ca); err != nil {
		return c, err
	}
	if o.cert == "" && o.key == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return c, fmt.Errorf("read the client certificate for etcd (--etcd-cert and --etcd-key): %w", err)
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	c.TLS.Certificates = []tls.Certificate{pair}
	return c, nil
}

// maxSecret bounds a file that holds one secret.
const maxSecret = 4 << 10

// readSecret reads a file with one line.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" || strings.ContainsAny(secret, "\r\n") {
		return "", usagef("%s must hold one line, the secret", path)
	}
	return secret, nil
}

// logOptions are the flags of a log.
type logOptions struct {
	level string
	json  bool
}

func (o *logOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.level, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&o.json, "log-json", false, "log JSON lines")
}

func (o *logOptions) logger(to io.Writer, name string) (hclog.Logger, error) {
	level := hclog.LevelFromString(o.level)
	if level == hclog.NoLevel {
		return nil, usagef("--log-level %q: use debug, info, warn or error", o.level)
	}
	return hclog.New(&hclog.LoggerOptions{Name: name, Level: level, Output: to, JSONFormat: o.json}), nil
}
