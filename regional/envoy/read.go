package envoy

import (
	"errors"
	"fmt"
	"strconv"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"tranche/allocation"
	"tranche/regional"
)

// Bounds of a call.
const (
	maxDescriptors = 64
	maxEntries     = 64 // of one descriptor
	maxShown       = 64 // bytes of a caller's text in a problem
)

// The operations that an entry may name, besides the domain's.
var entryOps = map[string]allocation.Op{
	"spend": allocation.Spend, "reserve": allocation.Reserve, "check": allocation.Check, "settle": allocation.Settle, "release": allocation.Release,
}

// descriptor is one descriptor of a call, as it was understood.
type descriptor struct {
	unit   string
	hits   int64
	labels map[string]bool // the names of those that it carries
}

// call is what Envoy asks, as it was understood.
type call struct {
	op          allocation.Op
	refund      bool // hits give back
	labels      allocation.Labels
	hits        map[string]int64 // by unit
	id          string
	legacy      string // what the limiter says that is still in force
	priority    allocation.Priority
	descriptors []descriptor
}

// reader reads one call.
type reader struct {
	domain   *Domain
	call     call
	opGiven  string
	priority string // as given
	positive bool
	problems allocation.Problems
}

// read understands a call, or says all that is wrong with it. Two descriptors may say the same thing twice, but never two
// things of one label, one unit, one id: which of them counts must not depend on an order.
func (m *Mapping) read(req *servicev3.RateLimitRequest) (call, allocation.Problems) {
	d, known := m.Domains[req.GetDomain()]
	r := reader{domain: &d, call: call{op: allocation.Op(d.Op), labels: allocation.Labels{}, hits: map[string]int64{}}}
	switch n := len(req.GetDescriptors()); {
	case !known:
		r.wrong("domain", fmt.Sprintf("%s is not in the node's mapping", shown(req.GetDomain())), "add it there, or correct the domain of Envoy's filter")
		return r.call, r.problems
	case n == 0 || n > maxDescriptors:
		r.wrong("descriptors", fmt.Sprintf("are %d", n), fmt.Sprintf("send 1 to %d", maxDescriptors))
		return r.call, r.problems
	}
	for name, value := range d.Labels {
		r.call.labels[name] = value
	}
	r.call.priority = allocation.Priority(d.Priority)
	for i, one := range req.GetDescriptors() {
		r.descriptor(fmt.Sprintf("descriptors[%d]", i), one, req.GetHitsAddend())
	}
	if found, bad := errors.AsType[allocation.Problems](r.call.labels.Validate()); bad {
		r.problems = append(r.problems, found...)
	}
	r.decideOp()
	return r.call, r.problems
}

func (r *reader) wrong(field, problem, fix string) {
	r.problems = append(r.problems, allocation.FieldError{Field: field, Problem: problem, Fix: fix})
}

func shown(text string) string {
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	return strconv.QuoteToASCII(text)
}

func (r *reader) descriptor(at string, d *descriptorv3.RateLimitDescriptor, requestHits uint32) {
	out := descriptor{unit: r.domain.Unit, labels: map[string]bool{}}
	if d.GetLimit() != nil {
		r.wrong(at+".limit", "is a limit of its own, and limits are declared as budgets", "take the override out of Envoy's route, or declare a budget")
	}
	if n := len(d.GetEntries()); n == 0 || n > maxEntries {
		r.wrong(at+".entries", fmt.Sprintf("are %d", n), fmt.Sprintf("send 1 to %d", maxEntries))
		return
	}
	for _, e := range d.GetEntries() {
		r.entry(at+".entries."+e.GetKey(), e.GetKey(), e.GetValue(), &out)
	}
	hits := uint64(max(requestHits, 1)) // 0 of the request is not set, and means 1
	if d.GetHitsAddend() != nil {
		hits = d.GetHitsAddend().GetValue()
	}
	if hits > uint64(allocation.MaxUnits) {
		r.wrong(at+".hits_addend", fmt.Sprintf("is %d", hits), fmt.Sprintf("send at most %d", allocation.MaxUnits))
		return
	}
	out.hits = int64(hits)
	r.call.refund = r.call.refund || d.GetIsNegativeHits()
	r.positive = r.positive || !d.GetIsNegativeHits()
	if before, twice := r.call.hits[out.unit]; twice && before != out.hits {
		r.wrong(at+".hits_addend", fmt.Sprintf("is %d %s, and %d in an earlier descriptor", out.hits, out.unit, before),
			"one request costs one amount of each unit: give the descriptor another unit, or the same hits")
		return
	}
	r.call.hits[out.unit] = out.hits
	r.call.descriptors = append(r.call.descriptors, out)
}

func (r *reader) entry(at, key, value string, out *descriptor) {
	e, known := r.domain.Entries[key]
	switch {
	case !known:
		r.wrong(at, "is not in the mapping of this domain", "name it there, or take it out of Envoy's descriptor; `is: ignored` passes it over")
	case e.Label != "":
		if before, twice := r.call.labels[e.Label]; twice && before != value {
			r.wrong(at, "gives label "+e.Label+" a second value", "send one value of each label")
			return
		}
		r.call.labels[e.Label] = value
		out.labels[e.Label] = true
	case e.Is == isAdmissionID:
		r.id(at, value)
	case e.Is == isUnit:
		if !validUnit(value) {
			r.wrong(at, shown(value)+" is no unit", "use 1 to 64 of a-z 0-9 _ beginning with a letter, like tokens")
			return
		}
		out.unit = value
	case e.Is == isLegacy:
		if value != "allow" && value != "deny" || r.call.legacy != "" && r.call.legacy != value {
			r.wrong(at, shown(value)+" is not a verdict, or a second one", "send allow or deny, once: what the limiter says that is still in force")
			return
		}
		r.call.legacy = value
	case e.Is == isPriority:
		p, problem := allocation.ParsePriority(value)
		switch {
		case problem != nil:
			r.wrong(at, shown(value)+" "+problem.Problem, problem.Fix)
		case r.priority != "" && r.priority != string(p):
			r.wrong(at, "is "+string(p)+", and "+r.priority+" in another entry", "send one priority")
		}
		r.priority, r.call.priority = string(p), p
	case e.Is == isOp:
		if _, ok := entryOps[value]; !ok {
			r.wrong(at, shown(value)+" is not an operation", "use spend, reserve, check, settle or release")
		} else if r.opGiven != "" && r.opGiven != value {
			r.wrong(at, "is "+value+", and "+r.opGiven+" in another entry", "one call does one thing")
		}
		r.opGiven = value
	}
}

func (r *reader) id(at, value string) {
	id, problem := regional.ParseAdmissionID(value)
	switch {
	case problem != "":
		r.wrong(at, problem, "give 1 to 255 printable ASCII characters, such as a UUID")
	case r.call.id != "" && r.call.id != id:
		r.wrong(at, "names another admission id than the rest of the call", "send one id")
	default:
		r.call.id = id
	}
}

// decideOp finds what the call does.
func (r *reader) decideOp() {
	c := &r.call
	if r.opGiven != "" {
		c.op = entryOps[r.opGiven]
	}
	admits := c.op == allocation.Spend || c.op == allocation.Reserve
	switch {
	case c.refund && r.positive:
		r.wrong("descriptors", "give back and charge in one call", "make is_negative_hits the same in all of them")
	case c.refund && c.op == allocation.Check, c.refund && c.op == allocation.Settle:
		r.wrong("descriptors", "give back, and are to "+string(c.op), "take one of the two out")
	case !admits && c.op != allocation.Check && c.id == "" || c.refund && c.id == "":
		r.wrong("descriptors", "speak of an earlier admission and name none", "send its admission id")
	}
	if admits && !c.refund && allZero(c.hits) {
		c.op = allocation.Check
	}
}

func allZero(hits map[string]int64) bool {
	for _, n := range hits {
		if n != 0 {
			return false
		}
	}
	return true
}

// costs are what the hits cost; a check of 0 asks whether one unit would fit.
func (c *call) costs(ofZero int64) map[string]int64 {
	out := map[string]int64{}
	for unit, n := range c.hits {
		if out[unit] = n; n == 0 {
			out[unit] = ofZero
		}
	}
	return out
}

// looks says whether the call charges in one unit, and only looks at another.
func (c *call) looks() bool {
	if c.op != allocation.Spend && c.op != allocation.Reserve || c.refund {
		return false
	}
	for _, n := range c.hits {
		if n == 0 {
			return true
		}
	}
	return false
}
