package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"tranche/cmd/tranche/internal/settings"
	"tranche/regional"
	"tranche/regional/envoy"
)

// envoyOptions are the flags of Envoy's rate limit service. It is off unless there is a mapping.
type envoyOptions struct {
	listen, mappingFile, credential string
	mapping                         envoy.Mapping
}

const defaultEnvoyListen = "127.0.0.1:7090"

func (o *envoyOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.mappingFile, "envoy-mapping", "", "`FILE` that says what Envoy's descriptors mean; with it the node is Envoy's rate limit service too")
	f.StringVar(&o.listen, "envoy-listen", defaultEnvoyListen, "`ADDRESS` to serve Envoy on, over gRPC; with TLS if the API has it")
	f.StringVar(&o.credential, "envoy-credential", "", "`NAME` that scopes the admission ids of Envoy's calls, which then need no token; on loopback only")
}

// check reads the mapping, and says what is wrong with it or unsafe.
func (o *envoyOptions) check(tokens []regional.Token, withTLS bool) error {
	if o.mappingFile == "" {
		if o.listen != defaultEnvoyListen || o.credential != "" {
			return usagef("--envoy-listen and --envoy-credential are of the service that --envoy-mapping FILE turns on; give it too")
		}
		return nil
	}
	if err := regional.CheckListen(o.listen, tokens, withTLS); err != nil {
		return usageError{fmt.Errorf("--envoy-listen: %w", err)}
	}
	if o.credential != "" {
		host, _, _ := net.SplitHostPort(o.listen)
		switch {
		case !settings.IsLoopback(host):
			return usagef("--envoy-credential lets in who has no token, and --envoy-listen %s can be reached from other machines; let Envoy send a gateway's token", o.listen)
		case !regional.ValidTokenName(o.credential):
			return usagef("--envoy-credential %q: a name has 1 to 64 of letters, digits . _ -", o.credential)
		}
	}
	text, err := os.ReadFile(o.mappingFile)
	if err != nil {
		return fmt.Errorf("read the mapping: %w", err)
	}
	if o.mapping, err = envoy.ParseMapping(o.mappingFile, text); err != nil {
		return usageError{err}
	}
	return nil
}

// open listens, and returns what to serve; nil if the service is off.
func (o *envoyOptions) open(door regional.HTTPConfig, node regional.Backend, withTLS *tls.Config, log hclog.Logger) (*companion, error) {
	if o.mappingFile == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w; choose another --envoy-listen, or end what uses it", err)
	}
	server := envoy.New(envoy.Config{
		Mapping: o.mapping, Gate: regional.NewGate(door, node), Credential: o.credential, TLS: withTLS, Logger: log,
	})
	log.Info("listening", "address", listener.Addr().String(), "tls", withTLS != nil, "domains", len(o.mapping.Domains))
	return alongside(server, listener), nil
}

// alongside is a gRPC server that is served beside the API.
func alongside(server *grpc.Server, listener net.Listener) *companion {
	front := newEars(listener)
	return &companion{
		serve: func() error {
			if err := server.Serve(front); err != nil {
				return fmt.Errorf("serve Envoy: %w", err)
			}
			return nil
		},
		stop: func(grace context.Context) {
			done := make(chan struct{})
			quiet := time.AfterFunc(silentFor, front.hush)
			defer quiet.Stop()
			go func() {
				server.GracefulStop()
				close(done)
			}()
			select {
			case <-done:
			case <-grace.Done():
				server.Stop()
				<-done
			}
		},
	}
}
