// Package api calls the HTTP APIs of a coordinator and of a node for the commands, and turns what goes wrong into errors
// that say what to do next.
package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// callTimeout bounds one call: a change of a budget may wait for etcd to elect a leader.
	callTimeout = 20 * time.Second
	// replicaTimeout bounds a read from one replica while there is another: a status waits 3 s for an etcd member.
	replicaTimeout = 5 * time.Second
	// maxAnswer bounds an answer.
	maxAnswer = 64 << 20
)

// Client calls one service: the first of its replicas that answers. It may be used by several goroutines.
type Client struct {
	service string // "coordinator" or "node", for messages
	bases   []string
	token   string
	http    *http.Client

	mu     sync.Mutex
	at     int          // the address that answered last
	proven map[int]bool // the addresses at which a coordinator answered

	replicaTimeout time.Duration
}

// New makes a client. address is a URL, or several with commas between them; ca names a file of certificates to trust,
// empty for the system's.
func New(service, address, token, ca string) (*Client, error) {
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     30 * time.Second,
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read the certificates to trust: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM; give the file of the authority that signed the %s's", ca, service)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	c := &Client{service: service, token: token, http: &http.Client{Transport: transport}, proven: map[int]bool{}, replicaTimeout: replicaTimeout}
	for base := range strings.SplitSeq(address, ",") {
		c.bases = append(c.bases, strings.TrimRight(base, "/"))
	}
	return c, nil
}

// Address is where the service is: the address that answered last, at first the first that was given.
func (c *Client) Address() string { return c.bases[c.last()] }

func (c *Client) last() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call is one request. Query and Header may be nil; Body nil sends none.
type Call struct {
	Method string
	Path   string // escaped
	Query  url.Values
	Header http.Header
	Body   any
	// Reads says of a POST that it changes nothing. A GET and a dry run never do.
	Reads bool
}

// reads says whether the call may be sent twice.
func (c Call) reads() bool {
	return c.Reads || c.Method == http.MethodGet || c.Query.Get("dry_run") == "true"
}

// Do sends the call and decodes a 2xx answer into out, unless it is nil. Another answer is an *Error.
func (c *Client) Do(ctx context.Context, call Call, out any) (http.Header, error) {
	status, header, body, err := c.Send(ctx, call)
	if err != nil {
		return nil, err
	}
	if status/100 != 2 {
		return header, c.problem(status, body)
	}
	if out == nil {
		return header, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return header, fmt.Errorf("read the answer of the %s at %s: %w; are both of the same version?", c.service, c.Address(), err)
	}
	return header, nil
}

// Send sends the call and returns the answer as it came, whatever its status. A read goes on to the next replica when one
// does not answer; a change only if it is certain that nothing was sent. Before the first call a coordinator is asked
// whether it is one.
func (c *Client) Send(ctx context.Context, call Call) (status int, header http.Header, body []byte, err error) {
	var failures []error
	first := c.last()
	for n := range c.bases {
		i := (first + n) % len(c.bases)
		one, cancel := c.patience(ctx, n < len(c.bases)-1)
		err := c.prove(one, i)
		sent := err == nil
		if sent {
			if !call.reads() {
				cancel()
				one, cancel = context.WithTimeout(ctx, callTimeout)
			}
			status, header, body, err = c.sendTo(one, c.bases[i], call, c.token)
		}
		cancel()
		if err == nil {
			c.mu.Lock()
			c.at = i
			c.mu.Unlock()
			return status, header, body, nil
		}
		if _, wrong := errors.AsType[*mistaken](err); wrong {
			return 0, nil, nil, err
		}
		if sent && !call.reads() && !dialed(err) {
			return 0, nil, nil, c.unknown(err)
		}
		failures = append(failures, err)
		if ctx.Err() != nil {
			break
		}
	}
	return 0, nil, nil, errors.Join(failures...)
}

// patience bounds a call to one replica, more closely while there is another to ask: a process that is stopped accepts
// connections and never answers.
func (c *Client) patience(ctx context.Context, another bool) (context.Context, context.CancelFunc) {
	if another {
		return context.WithTimeout(ctx, c.replicaTimeout)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// prove asks once of each address whether a coordinator is there.
func (c *Client) prove(ctx context.Context, i int) error {
	c.mu.Lock()
	proven := c.service != coordinatorService || c.proven[i]
	c.mu.Unlock()
	if proven {
		return nil
	}
	if err := c.probe(ctx, c.bases[i]); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proven[i] = true
	return nil
}

// dialed says whether a call ended before it had a connection: nothing was sent.
func dialed(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// ErrUnknown says that a change may have been made: the answer to it was lost.
var ErrUnknown = errors.New("whether it was done is not known")

func (c *Client) unknown(err error) error {
	if c.service != coordinatorService {
		return fmt.Errorf("%w; %w", err, ErrUnknown)
	}
	return fmt.Errorf("%w; %w: look with `tranche audit` before you try it again", err, ErrUnknown)
}

func (c *Client) sendTo(ctx context.Context, base string, call Call, token string) (status int, header http.Header, body []byte, err error) {
	address := base + call.Path
	if len(call.Query) > 0 {
		address += "?" + call.Query.Encode()
	}
	var payload io.Reader
	if call.Body != nil {
		text, err := json.Marshal(call.Body)
		if err != nil {
			return 0, nil, nil, fmt.Errorf("encode the call: %w", err)
		}
		payload = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, call.Method, address, payload)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("call the %s: %w", c.service, err)
	}
	for name, values := range call.Header {
		r.Header[name] = values
	}
	if call.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return 0, nil, nil, c.unreachable(base, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("read the answer of the %s at %s: %w", c.service, base, err)
	}
	return resp.StatusCode, resp.Header, body, nil
}

// ErrUnreachable says that the service did not answer.
var ErrUnreachable = errors.New("is not reachable")

func (c *Client) unreachable(base string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	hint := fmt.Sprintf("look at its log, and at the address (--%s, TRANCHE_%s)", c.service, strings.ToUpper(c.service))
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = fmt.Sprintf("is it running? start it with `tranche %s`, or say where it is: --%s URL or TRANCHE_%s", c.service, c.service, strings.ToUpper(c.service))
	case errors.Is(err, context.DeadlineExceeded) && !dialed(err):
		hint = "it accepts connections and does not answer: is its process stopped, or overloaded? " + hint
	case errors.As(err, &unknown):
		hint = "name the authority that signed its certificate: --ca FILE or TRANCHE_CA"
	}
	return fmt.Errorf("the %s at %s %w: %w; %s", c.service, base, ErrUnreachable, err, hint)
}
