package postgres

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/regional"
)

// Bounds of a connection. A peer that went silent is given up after userTimeout, whatever is on its way.
const (
	connectTimeout = 3 * time.Second
	userTimeout    = 10 * time.Second
	lifetime       = 10 * time.Minute
)

var errNoCancel = errors.New("this package sends no cancel requests")

// link watches one connection: it keeps pgx from sending cancel requests over it, and notes what the server remarks.
type link struct {
	dialer net.Dialer
	up     atomic.Bool

	mu     sync.Mutex
	notice string
}

const linkKey = "tranche.link"

// dial is used for the connection itself, and by pgx for cancel requests, which all come after it is up: those are refused.
func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if l.up.Load() {
		return nil, errNoCancel
	}
	return l.dialer.DialContext(ctx, network, address)
}

func (l *link) noticed(_ *pgconn.PgConn, n *pgconn.Notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notice = n.Severity + ": " + n.Message
}

// listen forgets earlier remarks.
func (l *link) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notice = ""
}

func (l *link) heard() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.notice
}

// watched makes the next connection of a configuration one that a link watches.
func watched(_ context.Context, c *pgx.ConnConfig) error {
	l := &link{dialer: net.Dialer{
		Timeout:         connectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
		Control:         regional.UserTimeout(userTimeout),
	}}
	c.DialFunc = l.dial
	c.OnNotice = l.noticed
	c.AfterConnect = func(_ context.Context, p *pgconn.PgConn) error {
		l.up.Store(true)
		p.CustomData()[linkKey] = l
		return nil
	}
	return nil
}

func linkOf(c *pgxpool.Conn) *link {
	return c.Conn().PgConn().CustomData()[linkKey].(*link) // every connection of our pool was made by watched
}

// poolConfig reads the URL and sets the bounds.
func poolConfig(url string, most int) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err // pgx leaves the password out
	}
	c.MaxConns = int32(most)
	c.MaxConnLifetime = lifetime
	c.MaxConnLifetimeJitter = lifetime / 5
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = connectTimeout
	}
	if c.ConnConfig.RuntimeParams["application_name"] == "" {
		c.ConnConfig.RuntimeParams["application_name"] = "tranche"
	}
	c.BeforeConnect = watched
	return c, nil
}
