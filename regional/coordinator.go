package regional

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// maxAnswerBytes bounds an answer of the coordinator.
const maxAnswerBytes = 32 << 20

// ErrTokenUnknown is of a coordinator that answers, and does not know the region's token: it is of another deployment, or the
// token was renewed. No wait cures it.
var ErrTokenUnknown = errors.New("it does not know this region's token")

// HTTPCoordinator calls any of a coordinator's replicas; after a failure the next call goes to the next one.
type HTTPCoordinator struct {
	urls   []string
	token  atomic.Pointer[string]
	client *http.Client
	next   atomic.Uint32
}

// NewHTTPCoordinator takes the replicas' addresses, as in https://coordinator:7070, and the region's token. Plain http is
// for loopback only, since the token travels with every call.
func NewHTTPCoordinator(addresses []string, token string, config *tls.Config) (*HTTPCoordinator, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no address of a coordinator: give --coordinator https://HOST:7070")
	}
	c := &HTTPCoordinator{}
	c.SetToken(token)
	for _, a := range addresses {
		u, err := url.Parse(strings.TrimRight(a, "/"))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("coordinator %q is not an address such as https://HOST:7070", a)
		}
		if u.Scheme == "http" && !loopback(u.Hostname()) {
			return nil, fmt.Errorf("coordinator %s would get the region's token in the clear: use https beyond this machine", a)
		}
		c.urls = append(c.urls, u.String())
	}
	c.client = &http.Client{Transport: &http.Transport{
		DialContext:         silenceNoticed().DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 3 * time.Second,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     30 * time.Second,
	}}
	return c, nil
}

// silenceAfter is when a connection is given up over which nothing is heard, not even of the other side's kernel. A call may be held
// for seconds: without this a region would wait for a machine that is gone until the call's own end, and then turn to another one.
const silenceAfter = 5 * time.Second

func silenceNoticed() *net.Dialer {
	return &net.Dialer{
		Timeout:         3 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3},
		Control:         UserTimeout(silenceAfter),
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// SetToken changes the region's token: the next call comes with it.
func (c *HTTPCoordinator) SetToken(token string) { c.token.Store(&token) }

// Sync makes one call to one replica.
func (c *HTTPCoordinator) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	var answer allocation.SyncAnswer
	body, err := json.Marshal(call)
	if err != nil {
		return answer, fmt.Errorf("encode the call: %w", err)
	}
	at := c.next.Load()
	address := c.urls[int(at)%len(c.urls)]
	if err := c.post(ctx, address+"/v1/sync", body, &answer); err != nil {
		c.next.CompareAndSwap(at, at+1)
		return answer, fmt.Errorf("%s: %w", address, err)
	}
	return answer, nil
}

// TellRefusals tells one replica what a node refused. After a failure it is told again, wherever the next call goes.
func (c *HTTPCoordinator) TellRefusals(ctx context.Context, report allocation.RefusalReport) error {
	body, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	var nothing struct{}
	if err := c.post(ctx, c.Address()+"/v1/refusals", body, &nothing); err != nil {
		return fmt.Errorf("%s: %w", c.Address(), err)
	}
	return nil
}

func (c *HTTPCoordinator) post(ctx context.Context, to string, body []byte, answer any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+*c.token.Load())
	resp, err := c.client.Do(r)
	if err != nil {
		return unwrapURL(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Title, Detail string }
		_ = json.Unmarshal(data, &problem)
		if resp.StatusCode == http.StatusUnauthorized {
			return fmt.Errorf("status 401: %s: %w", strings.TrimSpace(problem.Title+" "+problem.Detail), ErrTokenUnknown)
		}
		return fmt.Errorf("status %d: %s", resp.StatusCode, strings.TrimSpace(problem.Title+" "+problem.Detail))
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	return nil
}

// unwrapURL leaves out the address that url.Error repeats.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Address is the replica that the next call goes to.
func (c *HTTPCoordinator) Address() string { return c.urls[int(c.next.Load())%len(c.urls)] }
