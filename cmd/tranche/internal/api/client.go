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
	"syscall"
	"time"
)

const (
	// callTimeout bounds one call: a change of a budget may wait for etcd to elect a leader.
	callTimeout = 20 * time.Second
	// maxAnswer bounds an answer.
	maxAnswer = 64 << 20
)

// Client calls one service: the first of its replicas that can be reached.
type Client struct {
	service string // "coordinator" or "node", for messages
	bases   []string
	token   string
	http    *http.Client
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
	c := &Client{service: service, token: token, http: &http.Client{Transport: transport}}
	for base := range strings.SplitSeq(address, ",") {
		c.bases = append(c.bases, strings.TrimRight(base, "/"))
	}
	return c, nil
}

// Address is where the service is: the first address that was given.
func (c *Client) Address() string { return c.bases[0] }

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Call is one request. Query and Header may be nil; Body nil sends none.
type Call struct {
	Method string
	Path   string // escaped
	Query  url.Values
	Header http.Header
	Body   any
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

// Send sends the call and returns the answer as it came, whatever its status.
func (c *Client) Send(ctx context.Context, call Call) (status int, header http.Header, body []byte, err error) {
	for _, base := range c.bases {
		status, header, body, err = c.sendTo(ctx, base, call)
		var dial *net.OpError
		if err == nil || !errors.As(err, &dial) || dial.Op != "dial" {
			return status, header, body, err
		}
		// Nothing was sent: another replica may be asked.
	}
	return status, header, body, err
}

func (c *Client) sendTo(ctx context.Context, base string, call Call) (status int, header http.Header, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
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
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
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
	case errors.As(err, &unknown):
		hint = "name the authority that signed its certificate: --ca FILE or TRANCHE_CA"
	}
	return fmt.Errorf("the %s at %s %w: %w; %s", c.service, base, ErrUnreachable, err, hint)
}
