package coordinator

import (
	"slices"

	"tranche/allocation"
)

// queue holds shares that are to be sent, each once, in turn. Those taken go to the back and stay until they are removed:
// an answer may be lost, and only a statement proves that its shares were stored.
type queue struct {
	order []allocation.ShareRef // may hold refs that were removed
	in    map[allocation.ShareRef]bool
}

func newQueue() *queue { return &queue{in: map[allocation.ShareRef]bool{}} }

func (q *queue) push(ref allocation.ShareRef) {
	if !q.in[ref] {
		q.in[ref] = true
		q.order = append(q.order, ref)
	}
	if len(q.order) > 2*len(q.in)+100 {
		q.order = q.take(len(q.in))
	}
}

func (q *queue) remove(ref allocation.ShareRef) { delete(q.in, ref) }

func (q *queue) len() int { return len(q.in) }

// take returns up to n shares, those that waited longest since they were last taken.
func (q *queue) take(n int) []allocation.ShareRef {
	var taken []allocation.ShareRef
	seen := map[allocation.ShareRef]bool{}
	i := 0
	for ; i < len(q.order) && len(taken) < n; i++ {
		// A ref that was removed and pushed again stands here twice.
		if ref := q.order[i]; q.in[ref] && !seen[ref] {
			seen[ref] = true
			taken = append(taken, ref)
		}
	}
	q.order = append(slices.Clone(q.order[i:]), taken...)
	return taken
}
