package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"tranche/allocation"
)

const (
	maxAnswer = 32 << 20 // bytes of an answer: a batch of 1,000
	baseWait  = 50 * time.Millisecond
	mostWait  = 2 * time.Second // between two tries, unless Retry-After is longer
	sparing   = 20 * time.Millisecond
)

// call is one request to a node, to be sent as often as needed.
type call struct {
	method string
	path   string
	id     string
	body   map[string]any // nil: none
	timed  bool           // the body takes deadline_ms
}

// answer is what came back.
type answer struct {
	node   string
	status int
	header http.Header
	body   []byte
}

// try sends a call until read is content with an answer. read returns final true if no further try is wanted; else the
// wait that the answer asks for, and whether the request may have been charged.
func (c *Client) try(ctx context.Context, k call, ref Ref, read func(answer) verdict) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Patience)
	defer cancel()
	last := &UndecidedError{Ref: ref, Outcome: "none"}
	for n := range c.options.Tries {
		a, err := c.once(ctx, k)
		v := verdict{unknown: err != nil && !dialFailed(err), err: err}
		if err == nil {
			v = read(a)
		}
		if v.final {
			return v.err
		}
		last.Tries, last.Reason, last.Err = n+1, v.reason(), v.err
		if v.unknown {
			last.Outcome = "unknown" // and stays so, until some try gets a decision: the first may still be committed
		}
		last.Wait = c.backoff(n, v.wait)
		if n+1 == c.options.Tries || !fits(ctx, last.Wait) {
			break
		}
		c.next.Add(1)
		if c.sleep(ctx, last.Wait) != nil {
			break
		}
	}
	return last
}

// verdict is what one try came to.
type verdict struct {
	final    bool
	wait     time.Duration
	unknown  bool
	decision Decision
	err      error
}

func (v verdict) reason() allocation.Reason { return v.decision.Reason }

// backoff is the wait after try n: it doubles, with up to half of it left to chance, so that clients that failed together
// do not come back together. What the node asks for is never undercut.
func (c *Client) backoff(n int, asked time.Duration) time.Duration {
	wait := min(baseWait<<min(n, 10), mostWait)
	wait = wait/2 + time.Duration(c.random()*float64(wait/2))
	if asked > wait {
		wait = asked + time.Duration(c.random()*float64(asked)/10)
	}
	return wait
}

// fits says whether there is time for the wait and for something after it.
func fits(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() == nil && (!ok || time.Until(deadline) > wait+sparing)
}

// once sends the call once, to the node whose turn it is.
func (c *Client) once(ctx context.Context, k call) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.TryTimeout)
	defer cancel()
	a := answer{node: c.nodes[int(c.next.Load())%len(c.nodes)]}
	var payload io.Reader
	if k.body != nil {
		if k.timed {
			k.body["deadline_ms"] = deadlineMillis(ctx)
		}
		text, err := json.Marshal(k.body)
		if err != nil {
			return a, fmt.Errorf("encode the call: %w", err)
		}
		payload = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, k.method, a.node+k.path, payload)
	if err != nil {
		return a, fmt.Errorf("call %s: %w", a.node, err)
	}
	if k.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if k.id != "" {
		r.Header.Set("Admission-Id", quoted(k.id))
	}
	if c.options.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.options.Token)
	}
	for name, value := range correlation(ctx) {
		r.Header[name] = value
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return a, fmt.Errorf("call %s: %w", a.node, unwrapURL(err))
	}
	defer resp.Body.Close()
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer)); err != nil {
		return a, fmt.Errorf("read the answer of %s: %w", a.node, err)
	}
	a.status, a.header = resp.StatusCode, resp.Header
	return a, nil
}

// deadlineMillis is what is left of a try, less the way back.
func deadlineMillis(ctx context.Context) int64 {
	deadline, _ := ctx.Deadline()
	return min(max((time.Until(deadline)-sparing).Milliseconds(), 1), 30000)
}

// quoted writes an id as the string of a structured field, so that one with any printable character travels whole.
func quoted(id string) string {
	out := make([]byte, 0, len(id)+2)
	out = append(out, '"')
	for i := range len(id) {
		if id[i] == '"' || id[i] == '\\' {
			out = append(out, '\\')
		}
		out = append(out, id[i])
	}
	return string(append(out, '"'))
}

// dialFailed says that a try ended before it had a connection: nothing was sent.
func dialFailed(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// unwrapURL leaves out the address, which is told once.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

type correlationKey struct{}

// WithCorrelation makes the calls of a context carry the traceparent or X-Request-Id of the request that they are for, so
// that the evidence of a decision names it.
func WithCorrelation(ctx context.Context, from http.Header) context.Context {
	kept := http.Header{}
	for _, name := range []string{"Traceparent", "X-Request-Id"} {
		if v := from.Values(name); len(v) == 1 {
			kept[name] = v
		}
	}
	if len(kept) == 0 {
		return ctx
	}
	return context.WithValue(ctx, correlationKey{}, kept)
}

func correlation(ctx context.Context) http.Header {
	h, _ := ctx.Value(correlationKey{}).(http.Header)
	return h
}
