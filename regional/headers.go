package regional

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"tranche/allocation"
)

// The RateLimit fields are those of draft-ietf-httpapi-ratelimit-headers-10, which may still move: all that rests on it
// stands in this file. Both are structured fields (RFC 9651), lists of strings with parameters:
//
//	RateLimit-Policy: "acme/requests";q=100;w=60, "acme/tokens";q=50000;w=86400;qu="tokens"
//	RateLimit:        "acme/requests";r=12;t=30, "acme/tokens";r=4000;t=3600
//
// q is the limit of the whole budget, r what this region may still spend, since that predicts its next answer.

const (
	// maxFieldBytes bounds each of the two fields: some proxies give all of a response's header 4 KiB. Budgets that do
	// not fit are left out of both; the refusing one comes first.
	maxFieldBytes = 1024
	// maxFieldInteger is the greatest integer of a structured field, of 15 digits.
	maxFieldInteger = 999_999_999_999_999
	defaultUnit     = "requests"
)

// setRateLimit adds the fields for a decision that was made at `now`. A replay tells an old remainder, which predicts
// nothing: it has the policies alone.
func setRateLimit(h http.Header, d *allocation.Decision, now allocation.Instant, retryAfter int64) {
	if len(d.Budgets) == 0 {
		return
	}
	var room [2][128]byte // more than most have
	policies, limits := room[0][:0], room[1][:0]
	add := func(b *allocation.BudgetDecision) {
		counted := b.Reason == allocation.Allow || isCounter(b.Reason) // else nothing is known of what remains
		if !counted || b.Until == 0 || !fieldString(b.Budget) || !fieldString(b.Instance) {
			return
		}
		policy, limit := appendPolicy(policies, b), appendLimit(limits, b, now, retryAfter)
		if len(policy) <= maxFieldBytes && len(limit) <= maxFieldBytes {
			policies, limits = policy, limit
		}
	}
	first := blamed(d)
	if first != nil {
		add(first)
	}
	for i := range d.Budgets {
		if b := &d.Budgets[i]; b != first {
			add(b)
		}
	}
	if len(policies) > 0 {
		values := []string{string(policies), ""}
		h["Ratelimit-Policy"] = values[:1:1]
		if !d.Replayed {
			values[1] = string(limits)
			h["Ratelimit"] = values[1:]
		}
	}
}

func appendPolicy(to []byte, b *allocation.BudgetDecision) []byte {
	to = appendInteger(appendName(to, b), ";q=", b.Limit)
	if b.Until != allocation.Never {
		to = appendInteger(to, ";w=", int64(b.Until-b.Period))
	}
	if b.Unit != defaultUnit {
		to = append(append(append(to, `;qu="`...), b.Unit...), '"')
	}
	return to
}

// appendLimit leaves t out where the caller is told to come earlier than the reset, lest it waits for the later one.
func appendLimit(to []byte, b *allocation.BudgetDecision, now allocation.Instant, retryAfter int64) []byte {
	to = appendInteger(appendName(to, b), ";r=", b.Remaining)
	if b.Until == allocation.Never {
		return to
	}
	if reset := resetsIn(b.Until, now); retryAfter == 0 || retryAfter >= reset {
		to = appendInteger(to, ";t=", reset)
	}
	return to
}

func appendName(to []byte, b *allocation.BudgetDecision) []byte {
	if len(to) > 0 {
		to = append(to, ", "...)
	}
	to = append(append(to, '"'), b.Budget...)
	if b.Instance != "" {
		to = append(append(append(to, " ["...), b.Instance...), ']')
	}
	return append(to, '"')
}

func appendInteger(to []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(to, name...), min(max(n, 0), maxFieldInteger), 10)
}

// fieldString says whether a name can stand in a field's string as it is. Every valid name can.
func fieldString(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// resetsIn is the whole seconds until a period ends, 0 for one that is over.
func resetsIn(until, now allocation.Instant) int64 { return max(0, int64(until-now)) }

// retryAfter is what a refused caller is told to wait: the decision's wait, and up to a tenth more, so that those who were
// refused together do not come back together. 0: no advice.
func (a *api) retryAfter(d *allocation.Decision, retry allocation.RetryAdvice) int64 {
	if d.Admitted() {
		return 0
	}
	wait := d.Retry
	if wait <= 0 {
		switch retry {
		case allocation.RetrySoon, allocation.RetrySameID:
			wait = 1
		case allocation.RetryNever, allocation.RetryNextPeriod, allocation.RetryElsewhere, allocation.RetryNewID:
			return 0
		}
	}
	return wait + a.random(wait/10+1)
}

func randomBelow(n int64) int64 { return rand.Int64N(n) }

// correlationOf is the id by which a decision is found again beside its caller's traces: the trace id of traceparent, else
// X-Request-Id. One that is not well-formed is left out: tracing decides nothing.
func correlationOf(h http.Header) string {
	if parent := first(h["Traceparent"]); len(parent) >= 55 && parent[2] == '-' && parent[35] == '-' {
		if id := parent[3:35]; strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != "" {
			return id
		}
	}
	id := first(h["X-Request-Id"])
	if len(id) > maxCorrelation || !fieldString(id) {
		return ""
	}
	return id
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

const maxCorrelation = 128 // bytes of X-Request-Id
