package drill

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tranche/cmd/tranche/internal/api"
)

// Bounds of a drill.
const (
	MinLimit    = 20
	MaxLimit    = 5000 // of the budget that is exhausted
	MaxHeld     = 500
	DefaultHeld = 40

	burstOver     = 8               // the burst is to take about so many seconds, that regions hear of each other meanwhile
	burstAtMost   = 2 * time.Minute // then it has failed to exhaust its budget
	essentialEach = 200 * time.Millisecond
	essentialMost = 1000
	periodLeft    = 3 * time.Minute // of the running period, or the drill would end in another one
	cleanUpWithin = 30 * time.Second
)

// Options say what to drill, and where.
type Options struct {
	Coordinator *api.Client // as an admin
	Nodes       map[string][]string
	CA          string

	Tenant     string
	Capability string // expendable: its budget is exhausted
	Essential  string // the capability of the traffic that must not suffer

	Held     int           // clients that are released together; 0: DefaultHeld
	Rate     float64       // requests a second of the burst; 0: so that it takes about 8 s
	Patience time.Duration // for a node to enforce a change; 0: 15 s
	By       string
	Tell     func(format string, args ...any) // hears of each step; nil: nobody does
}

// drill is one run.
type drill struct {
	Options
	id     string
	record *Record
	target target
	nodes  []*node
	undo   []undo

	suspect, essential, fresh *key

	stopEssential context.CancelFunc
	essentials    sync.WaitGroup

	mu    sync.Mutex
	heard []event // of the expendable capability, in order
	calm  tally   // the essential traffic

	undecided atomic.Int64 // answers 503
}

// step is one thing that the drill does, and promises.
type step struct {
	name, promise string
	run           func(ctx context.Context) (detail string, broken []string, err error)
}

// Run runs a drill. The record is never nil; its Broken says whether a promise was. An error is why it could not be brought
// to its end.
func Run(ctx context.Context, o Options) (*Record, error) {
	d := &drill{Options: o, id: newID()}
	if d.Held == 0 {
		d.Held = DefaultHeld
	}
	if d.Patience == 0 {
		d.Patience = 15 * time.Second
	}
	if d.Tell == nil {
		d.Tell = func(string, ...any) {}
	}
	d.record = &Record{
		Format: 1, Drill: "leaked-key", ID: d.id, By: o.By, Started: time.Now().UTC(), Tenant: o.Tenant, Capability: o.Capability,
		Essential: EssentialRecord{Capability: o.Essential}, Refused: map[string]map[string]int{}, Routes: map[string]int{},
	}
	err := d.check(ctx)
	if err == nil {
		err = d.steps(ctx)
	}
	if d.stopEssential != nil {
		d.stopEssential()
		d.essentials.Wait()
	}
	d.cleanUp(ctx)
	d.summary()
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("the drill was ended: %w", cause)
	}
	if err != nil {
		d.record.Failure = err.Error()
	}
	return d.record, err
}

// steps runs them one after the other. A broken promise does not end the drill, an error does.
func (d *drill) steps(ctx context.Context) error {
	for _, s := range []step{
		{"keys", "every node takes a key that was issued", d.issue},
		{"burst", "preferred, then degraded or deferred, then refused", d.burst},
		{"protected", "the burst left the protected permits to essential traffic", d.protected},
		{"ceiling", "every node enforces a changed limit", d.ceiling},
		{"revoked", "no node serves the revoked key, whatever is left of its budgets", d.revoked},
		{"surge", "clients that are released together are admitted no more than what is left", d.surge},
		{"essential", "essential traffic is admitted all the while", d.endEssential},
		{"books", "the regions spent what the clients were told, and not one unit more", d.books},
	} {
		began := time.Now()
		detail, broken, err := s.run(ctx)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		done := StepRecord{Step: s.name, Promise: s.promise, Kept: err == nil && len(broken) == 0, TookMS: time.Since(began).Milliseconds(), Detail: detail, Broken: broken}
		if err != nil {
			done.Broken = append(done.Broken, "it could not be brought to its end: "+err.Error())
		}
		d.record.Steps = append(d.record.Steps, done)
		d.Tell("%s", done.line())
		if err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
	}
	return nil
}
