package regional

import (
	"context"
	"errors"
	"fmt"

	"tranche/allocation"
)

// freeze is how far this node has stated what its owner holds, for a coordinator whose history is frozen: whole shards, in
// order, each share with Held. When none is left every call says All. Whatever another node has stated before counts too,
// but nobody here knows of it: a node that gets the turn begins anew.
type freeze struct {
	under       allocation.History // that asks for it; zero: nobody does
	incarnation string
	next        int // the first shard that was not stated, and acknowledged, under it
	stating     int // what next becomes when the call is answered
}

// statements makes the call, as the coordinator last asked for it.
func (k *keeper) statements(ctx context.Context, w Writer) (allocation.SyncCall, error) {
	f := &k.freeze
	f.stating = f.next
	if f.under == (allocation.History{}) || f.next >= allocation.Shards {
		call, err := k.changes(ctx, w)
		call.All = err == nil && f.asks(call) && !k.owesDocuments(call)
		return call, err
	}
	call, next, err := k.node.owner.StateHeld(ctx, w, f.next)
	if err != nil {
		return call, err
	}
	f.stating = next
	call.All = f.asks(call) && next >= allocation.Shards && !k.owesDocuments(call)
	return call, nil
}

// owesDocuments says whether the coordinator is still to be told of documents. A freeze does not end before: a region that
// knows nothing would take a key that was revoked.
func (k *keeper) owesDocuments(call allocation.SyncCall) bool {
	return k.takesDocuments && len(call.Documents) > 0
}

// changes states what changed since the statements that the coordinator has. Another node may have stored a new history
// meanwhile: what was acknowledged under the one before it says nothing any more.
func (k *keeper) changes(ctx context.Context, w Writer) (allocation.SyncCall, error) {
	for {
		call, err := k.node.owner.Statements(ctx, w, k.acknowledged)
		if err != nil || call.History == k.under {
			return call, err
		}
		fresh := len(k.acknowledged) == 0
		k.under, k.acknowledged = call.History, map[int]int64{}
		if fresh {
			return call, nil
		}
	}
}

// asks says whether a call is made under the history, and of the incarnation, that is asked for.
func (f *freeze) asks(call allocation.SyncCall) bool {
	return f.under != (allocation.History{}) && f.under == call.History && f.incarnation == call.Incarnation
}

// heard goes on by an answer. It says whether there is more to state at once.
func (f *freeze) heard(call allocation.SyncCall, answer allocation.SyncAnswer) (more bool) {
	switch {
	case !answer.Frozen:
		*f = freeze{}
	case f.under == answer.History && f.incarnation == call.Incarnation && f.asks(call):
		if answer.Restated {
			f.next = f.stating
		}
	default:
		*f = freeze{under: answer.History, incarnation: call.Incarnation}
	}
	return answer.Frozen && answer.History.Number >= call.History.Number && f.next < allocation.Shards
}

// errNoNewLife says that the coordinator gave no new incarnation, and did not say why.
var errNoNewLife = errors.New("the coordinator gave out no new incarnation")

// startOver asks for a new incarnation, for an owner that lost history or was sealed. The call states nothing, since nothing
// that this database says counts; its marks only tell the call from one that is late.
func (k *keeper) startOver(ctx context.Context) (again bool, err error) {
	n := k.node
	loaded, err := n.owner.Load(ctx, n.catalogue.Load().Number)
	if err != nil {
		return false, fmt.Errorf("read the owner's row: %w", err)
	}
	if !loaded.Lost && loaded.Stopped != allocation.Sealed {
		n.reload(ctx)
		return true, nil // another node was faster
	}
	look, err := k.slot.look(ctx)
	if err != nil {
		return false, k.broken(ctx, err)
	}
	call := allocation.SyncCall{
		History: loaded.History, Incarnation: loaded.Incarnation, Home: loaded.Home, Clock: n.clock.now(), ClosedBefore: loaded.ClosedBefore,
		Config: loaded.Config, Stopped: string(loaded.Stopped), Lost: true,
	}
	for _, m := range look.Marks {
		call.Marks = append(call.Marks, m.Mark)
	}
	k.introduce(&call, true)
	answer, err := k.call(ctx, call)
	if err != nil {
		return false, err
	}
	over, err := n.owner.StartOver(ctx, call, answer)
	switch {
	case err != nil:
		return false, err
	case over.Incarnation != "":
		n.startedOver(call, over)
		k.acknowledged, k.freeze = map[int]int64{}, freeze{}
	case answer.Refusal != "":
		return false, fmt.Errorf("the coordinator gives out no new incarnation (%s): %s", answer.Refusal, answer.Detail)
	case answer.History == call.History:
		return false, errNoNewLife
	}
	n.reload(ctx)
	return true, nil
}

func (n *Node) startedOver(call allocation.SyncCall, over StartedOver) {
	n.metrics.startedOver.Inc()
	why := "database lost history"
	if call.Stopped == string(allocation.Sealed) {
		why = "the former incarnation was sealed"
	}
	n.log.Error(why+": the new incarnation holds nothing; what the former one held stays stranded unless a seal proves it",
		"incarnation", over.Incarnation, "former", call.Incarnation, "stranded_now", over.Stranded, "reservations_spent", over.Open)
}

// over says whether the owner is to start over, as last read.
func (s *syncState) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded.Lost || s.loaded.Stopped == allocation.Sealed
}
