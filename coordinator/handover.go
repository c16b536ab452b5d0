package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// Handover is a planned move of a region's owner to another database, while it is under way. The owner stops first, durably;
// then a copy is compared with it; then the home moves. The incarnation stays the same: nothing is lost.
type Handover struct {
	ID     string    `json:"id"` // the owner is stopped under this name
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// The steps that the coordinator records. The owner's own stand in its database.
const (
	HandoverBegin = "begin" // before the owner is stopped
	HandoverEnd   = "end"   // called off: the owner has resumed
	HandoverMove  = "move"  // the owner never admits again, and its copy, which lacks nothing, is the home from now on
)

// maxLeft is how many homes that were handed over are remembered. A call is not late for longer than a few handovers take.
const maxLeft = 8

// HandoverRequest is one step; each may be repeated. A move needs the rest: what was read of the copy.
type HandoverRequest struct {
	Reason      string            `json:"reason"`
	By          string            `json:"by"` // the person who answers for it
	Step        string            `json:"step"`
	ID          string            `json:"id,omitempty"`          // with begin: of an owner that is stopped already
	Incarnation string            `json:"incarnation,omitempty"` // with end: of a database that is not the region's any more
	From        allocation.Home   `json:"from,omitzero"`
	To          allocation.Home   `json:"to,omitzero"`
	Marks       []allocation.Mark `json:"marks,omitempty"` // that the copy holds
	Ended       []string          `json:"ended,omitempty"`
}

// handOver records one step of a handover.
func (s *Service) handOver(ctx context.Context, who actor, name string, q HandoverRequest) (RegionAnswer, error) {
	if err := checkReason(q.Reason, q.By, false); err != nil {
		return RegionAnswer{}, err
	}
	who.reason = q.Reason
	steps := map[string]func(r *region, q HandoverRequest) (RegionDocument, error){
		HandoverBegin: s.beginHandover, HandoverEnd: endHandover, HandoverMove: moveHandover,
	}
	step := steps[q.Step]
	if step == nil {
		return RegionAnswer{}, invalid("step", fmt.Sprintf("is %.70q", q.Step), "use begin, end or move")
	}
	if err := s.refresh(ctx); err != nil {
		return RegionAnswer{}, err
	}
	err := s.act(ctx, func() (Change, error) {
		r := s.state.regions[name]
		if r != nil && q.Step == HandoverEnd && s.state.isFormer(allocation.Holder{Region: name, Incarnation: q.Incarnation}) {
			return s.leaveBehind(who, r, q), nil
		}
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", name)
		}
		next, err := step(r, q)
		if err != nil || next.Handover == r.doc.value.Handover && next.Home == r.doc.value.Home {
			return Change{}, err
		}
		about := map[string]any{"reason": q.Reason, "by": q.By, "id": q.ID, "incarnation": r.doc.value.Incarnation}
		if q.Step == HandoverMove {
			about["home"] = q.To
		}
		change := Change{
			Reads: []Item{r.doc.item},
			Puts:  []Item{put(regionKey(name), next), s.auditLine(who, "region.handover-"+q.Step, name, r.doc.value.Home, about)},
		}
		s.state.onStanding(&change)
		return change, nil
	})
	if err != nil {
		return RegionAnswer{}, err
	}
	s.log.Warn("region is handed over to another database", "region", name, "step", q.Step, "by", q.By)
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if r := s.state.regions[name]; r != nil && r.doc != nil {
		return s.answerRegion(r), nil
	}
	return RegionAnswer{Region: name}, nil // it is removed
}

// leaveBehind records who lets a database go on that was stopped, and not handed over, when the region was removed or started
// anew: of the region nothing changes. What it holds is its own still, and stays out; with its next call it begins anew. A
// stopped owner makes no call, so without this its database could never be of use again.
func (s *Service) leaveBehind(who actor, r *region, q HandoverRequest) Change {
	d := cmp.Or(r.doc, r.tomb)
	about := map[string]any{"reason": q.Reason, "by": q.By, "id": q.ID, "incarnation": q.Incarnation}
	change := Change{Reads: []Item{d.item}, Puts: []Item{s.auditLine(who, "region.handover-"+q.Step, r.name, nil, about)}}
	s.state.onStanding(&change)
	return change
}

func (s *Service) beginHandover(r *region, q HandoverRequest) (RegionDocument, error) {
	d := r.doc.value
	switch {
	case d.Incarnation == "" || !d.Confirmed:
		return d, refused("", "region %s has no incarnation that could move", r.name)
	case d.Handover != nil && (q.ID == "" || q.ID == d.Handover.ID):
		return d, nil
	}
	id := q.ID
	if id == "" {
		id = s.random.hex(8)
	}
	d.Handover = &Handover{ID: id, Since: s.now().UTC(), By: q.By, Reason: q.Reason}
	return d, nil
}

func endHandover(r *region, q HandoverRequest) (RegionDocument, error) {
	d := r.doc.value
	if d.Handover != nil && q.ID != d.Handover.ID && q.ID != "" {
		return d, refused("", "region %s is being handed over as %s, not %s", r.name, d.Handover.ID, q.ID)
	}
	d.Handover = nil
	return d, nil
}

// moveHandover records the new home. The owner was compared with its copy; that the copy holds every mark that was stated is
// checked once more, against what the region itself has said.
func moveHandover(r *region, q HandoverRequest) (RegionDocument, error) {
	d := r.doc.value
	switch {
	case d.Handover == nil && d.Home == q.To && d.Incarnation == q.Incarnation:
		return d, nil // it has moved
	case d.Handover == nil || d.Handover.ID != q.ID:
		return d, refused("run `tranche regions handover "+r.name+"` again", "region %s is not being handed over as %s", r.name, orNone(q.ID))
	case d.Incarnation != q.Incarnation:
		return d, refused("", "the incarnation of region %s is %s, and the copy holds %s", r.name, orNone(d.Incarnation), orNone(q.Incarnation))
	case d.Home != q.From:
		return d, refused("", "the recorded home of region %s is %s, not %s: it has moved meanwhile", r.name, homeText(d.Home), homeText(q.From))
	case q.To == d.Home || q.To == allocation.Home{}:
		return d, invalid("to", "is not another database", "name the one that takes over")
	}
	if r.contact.Incarnation == d.Incarnation {
		if lost := allocation.LostMarks(r.contact.Marks, q.Marks, q.Ended); len(lost) > 0 {
			return d, refused("", "the copy does not hold the mark %d of writer %s, which the region stated before: it lacks commits", lost[0].Count, lost[0].Writer)
		}
	}
	d.Left = append(slices.DeleteFunc(slices.Clone(d.Left), func(h allocation.Home) bool { return h == q.To }), d.Home)
	d.Left = d.Left[max(0, len(d.Left)-maxLeft):]
	d, _ = d.with(d.residence().MoveTo(q.To)).clear()
	d.Handover = nil
	return d, nil
}

// lateFromLeft says whether a call that would make its database the home comes from one that was handed over. It admits
// nothing ever again, so the call was made before, and is late: the new one may not have called yet.
func (d RegionDocument) lateFromLeft(claim allocation.Claim, call allocation.SyncCall) bool {
	return claim == allocation.ClaimMove && slices.Contains(d.Left, call.Home)
}

func (h *Handover) text(region string) string {
	return fmt.Sprintf("region %s is being handed over to another database since %s, by %s, and admits nothing once its owner has stopped", region, h.Since.Format(time.RFC3339), h.By)
}

// errHandingOver refuses what would not fit a handover that is under way.
func errHandingOver(name string) error {
	return refused("end it first, or go on with it: `tranche regions handover "+name+"`", "%s", errBeingHandedOver.Error())
}

var errBeingHandedOver = errors.New("the region's owner is being handed over to another database")
