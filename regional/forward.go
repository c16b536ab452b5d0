package regional

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// forwardedHeader names the region that forwarded a request. Who gets it forwards nothing: a request takes one hop.
const forwardedHeader = "Tranche-Forwarded"

// Bounds of forwarding.
const (
	forwardAnswerBytes = 1 << 20
	forwardSpare       = 10 * time.Millisecond // of the deadline, for the way back
)

// Forwarder sends requests to nodes of other regions.
type Forwarder struct {
	urls   map[string]string // by region
	client *http.Client
}

// NewForwarder takes the address of another region's nodes for each region, as in https://node.eu-west:7080. The caller's
// token travels with a request, so plain http is for loopback only.
func NewForwarder(nodes map[string]string, config *tls.Config) (*Forwarder, error) {
	f := &Forwarder{urls: map[string]string{}}
	for region, address := range nodes {
		u, err := url.Parse(strings.TrimRight(address, "/"))
		switch {
		case !allocation.ValidRegion(region):
			return nil, fmt.Errorf("%.70q is not a region's name: write REGION=https://HOST:7080", region)
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return nil, fmt.Errorf("region %s: %q is not an address such as https://HOST:7080", region, address)
		case u.Scheme == "http" && !loopback(u.Hostname()):
			return nil, fmt.Errorf("region %s: %s would get callers' tokens in the clear: use https beyond this machine", region, address)
		}
		f.urls[region] = u.String()
	}
	f.client = &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext, TLSClientConfig: config, TLSHandshakeTimeout: 3 * time.Second,
			MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return f, nil
}

// forwardHome is the region that a refused request is to be forwarded to; empty: it is answered here. Only a spend or a
// check is forwarded: a reservation would have to be settled where it was made, and its caller would ask here.
func (a *api) forwardHome(h http.Header, d *allocation.Decision) string {
	f := a.config.Forward
	if f == nil || d.Reason != allocation.NotHome || d.Home == "" || d.Home == d.Region || f.urls[d.Home] == "" || h.Get(forwardedHeader) != "" {
		return ""
	}
	if d.Op != allocation.Spend && d.Op != allocation.Check {
		return ""
	}
	catalogue := a.Catalogue()
	refused := slices.ContainsFunc(d.Budgets, func(b allocation.BudgetDecision) bool {
		known, ok := catalogue.Budget(b.Budget)
		return b.Reason == allocation.NotHome && (!ok || !known.Budget.Allocation.Forward)
	})
	if refused {
		return ""
	}
	return d.Home
}

// forwardBody is what the other node gets: what this one understood.
type forwardBody struct {
	Labels      allocation.Labels   `json:"labels,omitempty"`
	Costs       map[string]int64    `json:"costs,omitempty"`
	Op          allocation.Op       `json:"op"`
	DeadlineMS  int64               `json:"deadline_ms"`
	AdmissionID string              `json:"admission_id,omitempty"`
	Priority    allocation.Priority `json:"priority,omitempty"`
	Fingerprint string              `json:"key_fingerprint,omitempty"`
}

// forward sends a request to its home, once, with the caller's own token, and passes on what is answered there. If the
// request was never sent the answer is not_home, as it would be without forwarding. If it was, and no answer came, it may
// be charged there: the outcome is unknown, and the same id asked again, here or there, gets the truth.
func (a *api) forward(w http.ResponseWriter, r *http.Request, home string, q *allocation.Request, d *allocation.Decision, deadline time.Time) {
	left := deadline.Sub(a.config.Now()) - forwardSpare
	if left < MinDeadline {
		p := a.present(d)
		p.write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), left+forwardSpare)
	defer cancel()
	resp, body, sent := a.config.Forward.send(ctx, r, home, d.Region, q, left)
	switch {
	case resp != nil && answers(resp.StatusCode, body):
		a.pass(w, resp, body)
	case !sent:
		p := a.present(d)
		p.body.Detail += "; its nodes could not be reached from here"
		p.write(w)
	default:
		unknown := *d
		unknown.Reason, unknown.Budgets, unknown.Blames = allocation.OutcomeUnknown, nil, ""
		unknown.Detail = fmt.Sprintf("it was forwarded to region %s, and no answer came: it may be charged there; ask again with the same id", home)
		unknown.Retry = 1
		if q.Generated {
			unknown.Key.ID = "" // the other node made its own
		}
		p := a.present(&unknown)
		p.write(w)
	}
}

// send makes the one hop. sent says whether the request may have left this node.
func (f *Forwarder) send(ctx context.Context, r *http.Request, home, from string, q *allocation.Request, left time.Duration) (resp *http.Response, body []byte, sent bool) {
	out := forwardBody{Labels: q.Labels, Costs: q.Costs, Op: q.Op, DeadlineMS: max(1, left.Milliseconds()), AdmissionID: q.Key.ID, Priority: q.Priority, Fingerprint: q.Fingerprint}
	if q.Generated || q.Op == allocation.Check {
		out.AdmissionID = "" // whether an id is required is decided there, too
	}
	data, err := json.Marshal(out)
	if err != nil {
		return nil, nil, false
	}
	var connected atomic.Bool // the transport goes on after an early error
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	p, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodPost, f.urls[home]+"/v1/admit", bytes.NewReader(data))
	if err != nil {
		return nil, nil, false
	}
	p.Header.Set("Content-Type", "application/json")
	p.Header.Set(forwardedHeader, from)
	for _, name := range []string{"Authorization", "Traceparent", "Tracestate", "X-Request-Id"} {
		if v := r.Header.Values(name); len(v) > 0 {
			p.Header[name] = v
		}
	}
	resp, err = f.client.Do(p)
	if err != nil {
		return nil, nil, connected.Load()
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, forwardAnswerBytes))
	if err != nil {
		return nil, nil, true
	}
	return resp, body, true
}

// answers says whether a response is a node's own: it says for which reason. What a proxy says in between tells nothing of
// what became of the request.
func answers(status int, body []byte) bool {
	var a struct {
		Reason string `json:"reason"`
	}
	return status >= 200 && json.Unmarshal(body, &a) == nil && a.Reason != ""
}

// pass answers with what was answered there. The answer names its region.
func (a *api) pass(w http.ResponseWriter, resp *http.Response, body []byte) {
	h := w.Header()
	for _, name := range []string{"Content-Type", "Retry-After", "Ratelimit", "Ratelimit-Policy", "Www-Authenticate", ReceiptHeader} {
		if v := resp.Header.Values(name); len(v) > 0 {
			h[name] = v
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(body) // a caller that has gone asks again with its id
}
