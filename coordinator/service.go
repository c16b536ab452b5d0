package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
)

// Defaults and bounds of a Config.
const (
	DefaultReportUnreachableAfter = 10 * time.Second
	DefaultClosingRetention       = 24 * time.Hour

	maxEvidenceAge = 5 * time.Second  // beyond it the coordinator is not ready
	maxClockSkew   = 30 * time.Second // from the median of the regions' clocks, to do background work
	timeForm       = time.RFC3339
)

// Config is what a Service is made from. Store is required.
type Config struct {
	Store    Store
	Log      hclog.Logger          // nil: nothing is logged
	Registry prometheus.Registerer // nil: metrics are kept, and shown nowhere
	Gatherer prometheus.Gatherer   // what /metrics shows; nil: Registry, if it is one
	Runtime  Runtime               // nil: Real
	Random   io.Reader             // of ids, stamps and secrets; nil: crypto/rand

	// ReportUnreachableAfter is how long a region may be silent before what it holds is reported as stranded; a third of
	// it bounds how long a sync call is held. 0: 10 s.
	ReportUnreachableAfter time.Duration
	// ClosingRetention is how long the record of a closed term stays in etcd. 0: 24 h.
	ClosingRetention time.Duration
	// ClosingArchive takes the records of closed terms that are older than that, before etcd forgets them; nil: they are gone.
	ClosingArchive ClosingArchive
	// Memory outlives the process; nil: a start is cold, and all is frozen until every region has stated, unless another
	// coordinator vouches.
	Memory Memory
	// TrustEtcd takes etcd as it is at a cold start, whatever was lost. It is audited.
	TrustEtcd bool
	// GoOn has an empty etcd go on as a deployment that was there before; nil: it becomes a new one.
	GoOn *GoOn
	// OnFirstAdminToken hears the first admin token, once, in the process that made the deployment.
	OnFirstAdminToken func(token string)
	Version           string // of the program, for reports
	// Webhook is told every event of the feed; nil: nobody is.
	Webhook Sender
	// Zones is the time-zone data by which calendar periods are computed, once, when a term is opened. nil: the process's.
	Zones allocation.Zones
}

// Service is one coordinator replica. See the package's documentation.
type Service struct {
	config  Config
	log     hclog.Logger
	runtime Runtime
	random  *randomness
	state   *state
	mirror  *Mirror
	commits *Committer
	metrics *metrics

	turns     turns
	tracked   tracker   // of the background work only
	noticed   time.Time // the last look for events, of the background work only
	sweeps    []int64   // revisions of the last sweeps, oldest first, of the background work only
	nudge     Signal    // the background work has something to do
	asked     Signal    // some region lacks permits of a budget of policy demand
	trustNews Signal    // somebody asks or answers whether etcd went back, or the own mark is gone

	mu         sync.Mutex
	leading    bool
	trustLife  int          // see trust.go
	freshSince atomic.Int64 // since when this replica has heard all calls within a moment, Unix nanoseconds; 0: it does not
	trust      clockTrust
	clockWord  string    // why the clock is not trusted; empty: it is
	audited    time.Time // of the last audit line
	deployment string    // its id, once known; under the lock of the state
}

// New makes a replica. Nothing happens before Run.
func New(c Config) *Service {
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if c.Runtime == nil {
		c.Runtime = Real{}
	}
	if c.ReportUnreachableAfter <= 0 {
		c.ReportUnreachableAfter = DefaultReportUnreachableAfter
	}
	if c.ClosingRetention <= 0 {
		c.ClosingRetention = DefaultClosingRetention
	}
	s := &Service{
		config: c, log: c.Log, runtime: c.Runtime, random: newRandomness(c.Random),
		state: newState(c.Runtime.Now), nudge: c.Runtime.NewSignal(), asked: c.Runtime.NewSignal(), trustNews: c.Runtime.NewSignal(),
	}
	s.mirror = NewMirror(c.Store, s.applyEvents)
	s.mirror.Runtime, s.mirror.Log = c.Runtime, c.Log.Named("mirror")
	s.commits = NewCommitter(c.Store, c.Log.Named("committer"), WithRuntime(c.Runtime), WithRandom(s.random), WithMemory(c.Memory, s.around))
	s.commits.onLost = s.lostTrust
	s.metrics = newMetrics(s, c.Registry)
	return s
}

// applyEvents enters what the mirror delivers, and wakes the background work if there is some.
func (s *Service) applyEvents(events []Event, revision int64, reset bool) {
	s.state.apply(events, revision, reset)
	if len(events) > 0 {
		s.nudgeBackground()
	}
	if slices.ContainsFunc(events, func(e Event) bool { return kindOf(e.Key) == "vouches" }) {
		s.trustNews.Notify()
	}
}

func (s *Service) nudgeBackground() { s.nudge.Notify() }

// Run works until ctx ends or a part fails for good, and returns when everything that it started has ended.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.turns.stop()
	all := newParts(s.runtime)
	start := func(name string, run func(context.Context) error) {
		all.start(name, func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	start("mirror", s.mirror.Run)
	start("committer", s.commits.Run)
	start("work", func(ctx context.Context) error {
		if err := s.mirror.WaitFor(ctx, 0); err != nil {
			return err
		}
		return s.keepTrust(ctx, func() {
			start("persist", s.persistOften)
			start("observe", s.observeOften)
			start("demand", s.allotOften)
			if s.config.Webhook != nil {
				start("webhook", func(ctx context.Context) error { return s.config.Store.Lead(ctx, "webhook", s.sendEvents) })
			}
			start("lead", func(ctx context.Context) error { return s.config.Store.Lead(ctx, "background", s.lead) })
		})
	})
	all.wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

// ready says why this replica cannot serve, or nil.
func (s *Service) ready() error {
	if !s.mirror.Ready() {
		return errStarting
	}
	s.state.mu.Lock()
	made := s.state.deployment != nil
	s.state.mu.Unlock()
	if !made {
		return errStarting
	}
	if !s.isTrusted() {
		return errNotSure
	}
	if age := s.evidenceAge(); age > maxEvidenceAge {
		return problem(503, CodeUnavailable, fmt.Sprintf("etcd was last read %s ago", age.Round(time.Second)), "look at the etcd members: `tranche status`")
	}
	return nil
}

// evidenceAge is the time since the last linearizable read that the picture is as new as.
func (s *Service) evidenceAge() time.Duration {
	_, at := s.mirror.Evidence()
	return max(0, s.now().Sub(at))
}

func (s *Service) now() time.Time { return s.runtime.Now() }

func (s *Service) instant() allocation.Instant { return allocation.At(s.now()) }
