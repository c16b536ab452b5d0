package regional

import (
	"context"
	"net/http"
	"time"

	"tranche/allocation"
)

// Gate decides for gateways that speak another protocol than the HTTP API. What it shares with that API: the tokens, the
// bound on what is worked on at once, the counters, and what is told of a decision.
type Gate struct{ api *api }

// NewGate makes a gate of a node.
func NewGate(config HTTPConfig, b Backend) *Gate { return &Gate{newAPI(config, b)} }

// Call is one request of a gateway.
type Call struct {
	Caller      string // the credential's name, as Caller told it
	Op          allocation.Op
	Labels      allocation.Labels
	Tenant      string // of the calls about an admission, which need no labels
	Costs       map[string]int64
	Lifetime    allocation.Duration
	ID          string // empty: one is made, and the owner refuses it unless the budgets allow that
	Correlation string
	Priority    allocation.Priority
	Legacy      string // what the limiter says that is still in force: allow or deny; empty: nothing is known
}

// Caller is the credential's name for the values of an Authorization header. If it is empty, problem says why.
func (g *Gate) Caller(authorization []string) (name, problem string) {
	name, refused := g.api.tokens().bearer(authorization)
	if refused != nil {
		return "", refused.detail
	}
	return name, ""
}

// Enter takes one of the slots of what is worked on at once; false: none is free, and the answer is overloaded. Whoever
// entered must leave.
func (g *Gate) Enter() bool {
	select {
	case g.api.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// Leave gives the slot back.
func (g *Gate) Leave() { <-g.api.slots }

// Now is the node's clock.
func (g *Gate) Now() time.Time { return g.api.config.Now() }

// Decide decides a call that arrived, and counts it.
func (g *Gate) Decide(ctx context.Context, c Call, arrived, deadline time.Time) allocation.Decision {
	body := callBody{op: c.Op, labels: c.Labels, costs: c.Costs, lifetime: c.Lifetime, id: c.ID, deadline: deadline.Sub(arrived), legacy: c.Legacy, priority: c.Priority}
	request := g.api.request(&body, c.Caller, c.Correlation)
	if refused := g.api.overreaches(c.Caller, &body); refused != nil {
		return g.Refuse(c, refused.reason, refused.detail)
	}
	if c.Tenant != "" {
		request.Key.Tenant = c.Tenant
	}
	defer g.api.watch.gatherSome()
	return g.api.decide(ctx, []allocation.Request{request}, &body, arrived)[0]
}

// Find tells where an admission stands; false if the id is not known in this region.
func (g *Gate) Find(ctx context.Context, key allocation.IDKey) (allocation.Decision, bool, error) {
	return g.api.Find(ctx, key)
}

// Refuse is a decision that the gate makes without the owner: nothing was charged for it.
func (g *Gate) Refuse(c Call, reason allocation.Reason, detail string) allocation.Decision {
	d := allocation.Decision{
		Reason: reason, Action: allocation.ActionRefused, Op: c.Op, Detail: detail, Region: g.api.Catalogue().Region,
		Key:      allocation.IDKey{Credential: c.Caller, Tenant: c.Labels[tenantLabel], ID: c.ID},
		Evidence: allocation.Evidence{Correlation: c.Correlation},
	}
	if g.api.config.Shadow {
		letThrough(&d)
		g.api.config.Metrics.countShadow(&d)
		g.api.watch.note(&allocation.Request{Op: allocation.Spend, Labels: c.Labels}, &d, c.Legacy, true)
	} else {
		g.api.note(allocation.Request{Op: c.Op, Key: d.Key, Labels: c.Labels, Costs: c.Costs, Priority: c.Priority, Correlation: c.Correlation}, &d)
	}
	return d
}

// Shadow says whether the node refuses nobody: what it would refuse, it lets through and says so.
func (g *Gate) Shadow() bool { return g.api.config.Shadow }

// Budget is the newest version of a budget that the node knows.
func (g *Gate) Budget(name string) (allocation.Budget, bool) {
	b, known := g.api.Catalogue().Budget(name)
	return b.Budget, known
}

// Public is what may be told to the gateway's caller.
func (g *Gate) Public(d *allocation.Decision) Public { return g.api.public(d) }

// PublicProblem is what may be told of a call that is wrong.
func (g *Gate) PublicProblem(problems allocation.Problems) Public {
	return publicFault(*invalid(problems...))
}

// Count counts an answer of Envoy's rate limit service by its code.
func (g *Gate) Count(code string) { g.api.config.Metrics.envoy(code).Inc() }

// ParseAdmissionID reads an id as callers write it, quoted or not.
func ParseAdmissionID(text string) (id string, problem string) { return parseAdmissionID(text) }

// CorrelationOf is the id by which a decision is found again beside its caller's traces.
func CorrelationOf(h http.Header) string { return correlationOf(h) }

// Seconds until a period ends that a decision was made in, by the decision's own time; false for one without end.
func ResetsIn(d *allocation.Decision, b *allocation.BudgetDecision, now time.Time) (int64, bool) {
	if b.Until == 0 || b.Until == allocation.Never {
		return 0, false
	}
	at := allocation.At(now)
	if d.At != 0 && !d.Replayed {
		at = allocation.At(time.UnixMicro(d.At))
	}
	return resetsIn(b.Until, at), true
}
