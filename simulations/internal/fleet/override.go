package fleet

import (
	"context"
	"encoding/json"
	"net/http"

	"tranche/allocation"
	"tranche/coordinator"
)

// override raises a budget for a few seconds, or ends an override that stands.
func (o *operator) override(ctx context.Context) {
	if o.raises.IntN(4) == 0 {
		o.endOverride(ctx)
		return
	}
	list := o.fleet.plan.budgets
	b := list[o.raises.IntN(len(list))]
	if b.steady || b.IsTemplate() {
		return
	}
	o.call(ctx, "POST", "/v1/overrides", coordinator.OverrideRequest{
		Budget: b.Name, Units: 1 + o.raises.Int64N(max(1, *b.Limit/2)), For: allocation.Duration(2 + o.raises.IntN(20)), Reason: "drawn", By: "operator",
	}, "")
}

func (o *operator) endOverride(ctx context.Context) {
	var list coordinator.OverridesList
	if r := o.call(ctx, "GET", "/v1/overrides", nil, ""); r.status != http.StatusOK || json.Unmarshal(r.body, &list) != nil {
		return
	}
	for _, x := range list.Overrides {
		if x.State == coordinator.OverrideActive {
			o.call(ctx, "POST", "/v1/overrides/"+x.ID+"/end", coordinator.EndOverrideRequest{Reason: "drawn", By: "operator"}, "")
			return
		}
	}
}

// judgeRaise judges a limit that a ledger raises for a period: no override reaches a period that begins at its end, or later.
func (c *checks) judgeRaise(ref allocation.ShareRef, next allocation.Ledger, period allocation.Instant, before, after int64) {
	v := c.budgets[ref.Budget]
	if v == nil || after <= before {
		return
	}
	for _, l := range v.limits[next.Version] {
		if l.override == nil || period < l.override.Until {
			return
		}
	}
	limit, _ := v.limitIn(next.Version, period, after)
	c.must(after <= limit, 2, "%s, period %s: the ledger's limit rises to %d, and the override of version %d is over: it is %d", ref.Budget, period, after, next.Version, limit)
}
