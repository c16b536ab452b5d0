// Package client asks a region's nodes whether a request may be served.
//
//	c, err := client.New(client.Options{Nodes: []string{"https://tranche.us-east.internal:7080"}, Token: token})
//	…
//	d, err := c.Admit(ctx, client.Request{Labels: map[string]string{"tenant": "acme"}})
//	if err != nil || !d.Admitted() {
//		return // refuse: err says that nothing was decided, d why it was refused
//	}
//
// # What it does with an answer
//
//	admitted                    Decision, Admitted is true
//	refused                     Decision, Admitted is false: a refusal is a decision, not an error. One whose reason this
//	                            version does not know is a refusal too
//	503, no answer, no JSON     tried again under the same admission id, with growing waits that honour Retry-After, until
//	                            Options.Tries or Options.Patience is used up; then an *UndecidedError
//	the call is wrong           *CallError, at once: a bad field, a bad token
//
// A refusal that may pass later (Decision.Retryable, also one that was deferred) is told at once, or waited for if
// Request.Wait says so. Its id is not bound: the same id may be asked again, by this process or, with the id kept beside
// the work, by another one, days later.
//
// # Once
//
// Every admission has an id, over all tries: Request.ID, or one that is made. So an answer that was lost costs nothing
// twice. An id counts in one region only: all of Options.Nodes must be nodes of the same region. Do not take the id from a
// caller that you do not trust: who repeats an id is admitted again without a charge.
//
// # Closed
//
// What is not known to be admitted is not admitted. Options.FailOpen is the one exception; whoever sets it must say why,
// and each request that it lets through is logged with that.
//
// Middleware does all of this for net/http; the package grpcclient for gRPC.
package client
