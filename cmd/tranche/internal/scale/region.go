package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
)

// region stores what it is granted and states what it stored, as an owner does.
type region struct {
	w           *world
	used        func(s allocation.Share, closed allocation.Instant) []allocation.Usage // what it spent of a share
	name        string
	deployment  string
	incarnation string
	mark        allocation.Mark
	config      int64
	history     allocation.History
	regions     []string
	shards      [allocation.Shards]shard
	next        int // the shard whose turn it is to be stated
}

// shard is what the region holds of one shard of budgets.
type shard struct {
	shares map[allocation.ShareRef]allocation.Share
	unsaid map[allocation.ShareRef]int64 // not acknowledged yet, and the statement that said each first; 0: none did
	said   int64                         // the number of the last statement
	acked  int64
	over   map[allocation.ShareRef]bool // shares of terms that are over, which was stated
}

// cost is what some calls took.
type cost struct {
	calls, bytes int
	took         time.Duration
}

// register makes a region known, and hears which deployment it is of.
func (w *world) register(ctx context.Context, name string) error {
	if _, err := w.must(ctx, http.MethodPost, "/v1/regions", map[string]string{"region": name}); err != nil {
		return err
	}
	text, err := w.must(ctx, http.MethodGet, "/v1/status", nil)
	if err != nil {
		return err
	}
	var status struct {
		Deployment string `json:"deployment"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return err
	}
	w.deployment = status.Deployment
	w.names = append(w.names, name)
	return nil
}

func (w *world) join(ctx context.Context, name string) (*region, error) {
	if err := w.register(ctx, name); err != nil {
		return nil, err
	}
	r := &region{
		w: w, name: name, used: w.used, deployment: w.deployment, mark: allocation.Mark{Writer: name + "-node"},
	}
	for i := range r.shards {
		r.shards[i] = shard{shares: map[allocation.ShareRef]allocation.Share{}, unsaid: map[allocation.ShareRef]int64{}, over: map[allocation.ShareRef]bool{}}
	}
	if _, _, err := r.sync(ctx); err != nil { // it is given an incarnation
		return r, err
	}
	// It is granted nothing before another one has said that it knows of it: one call to hear of it, one to say so.
	for range 2 {
		if len(w.regions) == 0 {
			break
		}
		if _, _, err := w.regions[0].sync(ctx); err != nil {
			return r, err
		}
	}
	_, err := r.untilStored(ctx)
	return r, err
}

// untilStored calls until all that the coordinator has to say is stored, and stated once.
func (r *region) untilStored(ctx context.Context) (sum cost, err error) {
	for {
		c, news, err := r.sync(ctx)
		sum.calls, sum.bytes, sum.took = sum.calls+1, sum.bytes+c.bytes, sum.took+c.took
		if err != nil || !news && sum.calls > 1 {
			return sum, err
		}
	}
}

// untilQuiet calls until the coordinator has acknowledged all that was stated, which it does once etcd holds it.
func (r *region) untilQuiet(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, news, err := r.sync(ctx); err != nil || !news && !r.owes() {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(ackEvery):
		}
	}
	return ctx.Err()
}

// owes says whether something is to be stated.
func (r *region) owes() bool {
	return slices.ContainsFunc(r.shards[:], func(s shard) bool { return len(s.unsaid) > 0 })
}

// sync is one call and what its answer changes. News says that there was something to store.
func (r *region) sync(ctx context.Context) (c cost, news bool, err error) {
	call := r.call()
	asked, err := json.Marshal(call)
	if err != nil {
		return c, false, err
	}
	at := time.Now()
	answer, err := r.w.first.Sync(ctx, call)
	c.took = time.Since(at)
	if err != nil {
		return c, false, fmt.Errorf("%s: %w", r.name, err)
	}
	told, err := json.Marshal(answer)
	if err != nil {
		return c, false, err
	}
	c.calls, c.bytes = 1, len(asked)+len(told)
	news = len(answer.Shares)+len(answer.Budgets) > 0 || answer.More || call.Incarnation == ""
	return c, news, r.apply(answer)
}

func (r *region) call() allocation.SyncCall {
	r.mark.Count++
	r.mark.Value = fmt.Sprint("v", r.mark.Count)
	c := allocation.SyncCall{
		Format: allocation.SyncFormat, Deployment: r.deployment, Region: r.name, Node: r.name + "-node", Version: "scale",
		History: r.history, Incarnation: r.incarnation, Home: allocation.Home{System: "7-" + r.name, Database: 5, Timeline: 1},
		Clock: r.w.now().UnixMicro(), ClosedBefore: allocation.At(r.w.now().Add(-closeGrace)), Config: r.config, Marks: []allocation.Mark{r.mark}, Regions: r.regions,
	}
	if r.state(&c) {
		c.CompleteThrough = c.ClosedBefore
	}
	return c
}

// state adds statements of the shards that changed, as many as one call may hold. It goes round, as an owner does, so that
// what waits to be acknowledged does not keep others from their turn. It says whether these are all.
func (r *region) state(c *allocation.SyncCall) (all bool) {
	room, first := allocation.MaxSharesPerCall, r.next
	for i := range r.shards {
		number := (first + i) % len(r.shards)
		s := &r.shards[number]
		if len(s.unsaid) == 0 {
			continue
		}
		if len(s.unsaid) > room && len(c.Statements) > 0 {
			r.next = number
			return false
		}
		room -= len(s.unsaid)
		s.said++
		st := allocation.Statement{Shard: number, Number: s.said, Base: s.acked, Shares: make([]allocation.ShareStatement, 0, len(s.unsaid))}
		for ref, said := range s.unsaid {
			st.Shares = append(st.Shares, s.shares[ref].Statement(r.used(s.shares[ref], c.ClosedBefore), nil))
			if said == 0 {
				s.unsaid[ref] = st.Number
			}
		}
		c.Statements = append(c.Statements, st)
	}
	return true
}

func (r *region) apply(a allocation.SyncAnswer) error {
	if a.Refusal != "" || a.Frozen {
		return fmt.Errorf("%s is refused: %s %s", r.name, a.Refusal, a.Detail)
	}
	r.history, r.incarnation, r.regions, r.config = a.History, a.Incarnation, a.Regions, max(r.config, a.Config)
	for _, k := range a.Acknowledged {
		s := &r.shards[k.Shard]
		if k.Whole {
			s.acked = 0
			for ref := range s.shares {
				s.unsaid[ref] = 0
			}
			continue
		}
		s.acked = k.Number
		maps.DeleteFunc(s.unsaid, func(_ allocation.ShareRef, said int64) bool { return 0 < said && said <= k.Number })
	}
	for _, g := range a.Shares {
		ref, s := allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}, &r.shards[allocation.ShardOf(g.Budget)]
		share, changed, err := s.shares[ref].Apply(g)
		if err != nil {
			return fmt.Errorf("%s stores %s: %w", r.name, g.Budget, err)
		}
		if changed {
			s.shares[ref], s.unsaid[ref] = share, 0
		}
	}
	for _, ref := range a.Closed {
		s := &r.shards[allocation.ShardOf(ref.Budget)]
		delete(s.shares, ref)
		delete(s.unsaid, ref)
		delete(s.over, ref)
	}
	return nil
}

// endTerms has what was spent of terms that are over be stated.
func (r *region) endTerms(closed allocation.Instant) {
	for i := range r.shards {
		s := &r.shards[i]
		for ref, share := range s.shares {
			if share.Periods.End() <= closed && !s.over[ref] {
				s.over[ref], s.unsaid[ref] = true, 0
			}
		}
	}
}

// reach is how many budgets the region has terms of, and until when it has them of all; 0 if it still has one of a term that
// it has closed a while ago.
func (r *region) reach(now allocation.Instant) (budgets int, ahead allocation.Instant) {
	ahead = allocation.Never
	for i := range r.shards {
		until := map[string]allocation.Instant{}
		for ref, share := range r.shards[i].shares {
			if share.Periods.End() <= now-allocation.Instant(2*closeGrace/time.Second) {
				return budgets, 0
			}
			until[ref.Budget] = max(until[ref.Budget], share.Periods.End())
		}
		for _, end := range until {
			budgets, ahead = budgets+1, min(ahead, end)
		}
	}
	return budgets, ahead
}
