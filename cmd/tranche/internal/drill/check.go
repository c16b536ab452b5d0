package drill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/books"
	"tranche/coordinator"
)

// ErrUnfit is a drill that must not, or cannot, begin: nothing was changed.
var ErrUnfit = errors.New("the drill does not begin")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnfit, fmt.Errorf(format, args...))
}

// target is the budget that the burst exhausts.
type target struct {
	budget  allocation.Budget // as it was declared
	version int64
	shares  map[string]int64 // by region, of one period
	until   allocation.Instant
	before  int64 // spent in the period before the drill
	limit   int64 // as the drill left it
}

// check finds out whether the tenant is synthetic, what to exhaust, and where; it changes nothing.
func (d *drill) check(ctx context.Context) error {
	if d.Tenant == "" || d.Capability == "" || d.Essential == "" || d.Capability == d.Essential {
		return unfit("name a synthetic tenant, an expendable capability, and another one that is essential")
	}
	expendable, err := d.charged(ctx, d.Capability)
	if err != nil {
		return err
	}
	essential, err := d.charged(ctx, d.Essential)
	if err != nil {
		return err
	}
	if err := d.choose(expendable, essential); err != nil {
		return err
	}
	if err := d.findNodes(ctx); err != nil {
		return err
	}
	return d.room(ctx, essential)
}

// charged are the budgets that a request of the tenant and a capability is charged to. All of them must be synthetic.
func (d *drill) charged(ctx context.Context, capability string) ([]coordinator.BudgetAnswer, error) {
	labels := map[string]string{"tenant": d.Tenant, "capability": capability}
	var hits coordinator.MatchAnswer
	call := api.Call{Method: http.MethodPost, Path: "/v1/budgets/match", Body: map[string]any{"labels": labels}, Reads: true}
	if _, err := d.Coordinator.Do(ctx, call, &hits); err != nil {
		return nil, err
	}
	if len(hits.Problems) > 0 {
		return nil, unfit("requests of tenant %s for %s: %s", d.Tenant, capability, strings.Join(hits.Problems, "; "))
	}
	if len(hits.Budgets) == 0 {
		return nil, unfit("no budget applies to tenant %s and capability %s; declare synthetic ones: `tranche drill budgets` shows how", d.Tenant, capability)
	}
	var list []coordinator.BudgetAnswer
	for _, h := range hits.Budgets {
		var b coordinator.BudgetAnswer
		if _, err := d.Coordinator.Do(ctx, api.Call{Method: http.MethodGet, Path: budgetPath(h.Budget)}, &b); err != nil {
			return nil, err
		}
		if !b.Budget.Synthetic {
			return nil, unfit("tenant %s is not synthetic: its requests for %s are charged to %s, which is not marked `synthetic: true`; a drill would spend what is somebody's",
				d.Tenant, capability, h.Budget)
		}
		list = append(list, b)
	}
	return list, nil
}

func budgetPath(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return "/v1/budgets/" + strings.Join(parts, "/")
}

// choose picks the budget to exhaust: the one of the expendable capability that has a ladder and protected permits.
func (d *drill) choose(expendable, essential []coordinator.BudgetAnswer) error {
	var fit []coordinator.BudgetAnswer
	for _, b := range expendable {
		shared := slices.ContainsFunc(essential, func(e coordinator.BudgetAnswer) bool { return e.Budget.Name == b.Budget.Name })
		if !shared && !b.Budget.IsTemplate() && b.Budget.Protected > 0 && b.Budget.Ladder != nil && b.Budget.Unit == "requests" {
			fit = append(fit, b)
		}
	}
	if len(fit) != 1 {
		return unfit("%d budgets of capability %s count requests and have a ladder and protected permits; it takes exactly one: `tranche drill budgets` shows how to declare it", len(fit), d.Capability)
	}
	b := fit[0]
	limit := b.Budget.LimitOrZero()
	switch {
	case limit < MinLimit || limit > MaxLimit:
		return unfit("the limit of %s is %d; a drill exhausts it, so it is to be %d to %d", b.Budget.Name, limit, MinLimit, MaxLimit)
	case b.Budget.Enforcement != allocation.Enforce && b.Budget.Enforcement != "":
		return unfit("%s is not enforced (%s): nothing would be refused", b.Budget.Name, b.Budget.Enforcement)
	}
	d.target = target{budget: b.Budget, version: b.Version, shares: b.Permits, limit: limit}
	d.record.Budget = BudgetRecord{Budget: b.Budget.Name, Limit: limit, Protected: b.Budget.Protected}
	return nil
}

// findNodes finds every node of every region that is to be asked.
func (d *drill) findNodes(ctx context.Context) error {
	var regions coordinator.RegionsList
	if _, err := d.Coordinator.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &regions); err != nil {
		return err
	}
	found := books.NodesOf(regions.Regions, nil)
	for _, r := range regions.Regions {
		if !r.InContact {
			return unfit("region %s is not in contact: nothing could be promised of it; drill when it is back", r.Region)
		}
		addresses := d.Nodes[r.Region]
		if len(addresses) == 0 {
			addresses = found[r.Region]
		}
		if len(addresses) == 0 {
			return unfit("no node of region %s says where it is; give --node %s=URL", r.Region, r.Region)
		}
		for i, address := range addresses {
			n := &node{name: fmt.Sprintf("%s %d", r.Region, i+1), region: r.Region, address: address}
			for _, seen := range r.Nodes {
				if seen.URL == address {
					n.name = seen.Node
				}
			}
			d.nodes = append(d.nodes, n)
			d.record.Nodes = append(d.record.Nodes, NodeRecord{Node: n.name, Region: r.Region, URL: address})
		}
	}
	for _, region := range slices.Sorted(maps.Keys(d.Nodes)) {
		if !slices.ContainsFunc(d.nodes, func(n *node) bool { return n.region == region }) {
			return unfit("there is no region %s; correct --node", region)
		}
	}
	return nil
}

// room is whether the running period has enough left, in time and in permits.
func (d *drill) room(ctx context.Context, essential []coordinator.BudgetAnswer) error {
	t, err := d.running(ctx, d.target.budget.Name)
	if err != nil {
		return err
	}
	spent := spentOf(t)
	if d.target.until = t.Period.End; t.Period.End != allocation.Never && time.Until(t.Period.End.Time()) < periodLeft {
		return unfit("the running period of %s ends at %s, and a drill takes up to %s; begin after that", d.target.budget.Name, t.Period.End, periodLeft)
	}
	if spent*4 > d.target.limit {
		return unfit("%d of the %d permits of %s are used in this period; the next one begins at %s", spent, d.target.limit, d.target.budget.Name, t.Period.End)
	}
	d.target.before = spent
	for _, b := range essential {
		if b.Budget.IsTemplate() {
			continue
		}
		t, err := d.running(ctx, b.Budget.Name)
		if err != nil {
			return err
		}
		if left := t.Limit - spentOf(t); left < essentialMost {
			return unfit("%s has %d permits left, and the essential traffic of a drill takes up to %d", b.Budget.Name, left, essentialMost)
		}
	}
	return nil
}

// running is how the running period of a budget stands.
func (d *drill) running(ctx context.Context, budget string) (coordinator.TermShares, error) {
	var a coordinator.SharesAnswer
	call := api.Call{Method: http.MethodGet, Path: "/v1/shares" + strings.TrimPrefix(budgetPath(budget), "/v1/budgets")}
	if _, err := d.Coordinator.Do(ctx, call, &a); err != nil {
		return coordinator.TermShares{}, err
	}
	for _, t := range a.Terms {
		if t.Running {
			return t, nil
		}
	}
	return coordinator.TermShares{}, unfit("no period of %s runs now", budget)
}

func spentOf(t coordinator.TermShares) (sum int64) {
	for _, r := range t.Regions {
		sum += r.Spent + r.Reserved
	}
	return sum
}
