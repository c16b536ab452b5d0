package ownertwin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// commitPatience bounds how long the answer to a commit is awaited, as in regional/postgres.
const commitPatience = 10 * time.Second

// Endpoint is the address of a database: what nodes connect to. Pointed to another database, all next transactions go
// there, and nobody is told: a pooler, or a name in DNS.
type Endpoint struct{ db *Database }

// NewEndpoint makes an address.
func NewEndpoint(db *Database) *Endpoint { return &Endpoint{db: db} }

// Point makes the address lead to another database.
func (e *Endpoint) Point(db *Database) { e.db = db }

// Database is where the address leads to now.
func (e *Endpoint) Database() *Database { return e.db }

// Owner is one process's client. It serves one life of the process.
type Owner struct {
	endpoint  *Endpoint
	process   *world.Process
	region    string
	home      allocation.Home // as last read by Load
	nextShard int
}

var _ regional.Owner = (*Owner)(nil)

// NewOwner makes a client for a process of a region.
func NewOwner(e *Endpoint, p *world.Process, region string) *Owner {
	return &Owner{endpoint: e, process: p, region: region, home: e.db.home}
}

type began struct {
	x   *transaction
	err error
}

// start is a first round trip: it begins a transaction, takes the switch lock and runs body. The transaction is then open,
// and idle. After an error nothing is left of it.
func (o *Owner) start(ctx context.Context, what string, mode switchMode, body func(x *transaction) error) (*transaction, error) {
	db := o.endpoint.db
	db.meet(o.process)
	reply, err := network.Call(ctx, db.net, o.process, db.server, network.Connection, "pg."+what, func(ctx context.Context) began {
		x := db.begin(o.process, what)
		err := x.switchLock(mode)
		if err == nil && body != nil {
			err = body(x)
		}
		if err == nil && x.ended {
			err = x.why
		}
		if err == nil && ctx.Err() != nil {
			err = errAbandoned
		}
		if err != nil {
			x.end(err)
			return began{err: err}
		}
		x.idle()
		return began{x: x}
	})
	if err == nil {
		err = reply.err
	}
	if err != nil {
		return nil, err
	}
	return reply.x, nil
}

// abandon ends a transaction without writing anything, as soon as the server hears of it.
func (o *Owner) abandon(x *transaction) {
	x.db.net.Post(o.process, x.db.server, "rollback", func() { x.end(errAbandoned) })
}

// fate is what became of a commit, as far as the client can tell.
type fate int

const (
	fateUncommitted fate = iota
	fateCommitted
	fateUnknown
)

// commit is a second round trip: body's statements, and the commit. It goes on when ctx ends, for as long as an answer is
// awaited: settled hears the end, always.
func (o *Owner) commit(ctx context.Context, x *transaction, body func() error, settled func(f fate, err error) error) error {
	p := network.Start(x.db.net, o.process, x.db.server, network.Connection, "pg.commit "+x.what, func(context.Context) verdict {
		err := x.busy()
		if err == nil {
			err = body()
		}
		if err != nil {
			x.end(err)
			return verdict{err: err}
		}
		return x.commit()
	})
	bounded, cancel := o.process.WithTimeout(ctx, commitPatience)
	defer cancel()
	v, err := p.Wait(bounded)
	if err == nil || ctx.Err() == nil {
		f, err := o.outcome(v, err)
		return settled(f, err)
	}
	// The caller leaves; the transaction goes on.
	o.process.Go("commit", func() {
		patient, cancel := o.process.WithTimeout(context.WithoutCancel(ctx), commitPatience)
		defer cancel()
		_ = settled(o.outcome(p.Wait(patient)))
	})
	return fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, err)
}

func (o *Owner) outcome(v verdict, err error) (fate, error) {
	switch {
	case err != nil:
		return fateUnknown, fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, err)
	case v.commit != nil && (v.remark == "" || o.endpoint.db.Breaks.AcceptWarnings):
		o.endpoint.db.truth.Acknowledge(v.commit)
		return fateCommitted, nil
	case v.commit != nil:
		return fateUnknown, fmt.Errorf("%w: it came with a remark: %s", regional.ErrUnknownOutcome, v.remark)
	case errors.Is(v.err, errCrashed):
		return fateUnknown, fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, network.ErrBroken)
	}
	return fateUncommitted, v.err
}

// commitWithout commits a transaction that leaves no mark.
func (o *Owner) commitWithout(ctx context.Context, x *transaction, body func() error) error {
	if body == nil {
		body = func() error { return nil }
	}
	return o.commit(ctx, x, body, func(_ fate, err error) error { return err })
}

// read runs one statement that writes nothing.
func read[T any](ctx context.Context, o *Owner, name string, f func(db *Database, t *tables) (T, error)) (T, error) {
	type reply struct {
		value T
		err   error
	}
	db := o.endpoint.db
	db.meet(o.process)
	r, err := network.Call(ctx, db.net, o.process, db.server, network.Connection, "pg."+name, func(context.Context) (r reply) {
		db.world.Point()
		if r.err = o.belongs(db.tables); r.err == nil {
			r.value, r.err = f(db, db.tables)
		}
		return r
	})
	if err == nil {
		err = r.err
	}
	return r.value, err
}

func (o *Owner) belongs(t *tables) error {
	if t.owner.region != o.region {
		return fmt.Errorf("%w: it belongs to region %s, not %s", regional.ErrNotReady, t.owner.region, o.region)
	}
	return nil
}
