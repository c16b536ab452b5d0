package mutants

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/ownertwin"
	"tranche/simulations/internal/world"
)

// The mutants of the drill.
var (
	breakMarkOutside = ownertwin.Breaks{MarkOutside: true}
	breakNoMark      = ownertwin.Breaks{NoMark: true}
)

// postgresBack lets processes spend from one share, while the database is restored under them. A writer whose own last
// commit is not there any more must not commit once more.
var postgresBack = drill{name: "a database restored again and again", play: func(d *drillWorld, mutant any) {
	x := &postgresDrill{drillWorld: d, truth: ownertwin.NewTruth(), of: map[string][]*ownertwin.Commit{}, term: allocation.At(d.w.Now())}
	x.db = ownertwin.New(d.net, d.w, x.truth, "postgres", "here")
	if breaks, is := mutant.(ownertwin.Breaks); is {
		x.db.Breaks = breaks
	}
	x.truth.OnCommit = x.committed
	d.net.Default.Lose, d.net.Default.Late, d.net.Default.LateMost = 0.005, 0.05, 400*time.Millisecond
	for i := range 3 {
		d.live(fmt.Sprint("node-", i), x.node)
	}
	d.w.Go("restores", x.restore)
}}

type postgresDrill struct {
	*drillWorld
	db    *ownertwin.Database
	truth *ownertwin.Truth
	of    map[string][]*ownertwin.Commit // by writer
	term  allocation.Instant
}

// committed judges one commit by what its writer did before.
func (x *postgresDrill) committed(c *ownertwin.Commit) {
	if c.Writer == "" {
		return
	}
	for _, before := range x.of[c.Writer] {
		x.must(!before.Acknowledged || !before.Lost, 8, "%s commits as a writer whose own commit of %s is lost", c.Process, before.At)
	}
	x.of[c.Writer] = append(x.of[c.Writer], c)
}

func (x *postgresDrill) restore() {
	random, out := x.w.Random("restores"), x.w.Outside()
	some := func() { out.Sleep(out.Context(), time.Duration(random.IntN(int(500*time.Millisecond)))) }
	for {
		some()
		backup := x.db.Backup()
		some()
		switch random.IntN(3) {
		case 0:
			x.db.RestoreLogically(backup)
		case 1:
			x.db.RestoreCopy(backup)
		case 2:
			x.db.LoseTail(1 + random.IntN(5))
		}
	}
}

// node spends one permit after the other, until it knows that its database lost history.
func (x *postgresDrill) node(ctx context.Context, p *world.Process) {
	owner := ownertwin.NewOwner(ownertwin.NewEndpoint(x.db), p, "here")
	var w regional.Writer
	for w == nil && ctx.Err() == nil {
		w, _ = owner.NewWriter(ctx, p.Name())
	}
	for ctx.Err() == nil {
		err := x.spend(ctx, p, owner, w)
		for errors.Is(err, regional.ErrUnknownOutcome) && ctx.Err() == nil {
			p.Sleep(ctx, 20*time.Millisecond)
			_, err = w.Resolve(ctx)
		}
		if errors.Is(err, regional.ErrHistoryLost) {
			return
		}
		p.Sleep(ctx, time.Duration(p.Random().IntN(int(10*time.Millisecond))))
	}
}

func (x *postgresDrill) spend(ctx context.Context, p *world.Process, owner *ownertwin.Owner, w regional.Writer) error {
	bounded, cancel := p.WithTimeout(ctx, time.Second)
	defer cancel()
	k := allocation.UsageKey{Budget: "b", Period: x.term, Class: allocation.General}
	b, err := owner.Begin(bounded, w, regional.Want{
		Usage: []regional.WantedUsage{{UsageKey: k, Until: x.term + 86400, Term: x.term, Make: true}}, Changes: math.MaxInt64,
	})
	if err != nil {
		return err
	}
	u := b.Seen().Usage[k]
	if u == nil {
		b.Abandon()
		return owner.Apply(bounded, w, x.grant(), 0)
	}
	u.Spent++
	return b.Commit(bounded, regional.Writes{Usage: []*allocation.Usage{u}})
}

// grant is all that there is, for an owner that holds nothing yet.
func (x *postgresDrill) grant() allocation.SyncAnswer {
	return allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: "drill", Incarnation: "life", Now: x.w.Now().UnixMicro(),
		Shares: []allocation.ShareGrant{{
			Budget: "b", Version: 1, Periods: allocation.Periods{Instants: []allocation.Instant{x.term, x.term + 86400}},
			Generation: allocation.Generation{Number: 1, Stamp: "s"},
			Entries: []allocation.GrantEntry{{
				From: x.term, Until: x.term + 86400, Class: allocation.General, Limit: math.MaxInt32, Granted: math.MaxInt32, Target: math.MaxInt32,
			}},
		}},
	}
}
