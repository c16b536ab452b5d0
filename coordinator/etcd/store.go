package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"tranche/coordinator"
)

const (
	// openTimeout bounds Open's first read, and what the client does before its first call.
	openTimeout = 5 * time.Second
	// callTimeout bounds one request. It is less than the 7 s after which etcd itself gives up on a write.
	callTimeout = 5 * time.Second
	// keepAliveEvery and keepAliveWait end a connection to a machine that went away without a word.
	keepAliveEvery = 5 * time.Second
	keepAliveWait  = 3 * time.Second
	// connectMaxWait is the longest pause between two attempts to connect. gRPC's own is two minutes, in which a
	// coordinator would not notice that etcd is back.
	connectMaxWait = time.Second
	// pageKeys is how many keys one request of Range reads: at most 64 KiB each, so 8 MiB.
	pageKeys = 128
	// rangeAttempts is how often Range starts again when its revision was compacted between two pages.
	rangeAttempts = 3
)

// Config says where etcd is.
type Config struct {
	Endpoints []string    // http://host:port or https://host:port; at least one
	TLS       *tls.Config // nil: plain connections
	Username  string      // empty: no authentication
	Password  string
	Logger    hclog.Logger // nil: nobody hears of changes of leadership
}

// Store implements coordinator.Store. It is safe for concurrent use.
type Store struct {
	client    *clientv3.Client
	endpoints []string
	id        string // of this process, among the candidates of a leadership
	log       hclog.Logger
}

var _ coordinator.Store = (*Store)(nil)

// Open connects, and reads once to learn whether etcd answers and takes the credentials.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if len(cfg.Endpoints) == 0 {
		return nil, errors.New("open etcd: no endpoints are given")
	}
	log := cfg.Logger
	if log == nil {
		log = hclog.NewNullLogger()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		Username:             cfg.Username,
		Password:             cfg.Password,
		DialTimeout:          openTimeout,
		DialKeepAliveTime:    keepAliveEvery,
		DialKeepAliveTimeout: keepAliveWait,
		DialOptions:          []grpc.DialOption{connecting()},
		Logger:               zap.NewNop(), // what matters comes back as an error
	})
	if err != nil {
		return nil, fmt.Errorf("open etcd at %v: %w", cfg.Endpoints, err)
	}
	s := &Store{client: client, endpoints: cfg.Endpoints, id: uuid.NewString(), log: log}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if _, err := client.Get(ctx, coordinator.Root, clientv3.WithCountOnly()); err != nil {
		client.Close()
		return nil, fmt.Errorf("reach etcd at %v (is it running, and does it have a quorum?): %w", cfg.Endpoints, err)
	}
	return s, nil
}

func connecting() grpc.DialOption {
	wait := backoff.DefaultConfig
	wait.BaseDelay, wait.MaxDelay = connectMaxWait/10, connectMaxWait
	return grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: openTimeout})
}

// Close ends all connections. Calls under way fail.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// Range implements coordinator.Store.
func (s *Store) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	var err error
	for range rangeAttempts {
		var items []coordinator.Item
		var revision int64
		if items, revision, err = s.rangeOnce(ctx, prefix); err == nil {
			return items, revision, nil
		}
		if !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
	}
	return nil, 0, fmt.Errorf("read %s: %w", prefix, available(err))
}

func (s *Store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), callTimeout)
	defer cancel()
	return s.client.Get(ctx, key, options...)
}

// Compact implements coordinator.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := s.client.Compact(ctx, revision)
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return nil
}
