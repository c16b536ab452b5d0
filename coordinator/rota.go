package coordinator

import "slices"

// rota holds things that are looked at again and again, each in its turn: however many there are, one look at some of them costs
// the same, and none holds up another.
type rota[K comparable] struct {
	waiting []K // the next one first
	in      map[K]bool
}

func newRota[K comparable]() rota[K] { return rota[K]{in: map[K]bool{}} }

// add adds what is not there yet, as the last one.
func (r *rota[K]) add(keys ...K) {
	for _, k := range keys {
		if !r.in[k] {
			r.in[k] = true
			r.waiting = append(r.waiting, k)
		}
	}
}

// next are those whose turn it is, at most so many, in the order that compare gives. Those that are to stay come last then, the
// others leave.
func (r *rota[K]) next(most int, stays func(K) bool, compare func(a, b K) int) []K {
	n := min(most, len(r.waiting))
	taken := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	taken = slices.DeleteFunc(taken, func(k K) bool {
		if stays(k) {
			return false
		}
		delete(r.in, k)
		return true
	})
	r.waiting = append(r.waiting, taken...)
	slices.SortFunc(taken, compare)
	return taken
}
