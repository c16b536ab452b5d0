package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// operator calls the admin API as a person would: what it is not told it looks up.
type operator struct {
	fleet   *fleet
	process *world.Process
	random  *rand.Rand
	raises  *rand.Rand // of overrides: what is drawn for the rest stays what it was
	next    int        // the replica that it calls
}

func newOperator(f *fleet) *operator {
	p := f.w.Process("operator")
	p.Serve()
	return &operator{fleet: f, process: p, random: f.w.Random("operator"), raises: f.w.Random("overrides")}
}

type adminReply struct {
	status int
	etag   string
	body   []byte
}

// call makes one call of the admin API. Status 0: no answer.
func (o *operator) call(ctx context.Context, method, path string, body any, match string) adminReply {
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body)
	}
	r := o.fleet.replicas[o.next%len(o.fleet.replicas)]
	bounded, cancel := o.process.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	reply, err := network.Call(bounded, o.fleet.net, o.process, r.process, network.Exchange, "admin", func(ctx context.Context) adminReply {
		if r.handler == nil {
			return adminReply{}
		}
		q := httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(data))
		q.Header.Set("Authorization", "Bearer "+o.fleet.admin)
		if match != "" {
			q.Header.Set("If-Match", match)
		}
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, q)
		return adminReply{w.Code, w.Header().Get("ETag"), w.Body.Bytes()}
	})
	if err != nil || reply.status >= http.StatusInternalServerError || reply.status == 0 {
		o.next++
	}
	o.fleet.w.Trace("admin", fmt.Sprintf("%s %s %d %s", method, path, reply.status, data))
	return reply
}

// until calls until it is answered with a status below 500. A replica that does not know the token is behind: it is asked of
// another.
func (o *operator) until(ctx context.Context, method, path string, body any) adminReply {
	for {
		r := o.call(ctx, method, path, body, "")
		behind := r.status == http.StatusUnauthorized
		if r.status != 0 && r.status < http.StatusInternalServerError && !behind || ctx.Err() != nil {
			return r
		}
		if behind {
			o.next++
		}
		o.process.Sleep(ctx, 300*time.Millisecond)
	}
}

// begin registers the regions and declares the budgets, before anything goes wrong.
func (o *operator) begin(ctx context.Context) {
	for _, r := range o.fleet.regions {
		o.register(ctx, r)
	}
	for _, b := range o.fleet.plan.budgets {
		if r := o.until(ctx, "POST", "/v1/budgets", b.Budget); r.status != http.StatusCreated && r.status != http.StatusConflict { // an answer may have been lost
			o.fleet.w.Fail(fmt.Errorf("declare %s: %d %s", b.Name, r.status, r.body))
		}
	}
}

// register makes a region, and starts its nodes unless they come later.
func (o *operator) register(ctx context.Context, r *region) {
	o.until(ctx, "POST", "/v1/regions", map[string]string{"region": r.name})
	var status struct {
		Deployment string `json:"deployment"`
	}
	_ = json.Unmarshal(o.until(ctx, "GET", "/v1/status", nil).body, &status)
	r.deployment = status.Deployment
	if !r.late {
		r.run()
	}
}

// run changes things until the faults are over.
func (o *operator) run() {
	ctx, f := o.process.Context(), o.fleet
	pause := f.plan.operate
	if pause == 0 {
		pause = 15 * time.Second
	}
	for {
		o.process.Sleep(ctx, time.Duration(o.random.Int64N(int64(pause))))
		if f.faults.over {
			break
		}
		if f.plan.operate == 0 {
			continue
		}
		switch n := o.random.IntN(20); {
		case n < 9:
			o.change(ctx, o.budget(), o.limit)
		case n < 11:
			o.change(ctx, o.budget(), o.window)
		case n < 13:
			o.replace(ctx)
		case n < 15:
			o.drain(ctx)
		case n < 18:
			o.rebalance(ctx)
		default:
			o.join(ctx)
		}
		if f.plan.raises && o.raises.IntN(3) == 0 {
			o.override(ctx)
		}
	}
	for _, r := range f.regions {
		r.run()
	}
	o.settle(ctx)
}

// settle undoes what would keep a budget from being spent, once all is well.
func (o *operator) settle(ctx context.Context) {
	for _, r := range o.fleet.regions {
		d := o.fleet.check.members[r.name]
		if d != nil && d.Removed != nil {
			o.registerAgain(ctx, r)
			continue
		}
		if d == nil || d.Draining {
			o.until(ctx, "POST", "/v1/regions/"+r.name+"/resume", nil)
		}
	}
}

func (o *operator) budget() budgetPlan {
	list := o.fleet.plan.budgets
	for {
		if b := list[o.random.IntN(len(list))]; !b.steady {
			return b
		}
	}
}

func (o *operator) region() *region { return o.fleet.regions[o.random.IntN(len(o.fleet.regions))] }

// change reads a budget, edits it, and writes it back.
func (o *operator) change(ctx context.Context, b budgetPlan, edit func(*allocation.Budget)) {
	path := "/v1/budgets/" + pathOf(b.Name)
	now := o.call(ctx, "GET", path, nil, "")
	if now.status != http.StatusOK {
		return
	}
	var answer struct {
		Budget allocation.Budget `json:"budget"`
	}
	if json.Unmarshal(now.body, &answer) != nil {
		return
	}
	edit(&answer.Budget)
	o.call(ctx, "PUT", path, answer.Budget, now.etag)
}

func pathOf(name string) string {
	out := ""
	for _, c := range name {
		switch c {
		case '{':
			out += "%7B"
		case '}':
			out += "%7D"
		default:
			out += string(c)
		}
	}
	return out
}

// limit raises, lowers, or takes everything away.
func (o *operator) limit(b *allocation.Budget) {
	first := int64(0)
	for _, p := range o.fleet.plan.budgets {
		if p.Name == b.Name {
			first = *p.Limit
		}
	}
	next := int64(0)
	switch o.random.IntN(6) {
	case 0:
	case 1, 2:
		next = first/2 + int64(o.random.IntN(2))
	case 3:
		next = first
	default:
		next = first + int64(o.random.Int64N(first+1))
	}
	b.Limit = &next
}

func (o *operator) window(b *allocation.Budget) {
	if b.Window.Every == 0 {
		return
	}
	b.Window.Every = allocation.Duration(oneOf(o.random, 5, 6, 10, 15, 20, 30))
}

// replace deletes a budget, and makes it again a moment later.
func (o *operator) replace(ctx context.Context) {
	b := o.budget()
	path := "/v1/budgets/" + pathOf(b.Name)
	now := o.call(ctx, "GET", path, nil, "")
	if now.status == http.StatusOK {
		o.call(ctx, "DELETE", path, nil, now.etag)
	}
	o.process.Sleep(ctx, time.Duration(o.random.IntN(8))*time.Second)
	if b.Window.Once == nil || o.random.IntN(2) == 0 {
		o.until(ctx, "POST", "/v1/budgets", b.Budget)
	}
}

func (o *operator) drain(ctx context.Context) {
	r := o.region()
	o.call(ctx, "POST", "/v1/regions/"+r.name+"/"+oneOf(o.random, "drain", "resume", "resume"), nil, "")
}

func (o *operator) rebalance(ctx context.Context) {
	from, to := o.region(), o.region()
	b := o.fleet.plan.budgets[o.random.IntN(len(o.fleet.plan.budgets))]
	o.call(ctx, "POST", "/v1/rebalances", map[string]any{"budget": b.Name, "from": from.name, "to": to.name, "units": 1 + o.random.IntN(8)}, "")
}

// join starts the nodes of a region that was not there at the beginning.
func (o *operator) join(context.Context) {
	for _, r := range o.fleet.regions {
		if !r.started {
			r.run()
			return
		}
	}
}
