package scenario

import (
	"slices"

	"tranche/allocation"
)

// Callers stand between demand and an engine: they record what is refused for good, and try once more if the scenario says
// so.
type Callers struct {
	s       Scenario
	rec     *Recorder
	seed    uint64
	waiting map[int][]Batch // by tick
}

// NewCallers makes the callers of a run that rec records.
func NewCallers(s Scenario, rec *Recorder, seed uint64) *Callers {
	return &Callers{s: s, rec: rec, seed: seed, waiting: map[int][]Batch{}}
}

// Refused records a refusal in tick k, or puts it off: retry is what the answer's Retry-After says, in seconds, 0 for
// never. As in the real answers, up to a tenth is added, so that not all come back at once. What would come back after the
// run, and every second try, is refused for good.
func (c *Callers) Refused(k int, b Batch, reason string, retry int64, again bool) {
	if b.N == 0 {
		return
	}
	if c.s.Refused == RetryOnce && retry > 0 && !again {
		extra := float64(retry) * 0.1 * float64(mix(c.seed^uint64(k)<<20^uint64(b.Region))>>11) / (1 << 53)
		wait := int64(float64(retry) + extra + 0.999)
		tick := int64(c.s.Tick)
		if due := k + int((wait+tick-1)/tick); due < c.s.Ticks() {
			b.Costs = slices.Clone(b.Costs)
			c.waiting[due] = append(c.waiting[due], b)
			c.rec.Retried(b.Budget, b.Region, b.N)
			return
		}
	}
	c.rec.Refused(allocation.Duration(k)*c.s.Tick, b.Budget, b.Region, reason, b.Units())
}

// Due takes what is to be tried again in a tick.
func (c *Callers) Due(k int) []Batch {
	list := c.waiting[k]
	delete(c.waiting, k)
	return list
}

// split takes the part of a batch that meets a crashed node.
func split(b Batch, part float64) (gone, rest Batch) {
	n := int64(float64(b.N)*part + 0.5)
	gone, rest = b, b
	gone.N, rest.N = n, b.N-n
	if b.Costs != nil {
		gone.Costs, rest.Costs = b.Costs[:n], b.Costs[n:]
	}
	return gone, rest
}
