package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/allocation"
	"tranche/regional"
)

// Format is the format number of the owner's tables. A program that does not know it reads and writes nothing.
const Format = 8

// Defaults and bounds of a store.
const (
	DefaultMaxConns       = 8
	defaultLockTimeout    = 800 * time.Millisecond // below the default deadline of a request, 1 s
	defaultCommitPatience = 10 * time.Second
	leastServer           = 150000
)

// Config says which database is the owner's.
type Config struct {
	URL       string // of the database
	DirectURL string // for the migrations, where URL leads through a transaction pooler; empty: URL
	Region    string
	// Deployment is the one that the region's token belongs to; a database of another one is not ours. Empty: any.
	Deployment string
	MaxConns   int // of the one pool; 0: 8

	// LockTimeout bounds each wait for a lock, and how long a transaction may stand idle between its two round trips.
	// 0: 800 ms.
	LockTimeout time.Duration
	// CommitPatience bounds how long the answer to a commit is awaited. The commit itself is never cancelled. 0: 10 s.
	CommitPatience time.Duration

	Logger hclog.Logger
}

// Store is the owner's database. It may be used by many goroutines.
type Store struct {
	cfg       Config
	pool      *pgxpool.Pool
	home      atomic.Pointer[allocation.Home] // as last read by Open or Load
	nextShard atomic.Int64                    // where the next call begins to choose what it states
}

var _ regional.Owner = (*Store)(nil)

// Open checks the server, migrates the schema, and makes the owner's row if there is none. The context bounds the start.
//
// It fails with ErrNotReady when the database belongs to another region or format.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if cfg.Region == "" {
		return nil, errors.New("open the owner's database: no region is given")
	}
	config, err := poolConfig(cfg.URL, cfg.MaxConns)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	direct := config.ConnConfig
	if cfg.DirectURL != "" {
		if direct, err = pgx.ParseConfig(cfg.DirectURL); err != nil {
			return nil, fmt.Errorf("read the database's direct URL: %w", err)
		}
	}
	if err := checkServer(ctx, direct, cfg.MaxConns); err != nil {
		return nil, err
	}
	if err := migrate(ctx, direct); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the owner's database: %w", err)
	}
	s := &Store{cfg: cfg, pool: pool}
	if err := s.claim(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	cfg.Logger.Info("owner's database is open", "region", cfg.Region, "system", s.home.Load().System, "timeline", s.home.Load().Timeline)
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = defaultLockTimeout
	}
	if c.CommitPatience == 0 {
		c.CommitPatience = defaultCommitPatience
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Shut closes the pool. It waits for transactions that are on their way. (Close closes periods.)
func (s *Store) Shut() { s.pool.Close() }

// checkServer refuses a server on which the store's promises would not hold, or whose connections the pool would exhaust.
func checkServer(ctx context.Context, config *pgx.ConnConfig, most int) error {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect to the owner's database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var version, connections, kept int
	var standby bool
	if err := conn.QueryRow(ctx, selectServer).Scan(&version, &connections, &kept, &standby); err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	switch {
	case version < leastServer:
		return fmt.Errorf("the server is Postgres %d; Tranche needs 15 or newer", version/10000)
	case standby:
		return errors.New("the server is a standby: the owner's database must be the primary (give target_session_attrs=read-write)")
	case most > connections-kept:
		return fmt.Errorf("the pool of %d connections does not fit: max_connections is %d, of which %d are kept for superusers; "+
			"make the pool smaller (its default is %d) or raise max_connections, and leave room for the other nodes",
			most, connections, kept, DefaultMaxConns)
	}
	return nil
}

// claim makes the owner's row, and checks whose it is.
func (s *Store) claim(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, insertOwner, Format, s.cfg.Region); err != nil {
		return fmt.Errorf("make the owner's row: %w", err)
	}
	if _, err := s.Load(ctx, 0); err != nil {
		return err
	}
	var unsafe string
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectClock).QueryRow(func(row pgx.Row) (err error) {
		_, unsafe, _, err = scanClock(row)
		return err
	})
	if err := s.read(ctx, q); err != nil {
		return fmt.Errorf("read the server's settings: %w", err)
	}
	if unsafe != "" { // seen again in every batch: it can be mended without a restart
		s.cfg.Logger.Warn("nothing is admitted: a commit would not survive a crash", "setting", unsafe)
	}
	return nil
}

// millis is a duration as Postgres reads its settings, which take 0 for no bound.
func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
