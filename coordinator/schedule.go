package coordinator

import (
	"container/heap"
	"slices"
)

// schedule knows when something is due for each of very many things, and finds those that are due without a look at the
// others. What is due stays so until it is set to a later time or dropped: looking changes nothing, so that what cannot be
// done now is found again.
type schedule[K comparable] struct {
	heap  scheduleHeap[K]
	where map[K]*scheduled[K]
}

type scheduled[K comparable] struct {
	key   K
	at    int64
	index int // in the heap
}

func newSchedule[K comparable]() schedule[K] { return schedule[K]{where: map[K]*scheduled[K]{}} }

// set says when something is due, whatever was said before.
func (s *schedule[K]) set(key K, at int64) {
	if e := s.where[key]; e != nil {
		if e.at != at {
			e.at = at
			heap.Fix(&s.heap, e.index)
		}
		return
	}
	e := &scheduled[K]{key: key, at: at}
	s.where[key] = e
	heap.Push(&s.heap, e)
}

// add is set for what is not known yet.
func (s *schedule[K]) add(key K, at int64) {
	if s.where[key] == nil {
		s.set(key, at)
	}
}

func (s *schedule[K]) drop(key K) {
	if e := s.where[key]; e != nil {
		heap.Remove(&s.heap, e.index)
		delete(s.where, key)
	}
}

// due is all that is due by now, in the order that compare gives.
func (s *schedule[K]) due(now int64, compare func(a, b K) int) (due []K) {
	// No entry of a heap is due before the one above it.
	open := []int{0}
	for len(open) > 0 {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		if i < len(s.heap) && s.heap[i].at <= now {
			due = append(due, s.heap[i].key)
			open = append(open, 2*i+1, 2*i+2)
		}
	}
	slices.SortFunc(due, compare)
	return due
}

// take is due for no more than so many, which it drops: the earliest ones.
func (s *schedule[K]) take(now int64, most int) (taken []K) {
	for len(taken) < most && len(s.heap) > 0 && s.heap[0].at <= now {
		taken = append(taken, s.heap[0].key)
		s.drop(s.heap[0].key)
	}
	return taken
}

// scheduleHeap is a heap.Interface.
type scheduleHeap[K comparable] []*scheduled[K]

func (h scheduleHeap[K]) Len() int           { return len(h) }
func (h scheduleHeap[K]) Less(i, j int) bool { return h[i].at < h[j].at }
func (h scheduleHeap[K]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *scheduleHeap[K]) Push(x any) {
	e := x.(*scheduled[K])
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *scheduleHeap[K]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
