package bench

import (
	"math/bits"
	"time"
)

// histogram counts latencies in classes that are at most 1/32 wide of what they hold. The zero value is empty.
type histogram struct {
	counts [slots]int64
	n      int64
}

const (
	fine  = 5 // bits
	slots = (64 - fine) << fine
)

func slotOf(d time.Duration) int {
	v := uint64(max(0, d))
	if v < 1<<fine {
		return int(v)
	}
	e := bits.Len64(v) - fine - 1
	return e<<fine + int(v>>e)
}

// top is the greatest value of a slot.
func top(slot int) time.Duration {
	if slot < 2<<fine {
		return time.Duration(slot)
	}
	e := slot>>fine - 1
	return time.Duration((uint64(slot-e<<fine)+1)<<e - 1)
}

func (h *histogram) add(d time.Duration) {
	h.counts[slotOf(d)]++
	h.n++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
}

// quantile is the latency that the given part stays within, such as 0.99; 0 if nothing was counted.
func (h *histogram) quantile(part float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	rest := int64(part * float64(h.n))
	for i, n := range h.counts {
		if rest < n {
			return top(i)
		}
		rest -= n
	}
	for i := slots - 1; ; i-- {
		if h.counts[i] > 0 {
			return top(i)
		}
	}
}

// most is the greatest.
func (h *histogram) most() time.Duration { return h.quantile(1) }
