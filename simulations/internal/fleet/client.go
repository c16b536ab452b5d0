package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// Bounds of a client.
const (
	answerWithin  = time.Second             // the deadline that a request carries
	clientWaits   = 1500 * time.Millisecond // for an answer
	mostTries     = 6
	mostRemember  = 40
	mostBatch     = 5
	credential    = "gateway"
	templateUsers = 3
)

// client is a gateway that asks the nodes of its region. It goes on asking with the same id until it knows.
type client struct {
	fleet   *fleet
	region  *region
	process *world.Process
	random  *rand.Rand
	made    int
	calls   int
	open    []*claim // reservations that it believes to hold
	past    []*claim // to be asked again, much later

	elsewhere bool // the node that it asked last works on a copy of the region's database
}

func newClient(f *fleet, r *region, i int) *client {
	name := fmt.Sprint(r.name, "/client-", i)
	return &client{fleet: f, region: r, process: f.w.Process(name), random: f.w.Random(name)}
}

func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil && !c.fleet.quiet {
		c.process.Sleep(ctx, time.Duration(c.random.Int64N(int64(c.fleet.plan.think))))
		switch n := c.random.IntN(20); {
		case n < 8:
			c.admit(ctx, c.claim(allocation.Spend))
		case n < 13:
			if claim := c.claim(allocation.Reserve); c.admit(ctx, claim) {
				c.open = append(c.open, claim)
			}
		case n < 16:
			c.speakOfOne(ctx)
		case n < 17:
			c.ask(ctx, []*claim{c.claim(allocation.Check)}, allocation.Check)
		case n < 18:
			c.batch(ctx)
		case n < 19 && c.random.IntN(2) == 0:
			c.overtake(ctx)
		default:
			c.again(ctx)
		}
	}
	for len(c.open) > 0 && ctx.Err() == nil {
		c.speakOfOne(ctx)
	}
}

// claim makes a new id with labels and costs.
func (c *client) claim(op allocation.Op) *claim {
	c.made++
	name := fmt.Sprint(c.process.Name(), "-", c.made)
	tenant := oneOf(c.random, c.fleet.plan.tenants()...)
	if op == allocation.Reserve && tenant == tenantSteady {
		tenant = tenantChanging // the steady budget is only spent
	}
	cl := &claim{
		region: c.region, sent: map[string]bool{}, key: allocation.IDKey{Credential: credential, Tenant: tenant, ID: name}, op: op, made: c.fleet.w.Elapsed(),
		labels: allocation.Labels{"tenant": tenant}, costs: map[string]int64{"requests": 1 + int64(c.random.IntN(3)), "tokens": 1 + int64(c.random.IntN(12))},
	}
	if tenant == tenantTemplate {
		cl.labels["user"] = fmt.Sprint("u", c.random.IntN(templateUsers))
	}
	if tenant == tenantPlaced {
		cl.labels["place"] = oneOf(c.random, c.region.name, c.region.name, c.fleet.plan.regions[0].name, "nowhere")
	}
	if tenant == tenantPoliced {
		cl.rank = oneOf(c.random, allocation.Priorities()...)
	}
	if op == allocation.Reserve {
		cl.life = allocation.Duration(1 + c.random.IntN(10))
	}
	if p, with := c.fleet.keys.draw(tenant); with {
		cl.shown, cl.key.Credential = p, p.Credential()
	}
	c.fleet.check.claims[claimKey{c.region.name, cl.key}] = cl
	return cl
}

// admit asks until the outcome is known, through any node. It says whether the request was admitted.
func (c *client) admit(ctx context.Context, cl *claim) bool {
	for range mostTries {
		d, answered := c.ask(ctx, []*claim{cl}, cl.op)
		switch {
		case !answered || d[0].Reason == allocation.OutcomeUnknown:
		case d[0].Admitted():
			c.remember(cl)
			return true
		case d[0].Reason == allocation.Overloaded || d[0].Reason == allocation.DatabaseUnavailable:
		default:
			c.remember(cl)
			return false
		}
		c.process.Sleep(ctx, oneOf(c.random, 50*time.Millisecond, 500*time.Millisecond, 3*time.Second))
		if c.fleet.quiet || ctx.Err() != nil {
			break
		}
	}
	c.remember(cl)
	return false
}

// overtake gives a reservation back before it is made, as when a release overtakes its reserve on the way.
func (c *client) overtake(ctx context.Context) {
	cl := c.claim(allocation.Reserve)
	r := cl.request(allocation.Release)
	from := c.fleet.w.Elapsed()
	if d, answered := c.send(ctx, []allocation.Request{r}); answered && d[0].Reason != allocation.OutcomeUnknown {
		c.fleet.check.toldOf(cl, r, from, d[0], c.elsewhere)
	}
	if c.admit(ctx, cl) {
		c.open = append(c.open, cl)
	}
}

func (c *client) remember(cl *claim) {
	c.past = append(c.past, cl)
	if len(c.past) > mostRemember {
		c.past = c.past[1:]
	}
}

// again asks once more with an id of before, maybe of a period that is long over.
func (c *client) again(ctx context.Context) {
	if len(c.past) == 0 {
		return
	}
	cl := c.past[c.random.IntN(len(c.past))]
	if !c.fleet.retained(cl) {
		return // its id may be forgotten, and then it would be admitted once more
	}
	c.ask(ctx, []*claim{cl}, cl.op)
}

// retained says whether an id is within its retention whatever clocks did: a node's monotonic clock may be fast.
func (f *fleet) retained(cl *claim) bool {
	return f.w.Elapsed()-cl.made < f.plan.retention.Std()/2
}

// batch sends several admissions in one request. They may name one id twice.
func (c *client) batch(ctx context.Context) {
	var claims []*claim
	for range 2 + c.random.IntN(mostBatch-1) {
		claims = append(claims, c.claim(allocation.Spend))
	}
	if c.random.IntN(3) == 0 {
		claims = append(claims, claims[0])
	}
	for range mostTries / 2 {
		d, answered := c.ask(ctx, claims, allocation.Spend)
		if answered {
			for i := range d {
				if d[i].Reason == allocation.OutcomeUnknown {
					answered = false
				}
			}
		}
		if answered || c.fleet.quiet || ctx.Err() != nil {
			break
		}
		c.process.Sleep(ctx, 200*time.Millisecond)
	}
	for _, cl := range claims {
		c.remember(cl)
	}
}

// speakOfOne settles, releases or extends a reservation, or leaves it to lapse.
func (c *client) speakOfOne(ctx context.Context) {
	if len(c.open) == 0 {
		return
	}
	i := c.random.IntN(len(c.open))
	cl := c.open[i]
	op := oneOf(c.random, allocation.Settle, allocation.Settle, allocation.Release, allocation.Extend, allocation.Lapse)
	if op != allocation.Extend || c.fleet.quiet {
		c.open = append(c.open[:i], c.open[i+1:]...)
	}
	if op == allocation.Lapse {
		return // nobody says anything: the owner lets it lapse
	}
	r := cl.request(op)
	if op == allocation.Settle {
		r.Costs = map[string]int64{"requests": int64(c.random.IntN(4)), "tokens": int64(c.random.IntN(15))}
	}
	if op == allocation.Extend {
		r.Lifetime = allocation.Duration(1 + c.random.IntN(5))
	}
	for range 3 {
		from := c.fleet.w.Elapsed()
		d, answered := c.send(ctx, []allocation.Request{r})
		if op != allocation.Extend {
			cl.over = true
		}
		if answered && d[0].Reason != allocation.OutcomeUnknown {
			c.fleet.check.toldOf(cl, r, from, d[0], c.elsewhere)
			return
		}
		c.process.Sleep(ctx, 100*time.Millisecond)
	}
}

// ask sends the admissions of claims and notes what was answered.
func (c *client) ask(ctx context.Context, claims []*claim, op allocation.Op) ([]allocation.Decision, bool) {
	w := c.fleet.w
	var requests []allocation.Request
	asked := make([]*asking, len(claims))
	for i, cl := range claims {
		requests = append(requests, cl.request(op))
		asked[i] = &asking{from: w.Elapsed()}
		if op != allocation.Check {
			cl.asked = append(cl.asked, asked[i])
		}
	}
	decisions, answered := c.send(ctx, requests)
	for i := range claims {
		asked[i].to, asked[i].answered = w.Elapsed(), answered
		if answered {
			asked[i].decision, asked[i].elsewhere = decisions[i], c.elsewhere
			c.fleet.check.told(claims[i], requests[i], asked[i])
		}
		if op != allocation.Check && asked[i].open() {
			claims[i].doubtful = true
		}
	}
	return decisions, answered
}

type admitReply struct {
	decisions []allocation.Decision
	up        bool
}

// send makes one request to one node.
func (c *client) send(ctx context.Context, requests []allocation.Request) ([]allocation.Decision, bool) {
	f := c.fleet
	n := c.region.nodes[c.random.IntN(len(c.region.nodes))]
	c.elsewhere = n.endpoint.Database() != c.region.db
	for i := range requests {
		c.calls++
		requests[i].Correlation = fmt.Sprint(c.process.Name(), "/", c.calls)
		if cl := f.check.claims[claimKey{c.region.name, requests[i].Key}]; cl != nil {
			cl.sent[requests[i].Correlation] = true
		}
	}
	bounded, cancel := c.process.WithTimeout(ctx, clientWaits)
	defer cancel()
	reply, err := network.Call(bounded, f.net, c.process, n.process, network.Exchange, "admit", func(ctx context.Context) admitReply {
		return n.decide(ctx, requests)
	})
	if err != nil || !reply.up {
		return nil, false
	}
	for i := range reply.decisions {
		f.check.evident(n, requests[i], reply.decisions[i])
		f.check.judgeWatched(n, reply.decisions[i])
		f.decisions++
		f.reasons[reply.decisions[i].Reason]++
		if reply.decisions[i].Admitted() && !reply.decisions[i].Replayed {
			f.admitted++
		}
	}
	return reply.decisions, true
}

// decide is the node's side of a request.
func (n *node) decide(ctx context.Context, requests []allocation.Request) admitReply {
	if n.current == nil {
		return admitReply{}
	}
	f := n.region.fleet
	claims, barred, asked := n.serving(requests), f.keys.barred(n, requests), requests
	if door := f.o.Seams.Door; door != nil {
		asked = door(n.process.Name(), requests)
	}
	d := n.current.Decide(ctx, asked, n.process.Now().Add(answerWithin))
	f.keys.judge(n, requests, barred, d)
	for i := range d {
		claims[i].served(d[i])
		f.w.Trace("decide", fmt.Sprintf("%s %s %s %s", requests[i].Op, requests[i].Key.ID, d[i].Reason, d[i].State))
	}
	return admitReply{decisions: d, up: true}
}
