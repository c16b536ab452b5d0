package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"tranche/allocation"
)

// region stores what it is granted and states what it stored, as an owner does; it spends nothing.
type region struct {
	w           *world
	name        string
	deployment  string
	incarnation string
	mark        allocation.Mark
	config      int64
	history     allocation.History
	regions     []string
	shares      map[allocation.ShareRef]allocation.Share
	unsaid      map[int]map[allocation.ShareRef]int64 // by shard: shares not acknowledged yet, and the statement that said each first; 0: none did
	said        map[int]int64                         // by shard: the number of the last statement
	acked       map[int]int64
}

// cost is what some calls took.
type cost struct {
	calls, bytes int
	took         time.Duration
}

func (w *world) join(ctx context.Context, name string) (*region, error) {
	if _, err := w.must(ctx, http.MethodPost, "/v1/regions", map[string]string{"region": name}); err != nil {
		return nil, err
	}
	text, err := w.must(ctx, http.MethodGet, "/v1/status", nil)
	if err != nil {
		return nil, err
	}
	var status struct {
		Deployment string `json:"deployment"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, err
	}
	r := &region{
		w: w, name: name, deployment: status.Deployment, mark: allocation.Mark{Writer: name + "-node"},
		shares: map[allocation.ShareRef]allocation.Share{}, unsaid: map[int]map[allocation.ShareRef]int64{},
		said: map[int]int64{}, acked: map[int]int64{},
	}
	_, err = r.untilStored(ctx)
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
	for _, refs := range r.unsaid {
		if len(refs) > 0 {
			return true
		}
	}
	return false
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
		Clock: time.Now().UnixMicro(), Config: r.config, Marks: []allocation.Mark{r.mark}, Regions: r.regions,
	}
	room := allocation.MaxSharesPerCall
	for shard := range allocation.Shards {
		if len(r.unsaid[shard]) == 0 || len(r.unsaid[shard]) > room && room < allocation.MaxSharesPerCall {
			continue
		}
		room -= len(r.unsaid[shard])
		r.said[shard]++
		st := allocation.Statement{Shard: shard, Number: r.said[shard], Base: r.acked[shard]}
		for ref, said := range r.unsaid[shard] {
			st.Shares = append(st.Shares, r.shares[ref].Statement(nil, nil))
			if said == 0 {
				r.unsaid[shard][ref] = st.Number
			}
		}
		if c.Statements = append(c.Statements, st); room <= 0 {
			break
		}
	}
	return c
}

func (r *region) apply(a allocation.SyncAnswer) error {
	if a.Refusal != "" || a.Frozen {
		return fmt.Errorf("%s is refused: %s %s", r.name, a.Refusal, a.Detail)
	}
	r.history, r.incarnation, r.regions, r.config = a.History, a.Incarnation, a.Regions, max(r.config, a.Config)
	for _, k := range a.Acknowledged {
		if k.Whole {
			r.acked[k.Shard] = 0
			for ref := range r.shares {
				if allocation.ShardOf(ref.Budget) == k.Shard {
					r.unsay(ref)
				}
			}
			continue
		}
		r.acked[k.Shard] = k.Number
		maps.DeleteFunc(r.unsaid[k.Shard], func(_ allocation.ShareRef, said int64) bool { return 0 < said && said <= k.Number })
	}
	for _, g := range a.Shares {
		ref := allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}
		share, changed, err := r.shares[ref].Apply(g)
		if err != nil {
			return fmt.Errorf("%s stores %s: %w", r.name, g.Budget, err)
		}
		if changed {
			r.shares[ref] = share
			r.unsay(ref)
		}
	}
	return nil
}

// unsay notes that a share is to be stated.
func (r *region) unsay(ref allocation.ShareRef) {
	shard := allocation.ShardOf(ref.Budget)
	if r.unsaid[shard] == nil {
		r.unsaid[shard] = map[allocation.ShareRef]int64{}
	}
	r.unsaid[shard][ref] = 0
}
