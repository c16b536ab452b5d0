package world

// timer is something that is due: a task that goes on, or a call within the scheduler.
type timer struct {
	at    int64
	order uint64 // of being made: of two that are due at once, the older one comes first
	f     func()
	task  *task
	epoch uint64
	place int // in the heap; -1 when it has fired or was removed
}

// timers is a heap by time.
type timers struct {
	heap []*timer
	made uint64
}

func (q *timers) add(at int64, f func(), t *task, epoch uint64) *timer {
	q.made++
	x := &timer{at: at, order: q.made, f: f, task: t, epoch: epoch, place: len(q.heap)}
	q.heap = append(q.heap, x)
	q.up(x.place)
	return x
}

func (q *timers) next() (at int64, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *timers) pop() *timer {
	x := q.heap[0]
	q.remove(x)
	return x
}

// remove takes a timer away; one that has fired is not there any more.
func (q *timers) remove(x *timer) {
	if x == nil || x.place < 0 {
		return
	}
	i, last := x.place, len(q.heap)-1
	q.swap(i, last)
	q.heap[last] = nil
	q.heap = q.heap[:last]
	x.place = -1
	if i < last {
		q.down(i)
		q.up(i)
	}
}

func (q *timers) less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (q *timers) swap(i, j int) {
	q.heap[i], q.heap[j] = q.heap[j], q.heap[i]
	q.heap[i].place, q.heap[j].place = i, j
}

func (q *timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.swap(i, parent)
		i = parent
	}
}

func (q *timers) down(i int) {
	for {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child < len(q.heap) && q.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		q.swap(i, least)
		i = least
	}
}
