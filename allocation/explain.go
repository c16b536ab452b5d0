package allocation

import (
	"fmt"
	"time"
)

// Upstream is what a gateway says that the upstream did with a request that was admitted.
type Upstream string

// What an upstream does. Set apart from our own refusals: an upstream's word is about an account that nobody here keeps.
const (
	UpstreamOK        Upstream = "ok"
	UpstreamRefused   Upstream = "upstream_refused"
	UpstreamTimeout   Upstream = "timeout"
	UpstreamMalformed Upstream = "malformed"
)

// Upstreams lists them all.
func Upstreams() []Upstream {
	return []Upstream{UpstreamOK, UpstreamRefused, UpstreamTimeout, UpstreamMalformed}
}

// Cause is the class of why a request did not get what it wanted: whose boundary it was.
type Cause string

// The causes.
const (
	CauseKeyPolicy    Cause = "key_policy"       // a key, its scopes, or a block
	CauseLocalCeiling Cause = "local_ceiling"    // a budget of ours, with fresh evidence
	CauseUpstream     Cause = "upstream_account" // the upstream said no to what was admitted here
	CauseNotProven    Cause = "not_proven"       // neither is proven: no authoritative answer came
	CauseEvidence     Cause = "unknown_evidence" // the region did not know enough to decide
	CauseRequest      Cause = "request"          // the request itself, or where it was sent
	CauseNone         Cause = "none"             // it was admitted, and the upstream served it
)

// FreshFor is how old the coordinator's word may be for a ceiling to count as proven. A region syncs every second.
const FreshFor = 30 * time.Second

// Explanation classifies one decision, and says what to do.
type Explanation struct {
	Cause   Cause    `json:"cause"`
	Meaning string   `json:"meaning"`
	Owner   string   `json:"owner"` // of that boundary
	Do      []string `json:"do"`
	DoNot   []string `json:"do_not"`
	// Evidence is how old the coordinator's word was, in milliseconds; absent: there was none.
	Evidence *int64 `json:"evidence_age_ms,omitempty"`
	Fresh    bool   `json:"evidence_fresh"` // not older than FreshFor
}

// Explain classifies what a receipt says. It goes by the receipt alone, so it says the same at any time.
func Explain(r Receipt) Explanation {
	cause := causeOf(r)
	e := causes[cause]
	e.Cause = cause
	if r.ObservedAt != 0 {
		age := max(0, r.At-r.ObservedAt) / 1000
		e.Evidence, e.Fresh = &age, age <= FreshFor.Milliseconds()
	}
	if cause == CauseLocalCeiling && !e.Fresh {
		e = Explanation{Cause: CauseEvidence, Evidence: e.Evidence}
		known := causes[CauseEvidence]
		e.Meaning, e.Owner, e.Do, e.DoNot = staleCeiling(r.Reason), known.Owner, known.Do, known.DoNot
	}
	if r.Reason == RegionShareSpent && r.Requested > r.Share {
		e.Do = append([]string{fmt.Sprintf("It asked for more than the region's whole share of the period, %d of %d: where the split is fixed, ask for less, ask in a region with a larger share, or move some here with tranche rebalance.", r.Share, r.Requested)}, e.Do...)
		e.DoNot = append([]string{"Do not repeat it as it is, unless the split changes by itself (policy demand): no wait makes it fit."}, e.DoNot...)
	}
	return e
}

// staleCeiling says what is certain of a refusal by a budget, and what is not, where the evidence was not fresh.
func staleCeiling(r Reason) string {
	const old = " is not: the coordinator's word was too old, or there was none."
	switch r {
	case OnlyProtectedLeft:
		return "All that this region had left was protected, for essential traffic, which is certain. Whether other regions had more" + old
	case Deferred, LadderRefused:
		return "By what this region knew so much was used that the budget's ladder turned the request away. How much was used in all" + old
	case CostExceedsLimit:
		return "The request asked for more than the limit that this region knew, which is certain. Whether the limit was changed meanwhile" + old
	case TooManyInstances:
		return "This region counted as many instances as the budget may have, by the number that it knew. Whether that was changed meanwhile" + old
	}
	return "This region had nothing left for the request, which is certain. Whether the whole budget was used up" + old
}

func causeOf(r Receipt) Cause {
	switch r.Upstream {
	case UpstreamRefused:
		return CauseUpstream
	case UpstreamTimeout, UpstreamMalformed:
		return CauseNotProven
	case UpstreamOK:
		return CauseNone
	}
	return CauseOf(r.Reason)
}

// CauseOf is the cause that a reason speaks of, where the evidence was fresh. One that this version does not know is
// unknown evidence.
func CauseOf(r Reason) Cause {
	switch r {
	case Allow:
		return CauseNone
	case ScopeDenied, "key_unknown", "key_revoked", "key_expired", "blocked":
		return CauseKeyPolicy
	case RegionShareSpent, CeilingReached, CapacityStranded, TooManyInstances, OnlyProtectedLeft, Deferred, LadderRefused, CostExceedsLimit:
		return CauseLocalCeiling
	case CostUnknown, NoBudget, AdmissionIDConflict, AdmissionIDReleased, AdmissionIDMissing, AdmissionIDUnknown, AdmissionIDSettled,
		TooManyBudgets, LabelMissing, NotHome:
		return CauseRequest
	case OutcomeUnknown:
		return CauseNotProven
	}
	return CauseEvidence // the 503s with outcome none, and what a later version made up
}

var causes = map[Cause]Explanation{
	CauseNone: {
		Meaning: "The request was admitted here, and the upstream served it.", Owner: "nobody: no boundary was met",
		Do: []string{"Look at the caller's own error."}, DoNot: []string{"Do not raise a budget for it."},
	},
	CauseKeyPolicy: {
		Meaning: "A key, its scopes or a block refused it. No budget was looked at.", Owner: "whoever issues keys and sets blocks",
		Do: []string{
			"Find the key by its fingerprint, and see whether it was revoked, expired, or lacks the scope.",
			"See the audit log for the block or the revocation, and who is named there.",
		},
		DoNot: []string{"Do not raise a budget: it changes nothing.", "Do not lend the caller another key.", "Do not lift a block whose reason you have not read."},
	},
	CauseLocalCeiling: {
		Meaning: "A budget of yours refused it, and knew what it was doing: the evidence was fresh.", Owner: "whoever declares the budget",
		Do: []string{
			"Compare what was asked with what was left, and the limit then with the limit now.",
			"If the traffic is wanted, raise the limit by a change of the budget; if not, find who spends it.",
			"If permits were stranded, see tranche stranded: the rest may be behind a region that cannot be asked.",
		},
		DoNot: []string{"Do not retry faster than Retry-After says.", "Do not route around the limit.", "Do not take the node or its database down: nothing is broken."},
	},
	CauseUpstream: {
		Meaning: "It was admitted here, and the upstream refused it. What was charged stays charged.", Owner: "whoever owns the contract with the upstream",
		Do: []string{
			"Look at the upstream's account: its own limit, its balance, its rate.",
			"If it refuses below what the budget allows, lower the budget to what the upstream really gives.",
		},
		DoNot: []string{"Do not raise the budget: more would be refused upstream.", "Do not give the permits back by hand: the upstream may have counted the request."},
	},
	CauseNotProven: {
		Meaning: "Neither a local nor an upstream boundary is proven: no authoritative answer came.", Owner: "whoever operates the path between the caller and the upstream",
		Do: []string{
			"Ask again with the same admission id: the node tells whether it was charged.",
			"Ask the upstream, by the correlation id, whether it saw the request.",
		},
		DoNot: []string{"Do not send it again with a new admission id before you know: it may be charged twice.", "Do not count it as a refusal of either side."},
	},
	CauseEvidence: {
		Meaning: "The region could not decide: it lacked evidence, its database, or time. Nothing was charged, and nothing is said about the budget.", Owner: "whoever operates the region and the coordinator",
		Do: []string{
			"See tranche status, and the node's /readyz: what the region lacks is named there.",
			"Let the callers retry with the same admission id.",
		},
		DoNot: []string{"Do not raise the budget: it may be far from used up.", "Do not switch a node to shadow to get traffic through unless you accept that the limit does not hold."},
	},
	CauseRequest: {
		Meaning: "The request itself could not be admitted as it was sent, whatever is left.", Owner: "whoever builds the caller or sets the gateway up",
		Do:    []string{"Read the reason: it names the label, the cost, the admission id or the region that is wrong.", "Try the labels with tranche budgets match."},
		DoNot: []string{"Do not retry it unchanged.", "Do not raise a budget."},
	},
}
