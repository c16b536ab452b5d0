package regional

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"tranche/allocation"
)

// Bounds of the HTTP API.
const (
	MaxBodyBytes      = 1 << 20
	DefaultConcurrent = 1024 // requests that are worked on at once; the next is told so at once
	DefaultDeadline   = time.Second
	MinDeadline       = time.Millisecond
	MaxDeadline       = 30 * time.Second
	DefaultPage       = 100
	MaxPage           = 1000 // reservations in one answer
	MaxAccountPage    = 100  // budgets of an account in one answer: each has a row for each period that was used
)

// Backend is what the API needs of a node.
type Backend interface {
	// Decide answers each request, in their order, in at most a few milliseconds past the deadline. Whatever happens is
	// an answer: Overloaded, DatabaseUnavailable and OutcomeUnknown too. A decision has its request's Op and Key, and the
	// region; At is 0 if no database said the time. No commit is begun that cannot finish before the deadline, and the
	// end of ctx takes nothing back. It does not keep the list of requests, which is used again.
	Decide(ctx context.Context, requests []allocation.Request, deadline time.Time) []allocation.Decision

	// Find tells where an admission stands now, as a replay would: Replayed is true, and Op is the admission's own.
	// False: the id is not known in this region.
	Find(ctx context.Context, key allocation.IDKey) (allocation.Decision, bool, error)

	// Reservations lists open reservations by key, after the given one.
	Reservations(ctx context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error)

	// Charged sums up what a caller or a tenant was charged.
	Charged(ctx context.Context, q ChargedQuery) (Charged, error)

	// Export is one page of the owner's whole account.
	Export(ctx context.Context, after string, limit int) (Account, error)

	// Status answers from memory, at once.
	Status() NodeStatus

	// Catalogue is the budgets as the node knows them now; never nil.
	Catalogue() *allocation.Catalogue
}

// HTTPConfig is how the API is served.
type HTTPConfig struct {
	// Tokens are who may call. None: everybody may, as LoopbackCredential; then the API must listen on loopback only.
	Tokens []Token
	// Live are tokens that change while the API is served; nil: Tokens.
	Live *LiveTokens
	// Metrics counts what is answered, and its registry is served; required.
	Metrics *Metrics
	// Logger hears of each request, and of what the database said to a failed read, at Debug only; nil: nobody does.
	Logger hclog.Logger
	// MaxConcurrent bounds the requests that are worked on at once. 0: DefaultConcurrent.
	MaxConcurrent int
	// Forward sends a spend that is at home elsewhere there, where its budget allows it; nil: nothing is forwarded.
	Forward *Forwarder
	// Shadow lets everything through: no call for an admission is refused, whatever is wrong. What would have been refused
	// is told, counted and watched.
	Shadow bool
	// Receipts signs refusals; nil: they have no receipt.
	Receipts *Receipts
	// Watch gathers what shadow sees, for its report; nil: this API has its own.
	Watch *Watch
	// Now is the node's clock, for deadlines and for answers that no database dated; nil: time.Now.
	Now func() time.Time
}

// api serves the routes.
type api struct {
	Backend
	config  HTTPConfig
	routes  map[string]*route
	live    *LiveTokens
	slots   chan struct{}
	kept    chan struct{} // more slots, for what is essential or ends an admission
	metrics http.Handler
	newID   func() string
	newName func() string       // of one answer
	random  func(n int64) int64 // 0 to n-1
	watch   *Watch
	moments moments

	doubtful chan struct{} // places for calls with keys that this node does not know

	outcomes outcomes
}

func (a *api) tokens() tokens { return a.live.now() }

// route is one path of the API.
type route struct {
	path    string // also its name in metrics; the decisions' ends with a slash
	methods []string
	serve   func(w http.ResponseWriter, r *http.Request, caller string)
	open    bool          // answered without a token and beyond the concurrency bound
	gateway bool          // what is answered may go to the gateway's caller
	quick   bool          // answered beyond the concurrency bound: an operator's look at a node that is overloaded
	op      allocation.Op // of a route whose calls a node in shadow never refuses
	keys    bool          // callers' own keys may call it
	counts  [6]counter
}

// NewHandler serves the API of a node. Everything it answers, evidence included, is for the holder of a gateway's token;
// what may be forwarded to a caller is the gateway's to choose. It registers the node's gauges with the metrics.
func NewHandler(config HTTPConfig, b Backend) http.Handler { return newAPI(config, b) }

func newAPI(config HTTPConfig, b Backend) *api {
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	if config.MaxConcurrent <= 0 {
		config.MaxConcurrent = DefaultConcurrent
	}
	if config.Watch == nil {
		config.Watch = NewWatch(config.Now())
	}
	if config.Live == nil {
		config.Live = NewLiveTokens(config.Tokens)
	}
	config.Metrics.watch(b)
	a := &api{
		Backend: b, config: config, routes: map[string]*route{}, live: config.Live, doubtful: make(chan struct{}, maxDoubtful),
		slots: make(chan struct{}, config.MaxConcurrent), kept: make(chan struct{}, max(1, config.MaxConcurrent/keptPart)), metrics: config.Metrics.handler(), newID: newAdmissionID, newName: newDecisionName, random: randomBelow,
		watch: config.Watch,
	}
	both := []string{http.MethodGet, http.MethodHead, http.MethodPost}
	post, get := []string{http.MethodPost}, []string{http.MethodGet, http.MethodHead}
	for _, r := range []*route{
		{path: "/v1/admit", methods: post, serve: a.admit, op: allocation.Spend, keys: true},
		{path: "/v1/admit/batch", methods: post, serve: a.admitBatch, op: allocation.Spend, keys: true},
		{path: "/v1/settle", methods: post, serve: a.speakOf(allocation.Settle), op: allocation.Settle, keys: true},
		{path: "/v1/release", methods: post, serve: a.speakOf(allocation.Release), op: allocation.Release, keys: true},
		{path: "/v1/extend", methods: post, serve: a.speakOf(allocation.Extend), op: allocation.Extend, keys: true},
		{path: "/v1/match", methods: post, serve: a.match, keys: true},
		{path: "/v1/authorize", methods: get, serve: a.authorize, gateway: true, keys: true},
		{path: decisionsPath, methods: get, serve: a.findDecision, keys: true},
		{path: outcomePath, methods: post, serve: a.outcome},
		{path: refusalsPath, methods: get, serve: a.refusals, quick: true},
		{path: refusedPath, methods: get, serve: a.refused, quick: true},
		{path: keepPath, methods: both, serve: a.keepTenant, quick: true},
		{path: "/v1/reservations", methods: get, serve: a.reservations},
		{path: "/v1/account", methods: get, serve: a.account},
		{path: chargedPath, methods: get, serve: a.charged},
		{path: blocksPath, methods: both, serve: a.blocks, quick: true},
		{path: liftPath, methods: post, serve: a.lift, quick: true},
		{path: "/v1/shadow", methods: get, serve: a.shadowReport, quick: true},
		{path: "/v1/status", methods: get, serve: a.status, quick: true},
		{path: "/healthz", methods: get, serve: a.healthz, open: true},
		{path: "/readyz", methods: get, serve: a.readyz, open: true},
		{path: "/metrics", methods: get, serve: a.serveMetrics, quick: true},
		{path: openAPIPath, methods: get, serve: a.serveOpenAPI, open: true},
	} {
		r.counts = config.Metrics.route(r.path)
		a.routes[r.path] = r
	}
	return a
}

const decisionsPath = "/v1/decisions/"

// newAdmissionID makes an id for a caller that sent none: a v7 UUID, so that ids made together lie together in an index.
func newAdmissionID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic("the system has no randomness: " + err.Error())
	}
	return id.String()
}

// ServeHTTP finds the route, and lets through who may call it. The order matters: who has no token neither takes a slot
// nor has a body read.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := &statusWriter{ResponseWriter: w, api: a}
	header := w.Header()
	header["Cache-Control"], header["X-Content-Type-Options"] = noStore, noSniff
	to := a.routes[r.URL.Path]
	if to == nil && strings.HasPrefix(r.URL.Path, decisionsPath) {
		if to = a.routes[decisionsPath]; r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, outcomeTail) {
			to = a.routes[outcomePath] // an id may end like that, too: a GET is of the id
		}
	}
	if to == nil {
		writeFault(seen, fault{kind: notFound, detail: "there is no such path; see /v1/admit, /v1/status and the documentation"})
		return
	}
	if a.config.Shadow && to.op != "" && r.Method == http.MethodPost {
		seen.shadow, seen.route = a, to
		if to.path == batchPath {
			seen.sent = remember(r)
		}
	}
	a.serve(seen, r, to)
	a.watch.gatherSome()
	to.counts[seen.class()].Inc()
	if a.config.Logger.IsDebug() {
		a.config.Logger.Debug("answered a request", "route", to.path, "method", r.Method, "status", seen.status)
	}
}

func (a *api) serve(w http.ResponseWriter, r *http.Request, to *route) {
	if !slices.Contains(to.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(to.methods, ", "))
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		writeFault(w, fault{kind: wrongMethod, detail: to.path + " is for " + strings.Join(to.methods, " and ")})
		return
	}
	if to.open {
		to.serve(w, r, "")
		return
	}
	caller, key, refused := a.callerOf(r, to)
	if refused == nil {
		var leave func()
		if leave, refused = a.doubt(key); refused == nil {
			defer leave()
			if key != (allocation.Presented{}) {
				r = withKey(r, key)
			}
		}
	}
	if refused != nil && refused.reason != "" {
		refused.noted = to.refuses("")
	}
	switch {
	case refused != nil && to.gateway:
		a.tellGateway(w, r, a.gatewayFault(*refused))
		return
	case refused != nil:
		if refused.reason != allocation.ScopeDenied {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		writeFault(w, *refused)
		return
	}
	if to.quick {
		to.serve(w, r, caller)
		return
	}
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
		to.serve(w, r, caller)
	default:
		full := reasonFault(allocation.Overloaded, "the node already works on as many requests as it may")
		full.noted = to.refuses(caller)
		if a.serveReserved(w, r, to, caller, key, &full) {
			return
		}
		if to.gateway {
			a.tellGateway(w, r, a.gatewayFault(full))
			return
		}
		writeFault(w, full)
	}
}

// callerOf is the credential's name of a call, and the key that it came with, if it is a caller's own.
func (a *api) callerOf(r *http.Request, to *route) (string, allocation.Presented, *fault) {
	given := r.Header["Authorization"]
	if to.gateway && len(r.Header[tokenHeader]) > 0 {
		// It is the caller's, and the gateway's is beside it. A key of ours counts all the same, or one that was revoked would
		// pass under the gateway's name.
		name, refused := a.gatewayCaller(r)
		if _, found := keyIn(given); !found || refused != nil {
			return name, allocation.Presented{}, refused
		}
	}
	if key, found, refused := a.presented(given, to.keys); found {
		return key.Credential(), key, refused
	}
	if to.gateway {
		name, refused := a.gatewayCaller(r)
		return name, allocation.Presented{}, refused
	}
	name, refused := a.tokens().caller(r, to.path == "/metrics")
	return name, allocation.Presented{}, refused
}

// statusWriter remembers the status for the metrics.
type statusWriter struct {
	http.ResponseWriter
	status int
	api    *api
	kept   *fault // it has a slot that is kept for essential requests: what others are told

	// Of a call that a node in shadow never refuses.
	shadow *api
	route  *route
	sent   io.Reader // the body of a batch
}

// WriteHeader sends the status, once.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// class is 4 for 404 and so on; an answer without WriteHeader is 200.
func (w *statusWriter) class() int {
	if w.status < 100 || w.status > 599 {
		return 2
	}
	return w.status / 100
}

// Timeouts of a server of the API. A caller that sends or reads slowly holds one connection, and no longer than this.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = readTimeout + MaxDeadline + 10*time.Second // counted from the end of the request's header
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

// NewServer is a server for the handler with bounds on what a slow caller can hold. The caller sets TLSConfig and ErrorLog.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
}
