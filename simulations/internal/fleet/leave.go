package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/ownertwin"
)

// A region that leaves: it is drained, what cannot be asked back is written off, and it is removed. Its nodes are not stopped,
// as they should be, and its name is registered again, while its old database calls on.

// drawLeaving lets the person of some runs take the last region out, again and again. That is kept apart from handovers: an
// owner that was stopped for one, and whose region is removed then, cannot be told to go on.
func (p *plan) drawLeaving(r *rand.Rand) {
	p.leaves = r.IntN(2) == 0 && p.acts > 0 && p.gone == 0 && p.handovers == 0
}

// leaving is the region that leaves; nil: none does.
func (f *fleet) leaving() *region {
	if !f.plan.leaves {
		return nil
	}
	return f.regions[len(f.regions)-1]
}

// unname leaves the region that leaves out of all allocations, which are changed before a region is removed. What it holds is
// of policy demand, which names no region, and of templates.
func (p *plan) unname() {
	if !p.leaves {
		return
	}
	last, rest := &p.regions[len(p.regions)-1], p.regions[0].name
	last.late = false
	for i := range p.budgets {
		b := &p.budgets[i]
		if b.Name == "changing/short" {
			b.Allocation = allocation.Policy{Policy: allocation.PolicyDemand}
		}
		a := &b.Allocation
		for _, parts := range []map[string]int64{a.Weights, a.Min, a.Max} {
			delete(parts, last.name)
		}
		if a.Policy == allocation.PolicyFixed && !slices.ContainsFunc(p.regions, func(r regionPlan) bool { return a.Weights[r.name] > 0 }) {
			a.Weights[rest] = 1
		}
		if a.Region == last.name {
			a.Region = rest
		}
	}
}

// leave does the next step.
func (a *acts) leave(ctx context.Context, r *region) {
	path, d := "/v1/regions/"+r.name, a.fleet.check.members[r.name]
	switch {
	case d == nil:
	case d.Removed != nil:
		if a.random.IntN(2) == 0 && a.person.call(ctx, "POST", "/v1/regions", coordinator.RegisterRequest{Region: r.name}, "").status == http.StatusCreated {
			a.fleet.notes["removed regions that were registered again"]++
		}
	case !d.Draining:
		a.person.call(ctx, "POST", path+"/drain", nil, "")
	case a.random.IntN(2) == 0:
		a.writeOffAll(ctx, r)
	default:
		if a.person.call(ctx, "DELETE", path, coordinator.RemoveRequest{Reason: "drawn", By: "on-call"}, "").status == http.StatusOK {
			a.fleet.notes["regions that were removed"]++
		}
	}
}

// writeOffAll writes off all that is stranded in a region.
func (a *acts) writeOffAll(ctx context.Context, r *region) {
	var report coordinator.StrandedReport
	if reply := a.person.call(ctx, "GET", "/v1/stranded", nil, ""); reply.status != http.StatusOK || json.Unmarshal(reply.body, &report) != nil {
		return
	}
	for _, line := range report.Lines {
		if line.Region == r.name {
			a.writeOff(ctx, line)
		}
	}
}

// judgeRegion judges what a region's document becomes: a former incarnation stays known (invariant 8), or a message of it would
// pass for one of an incarnation of which etcd never heard.
func (c *checks) judgeRegion(before *coordinator.RegionDocument, d coordinator.RegionDocument) {
	if before == nil {
		return
	}
	if before.Confirmed {
		// One that lost its history is replaced, and remembered as former: what it was granted stays out.
		c.must(before.Incarnation == d.Incarnation || slices.Contains(d.Former, before.Incarnation), 5, "region %s was given incarnation %s while %s had not ended", d.Region, d.Incarnation, before.Incarnation)
	}
	if before.Incarnation == "" && len(d.Former) > len(before.Former) {
		c.damaged[d.Region] = true // an incarnation that etcd lost called: it is told to begin anew, whatever etcd goes back to after that
	}
	c.judgeReplaced(*before, d)
	if len(d.Former) < allocation.MaxFormer {
		for _, former := range before.Former {
			c.must(slices.Contains(d.Former, former), 8, "region %s had incarnation %s, and it is not known as a former one any more", d.Region, former)
		}
	}
	if d.Removed != nil && before.Removed == nil {
		c.judgeRemoval(*before)
	}
}

// judgeReplaced judges that an incarnation is only replaced where its database lost something, or went on as another one: what it
// holds is stranded by that, to the end of its periods. After one true loss a writer that left marks before it may find them gone under
// the next incarnation as well, which is dear, and safe.
func (c *checks) judgeReplaced(before, d coordinator.RegionDocument) {
	if !before.Confirmed || d.Incarnation == "" || d.Incarnation == before.Incarnation { // one that no call has named holds nothing
		return
	}
	db := c.databaseOf(d.Region)
	if db == nil || db.Incarnation() != before.Incarnation || db.Home() != before.Home || len(c.copies[d.Region]) > 0 {
		return
	}
	c.must(c.damaged[d.Region], 8, "region %s was given incarnation %s, and the database of %s has lost nothing", d.Region, d.Incarnation, before.Incarnation)
}

// judgeRemoval judges that a region leaves with nothing that anybody could miss (invariant 5): of each period that is not over
// it has spent what it holds, or that is written off. Templates hold instances, of which nobody knows all.
func (c *checks) judgeRemoval(d coordinator.RegionDocument) {
	c.departed[d.Incarnation] = true
	for ref, v := range c.ledgers {
		if v.closed || v.restored || v.doc.Template {
			continue
		}
		for i := range v.doc.Periods.Len() {
			p := v.doc.Periods.At(i)
			for _, a := range v.doc.EntryAt(i).Allocations {
				if p.End <= c.latest || a.Region != d.Region || p.Start < c.acts.through[writtenOff{ref.Budget, a.Holder}] {
					continue
				}
				spent := c.spentBy(ref, allocation.UsageKey{Budget: ref.Budget, Period: p.Start, Class: a.Class}, a.Holder)
				c.must(a.Held() <= spent, 5, "%s is removed, and incarnation %s of it holds %d of %s, period %s, of which it spent %d, and nobody wrote that off",
					d.Region, a.Incarnation, a.Held(), ref.Budget, p.Start, spent)
			}
		}
	}
}

// spentKey is one holder's part of a period.
type spentKey struct {
	allocation.Holder
	ref allocation.ShareRef
	allocation.UsageKey
}

// noteSpent remembers what an incarnation spends: an owner that starts over counts anew, in the same rows. What it still
// reserves then is nothing that it spent: that may be stranded, and is to be written off.
func (c *checks) noteSpent(r *region, x *ownertwin.Commit) {
	if x.StartsOver {
		return
	}
	for _, u := range x.Usage {
		k := spentKey{allocation.Holder{Region: r.name, Incarnation: x.Incarnation}, allocation.ShareRef{Budget: u.After.Budget, Term: u.After.Term}, u.After.UsageKey}
		c.spent[k] = max(c.spent[k], u.After.Spent)
	}
}

// spentBy is what a holder spent of a period: by its own row, or, where its database has another incarnation by now or is
// gone, as much as it ever did. It has stated that before.
func (c *checks) spentBy(ref allocation.ShareRef, k allocation.UsageKey, h allocation.Holder) int64 {
	db := c.databaseOf(h.Region)
	if db == nil || db.Incarnation() != h.Incarnation {
		return c.spent[spentKey{h, ref, k}]
	}
	u, _ := db.Row(ref, k)
	return u.Spent
}

// hasLeft says whether an incarnation was the present one of a region when that was removed: until its owner hears of that, it
// goes on with what it holds.
func (c *checks) hasLeft(x *ownertwin.Commit) bool { return c.departed[x.Incarnation] }

// registerAgain registers a region that was removed.
func (o *operator) registerAgain(ctx context.Context, r *region) {
	reply := o.until(ctx, "POST", "/v1/regions", coordinator.RegisterRequest{Region: r.name})
	o.fleet.w.Trace("register", fmt.Sprint(r.name, " again: ", reply.status))
}
