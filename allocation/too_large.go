package allocation

import "fmt"

// A share of policy fixed stays what it is until somebody changes it. A request that costs more than all of it is refused by the
// same counter as one that came too late, but no wait helps it: of 100, split 70 to 30, one of 50 passes in the first region, and
// never in the second. It is told apart by Retry, which is 0 then.

// noteTooLarge enters into a refusal that the request can never pass in this region, while the split is what it is.
func (l *Locked) noteTooLarge(line Line, b *BudgetDecision, d *Decision) {
	if b.Reason != RegionShareSpent || line.Budget.Allocation.Policy != PolicyFixed || line.Cost <= b.Share {
		return
	}
	// What is not granted yet, to a new region or after a raise, comes by itself.
	due := SplitFixed(b.Limit-line.Budget.Kept(b.Limit), line.Budget.Allocation.Weights)[l.Catalogue.Region]
	if line.Cost <= due {
		return
	}
	d.Retry = 0
	d.Detail = fmt.Sprintf("this region's whole share of %s is %d %s of each period, of %d in all, and the request asks for %d: it can never pass here; ask for less, in a region with a larger share, or let an operator move more here with tranche rebalance",
		line.Key(), max(b.Share, due), b.Unit, b.Limit, b.Requested)
}

// Never says whether the same request can never pass in this region, though its reason is one that passes for others: its cost
// is above the region's whole share, or its period has no end.
func (d Decision) Never() bool {
	switch d.Reason {
	case RegionShareSpent, CeilingReached:
		return d.Retry == 0
	}
	return AnswerTo(d.Reason).Retry == RetryNever
}
