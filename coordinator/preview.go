package coordinator

import (
	"fmt"
	"slices"

	"tranche/allocation"
)

// Preview says what a change of a budget does in its running period, before it is made. A limit that is lowered takes
// nothing from an owner: until a region hears of it, and for good while it cannot be asked, it may spend all that it holds.
// So the most that may still be spent in the period is what is out, or the limit, whichever is more.
type Preview struct {
	Period        allocation.Period `json:"period"`
	Limit         int64             `json:"limit"`                  // as it is
	NewLimit      int64             `json:"new_limit"`              // as it will be
	Out           int64             `json:"out"`                    // granted and not returned
	Overcommitted int64             `json:"overcommitted"`          // how far the new limit lies below that, until returns arrive
	Largest       int64             `json:"largest_spend"`          // of the whole period, whatever happens
	PerInstance   bool              `json:"per_instance,omitempty"` // of a template: each figure is of one instance, of which nobody knows here what is spent
	Regions       []PreviewRegion   `json:"regions"`
	Notes         []string          `json:"notes,omitempty"`
}

// PreviewRegion is one incarnation's part: as last stated, and as it will be.
type PreviewRegion struct {
	allocation.Holder
	InContact bool  `json:"in_contact"`
	Held      int64 `json:"held"`
	Spent     int64 `json:"spent"`
	Reserved  int64 `json:"reserved"`
	MaySpend  int64 `json:"may_still_spend"` // of what it holds, beyond what is spent and reserved
	Target    int64 `json:"target"`          // what it will hold once all is done
}

// preview looks at the running period of a plan; nil if none is open.
func (s *Service) preview(plan budgetPlan) *Preview {
	now := s.instant()
	for _, w := range plan.ledgers {
		i, running := w.after.Periods.Find(now)
		if w.before == nil || !running {
			continue
		}
		before, after := w.before.value.EntryAt(i), w.after.EntryAt(i)
		p := &Preview{Period: w.after.Periods.At(i), Limit: before.Limit, NewLimit: after.Limit, Out: w.before.value.Out(i), PerInstance: w.after.Template, Regions: []PreviewRegion{}}
		for _, h := range takePart(w.before.value, after) {
			st, _ := s.lastStatement(h, refOf(w.before.value))
			left := w.before.value.RemainderAt(h, i, st, 0)
			r := PreviewRegion{
				Holder: h, InContact: s.canBeAsked(h, s.now()), Held: left.Granted - left.Returned, Spent: left.Spent, Reserved: left.Reserved, MaySpend: left.Stranded,
			}
			if p.PerInstance { // what is stated is the sum over all instances: any of them may have spent nothing yet
				r.Spent, r.Reserved, r.MaySpend = 0, 0, r.Held
			}
			for _, a := range after.Allocations {
				if a.Holder == h {
					r.Target += a.Target
				}
			}
			p.Regions = append(p.Regions, r)
			if excess := r.Held - r.Target; excess > 0 && !r.InContact {
				p.Notes = append(p.Notes, fmt.Sprintf("region %s cannot be asked: it may spend %d more%s%s, and returns what lies above %d only when it is back", h.Region, r.MaySpend, ofEach(p.PerInstance), s.andLater(h, plan, p.Period.End), r.Target))
			} else if excess < 0 && !r.InContact {
				p.Notes = append(p.Notes, fmt.Sprintf("region %s cannot be asked: the %d more%s that it is to hold are of no use until it is back, and nobody else may spend them meanwhile", h.Region, -excess, ofEach(p.PerInstance)))
			}
		}
		p.Overcommitted, p.Largest = max(0, p.Out-p.NewLimit), max(p.Out, p.NewLimit)
		return p
	}
	return nil
}

// takePart are the incarnations that a ledger ever granted to, and those that it will.
func takePart(before allocation.Ledger, after allocation.Entry) []allocation.Holder {
	list := holders(before)
	for _, a := range after.Allocations {
		if a.Target > 0 && !slices.Contains(list, a.Holder) {
			list = append(list, a.Holder)
		}
	}
	return list
}

func ofEach(instance bool) string {
	if instance {
		return " of each instance"
	}
	return ""
}

// andLater says that a region that cannot be asked holds a part of later periods, too: a limit that is lowered, also to 0, takes
// none of them from it.
func (s *Service) andLater(h allocation.Holder, plan budgetPlan, end allocation.Instant) string {
	through := end
	for _, w := range plan.ledgers {
		if w.before != nil && names(w.before.value, h) {
			through = max(through, w.before.value.Periods.End())
		}
	}
	if through == end {
		return ""
	}
	return fmt.Sprintf(", and what it holds of each later period until %s", through)
}
