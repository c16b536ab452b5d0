package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Defaults and bounds of Options.
const (
	DefaultTries      = 5
	DefaultTryTimeout = time.Second
	DefaultPatience   = 4 * time.Second
	MostTries         = 100
)

// Options say whom to ask, and how long. Only Nodes is required.
type Options struct {
	// Nodes are addresses such as https://HOST:7080, all of nodes of one region. One is asked at a time; after it failed,
	// the next one.
	Nodes []string
	// Token is a gateway's token. It is sent in the clear only to this machine.
	Token string
	// HTTP sends the calls; nil: a client with bounds of its own. Redirects are never followed, since the token would be.
	HTTP *http.Client

	// Tries bounds how often one call is sent; 0: 5.
	Tries int
	// TryTimeout bounds one try; 0: 1 s. The node hears of it, and begins no commit that cannot finish in time.
	TryTimeout time.Duration
	// Patience bounds one call with all its tries and waits, and so does the context's deadline; 0: 4 s.
	Patience time.Duration

	// FailOpen lets requests through on which nothing could be decided. Empty: they are not. It is the reason, for the log
	// and those who read it; each request is logged at level Error with it, and counted by Client.FailedOpen. Refusals,
	// wrong calls and settlements never fail open.
	FailOpen string
	// Log hears of each request that fails open, and of settlements that middleware could not send; nil: slog.Default.
	Log *slog.Logger
}

// Client asks one region. It may be used by several goroutines.
type Client struct {
	options Options
	nodes   []string
	http    *http.Client
	log     *slog.Logger
	next    atomic.Uint32 // the node that is asked next
	opened  atomic.Int64
	region  atomic.Pointer[string] // of the first answer

	random func() float64 // 0 to 1
	sleep  func(context.Context, time.Duration) error
}

// New makes a client. It calls nobody yet.
func New(o Options) (*Client, error) {
	switch {
	case len(o.Nodes) == 0:
		return nil, errors.New("client: Options.Nodes is empty; give the address of a node, like https://HOST:7080")
	case o.Tries < 0 || o.Tries > MostTries:
		return nil, fmt.Errorf("client: Options.Tries is %d; give 1 to %d, or 0 for %d", o.Tries, MostTries, DefaultTries)
	case o.TryTimeout < 0 || o.Patience < 0:
		return nil, errors.New("client: Options.TryTimeout and Patience may not be negative")
	}
	orDefault(&o.Tries, DefaultTries)
	orDefault(&o.TryTimeout, DefaultTryTimeout)
	orDefault(&o.Patience, DefaultPatience)
	c := &Client{options: o, log: o.Log, random: mathrand.Float64, sleep: sleep}
	for _, text := range o.Nodes {
		u, err := url.Parse(strings.TrimRight(text, "/"))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
			return nil, fmt.Errorf("client: Options.Nodes: %q is not an address such as https://HOST:7080", text)
		}
		if o.Token != "" && u.Scheme == "http" && !loopback(u.Hostname()) {
			return nil, fmt.Errorf("client: Options.Nodes: %s would get the token in the clear; use https beyond this machine", u)
		}
		c.nodes = append(c.nodes, u.String())
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.http = ownHTTP(o.HTTP)
	if o.FailOpen != "" {
		c.log.Warn("tranche: requests on which nothing can be decided are let through", "because", o.FailOpen)
	}
	return c, nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ownHTTP is a copy that follows no redirect.
func ownHTTP(given *http.Client) *http.Client {
	var own http.Client
	if given != nil {
		own = *given
	} else {
		own.Transport = &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}).DialContext, TLSHandshakeTimeout: 2 * time.Second,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
		}
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Close ends idle connections. The client may be used further.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// FailedOpen is how many requests were let through on which nothing was decided.
func (c *Client) FailedOpen() int64 { return c.opened.Load() }

// NewID makes an admission id of 128 random bits.
func NewID() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails
	return hex.EncodeToString(bits[:])
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
