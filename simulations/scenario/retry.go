package scenario

import "tranche/allocation"

// later are requests that were refused and will be made once more.
type later struct {
	budget, region int
	n, each        int64
	costs          []int64 // nil: all cost each
	reason         string
}

func (l later) batch() Batch {
	return Batch{Budget: l.budget, Region: l.region, N: l.n, Cost: l.each, Costs: l.costs}
}

// callers are what stands between demand and an engine: they record what is refused, and try once more if the scenario
// says so.
type callers struct {
	s       Scenario
	rec     *Recorder
	seed    uint64
	tick    allocation.Duration
	waiting map[int][]later // by tick
}

func newCallers(s Scenario, rec *Recorder, seed uint64) *callers {
	return &callers{s: s, rec: rec, seed: seed, tick: s.Tick, waiting: map[int][]later{}}
}

// refused records a refusal, or puts it off: retry is what the answer's Retry-After says, in seconds, 0 for never. As in
// the real answers, up to a tenth is added, so that not all come back at once. What would come back after the run, and
// every second try, is refused for good.
func (c *callers) refused(k int, l later, retry int64, again bool) {
	at := allocation.Duration(k) * c.tick
	if c.s.Refused == RetryOnce && retry > 0 && !again {
		extra := float64(retry) * 0.1 * float64(mix(c.seed^uint64(k)<<20^uint64(l.region))>>11) / (1 << 53)
		wait := int64(float64(retry) + extra + 0.999)
		due := k + int((wait+int64(c.tick)-1)/int64(c.tick))
		if due < c.s.Ticks() {
			c.waiting[due] = append(c.waiting[due], l)
			c.rec.Retried(l.budget, l.region, l.n)
			return
		}
	}
	c.rec.Refused(at, l.budget, l.region, l.reason, l.batch().Units())
}

// due takes what is to be tried again in a tick.
func (c *callers) due(k int) []later {
	list := c.waiting[k]
	delete(c.waiting, k)
	return list
}

// split takes the part of a batch that meets a crashed node. The nodes take turns, so the part is that of each kind.
func split(b Batch, part float64) (gone, rest Batch) {
	n := int64(float64(b.N)*part + 0.5)
	gone, rest = b, b
	gone.N, rest.N = n, b.N-n
	if b.Costs != nil {
		gone.Costs, rest.Costs = b.Costs[:n], b.Costs[n:]
	}
	return gone, rest
}
