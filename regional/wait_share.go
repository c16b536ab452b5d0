package regional

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of waiting for a share.
const (
	maxShareWaiters = DefaultConcurrent / 2  // calls of a node that wait: half of what it works on at once is left for others
	shareLookEvery  = 100 * time.Millisecond // another node of the region may have stored the top-up
	shareLastLook   = 10 * time.Millisecond  // before the deadline
)

// shareWaiter is one call of Decide that waits for a top-up. It holds no lock and no connection.
type shareWaiter struct {
	units map[string]int64 // that it lacks, by budget
	topUp Signal
}

// moreMayCome says whether a top-up of the region's share can change a refusal.
func moreMayCome(r allocation.Reason) bool {
	return r == allocation.RegionShareSpent || r == allocation.OnlyProtectedLeft
}

// waitsFor is how long a refused request waits for a top-up; 0: not at all. It waits if all that refuses it is that this
// region's share is spent, in budgets that say so, and nothing is known that rules out that others have some.
func (n *Node) waitsFor(r allocation.Request, d *allocation.Decision) time.Duration {
	if !moreMayCome(d.Reason) || d.Never() || r.Op != allocation.Spend && r.Op != allocation.Reserve {
		return 0
	}
	wait, catalogue, elsewhere := time.Duration(0), n.catalogue.Load(), n.elsewhere()
	for i := range d.Budgets {
		b := &d.Budgets[i]
		if b.Reason == allocation.Allow {
			continue
		}
		known, ok := catalogue.Budget(b.Budget)
		e, told := elsewhere[b.Budget]
		if !ok || !moreMayCome(b.Reason) || told && e.Period == b.Period && e.Unallocated <= e.Kept && e.Spendable <= 0 {
			return 0
		}
		most := known.Budget.WaitForShare.Std()
		if most == 0 {
			return 0
		}
		if wait == 0 || most < wait {
			wait = most
		}
	}
	return wait
}

// awaitShares lets requests that were refused for their region's share wait for a top-up, and decides them again: within
// their deadline and their budgets' wait_for_share. What is not topped up in time keeps its refusal. It changes out.
func (n *Node) awaitShares(ctx context.Context, requests []allocation.Request, out []allocation.Decision, deadline time.Time) {
	var w *shareWaiter
	var began time.Time
	var late []int
	var until time.Time
	for i := range out {
		wait := n.waitsFor(requests[i], &out[i])
		if wait == 0 {
			continue
		}
		if w == nil {
			w, began = &shareWaiter{units: map[string]int64{}}, n.now()
		}
		if end := began.Add(wait); until.IsZero() || end.Before(until) {
			until = end
		}
		late = append(late, i)
		w.add(&out[i])
	}
	if len(late) == 0 {
		return
	}
	if last := deadline.Add(-min(shareLastLook, deadline.Sub(began)/5)); last.Before(until) {
		until = last
	}
	if !n.join(w) {
		return // too many wait already
	}
	defer n.leave(w)
	for len(late) > 0 && ctx.Err() == nil {
		left := until.Sub(n.now())
		if left <= 0 {
			return
		}
		bounded, cancel := n.cfg.Runtime.WithTimeout(ctx, min(left, shareLookEvery))
		w.topUp.Wait(bounded)
		cancel()
		late = n.lookAgain(ctx, requests, out, late, deadline)
	}
}

// lookAgain decides once more what waits, and returns what still does.
func (n *Node) lookAgain(ctx context.Context, requests []allocation.Request, out []allocation.Decision, late []int, deadline time.Time) (still []int) {
	again := make([]allocation.Request, len(late))
	for k, i := range late {
		again[k] = requests[i]
	}
	for k, d := range n.decideOnce(ctx, again, deadline, true) {
		i := late[k]
		switch d.Reason {
		case allocation.Overloaded, allocation.DatabaseUnavailable: // this look was too late; the owner's refusal stands
			still = append(still, i)
		case allocation.RegionShareSpent, allocation.OnlyProtectedLeft:
			out[i] = d
			still = append(still, i)
		default:
			out[i] = d
		}
	}
	return still
}

func (w *shareWaiter) add(d *allocation.Decision) {
	for i := range d.Budgets {
		if b := &d.Budgets[i]; moreMayCome(b.Reason) {
			w.units[b.Budget] += b.Requested
		}
	}
}

// join enters a call among those that wait, and asks for it; false if too many do.
func (n *Node) join(w *shareWaiter) bool {
	w.topUp = n.cfg.Runtime.NewSignal()
	n.demand.mu.Lock()
	defer n.demand.mu.Unlock()
	if len(n.demand.waiting) >= maxShareWaiters {
		return false
	}
	n.demand.waiting = append(n.demand.waiting, w)
	return true
}

func (n *Node) leave(w *shareWaiter) {
	n.demand.mu.Lock()
	defer n.demand.mu.Unlock()
	n.demand.waiting = slices.DeleteFunc(n.demand.waiting, func(o *shareWaiter) bool { return o == w })
}

// topUp lets those that wait look again: a grant was stored.
func (s *demandState) topUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiting {
		w.topUp.Notify()
	}
}
