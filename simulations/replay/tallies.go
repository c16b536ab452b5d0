package replay

import (
	"fmt"

	"tranche/allocation"
)

// tallies are what is counted while the log goes by.
type tallies struct {
	by          []string
	requests    int64
	refused     int64
	from, until allocation.Instant
	reasons     map[string]int64
	regions     *tally
	priorities  *tally
	labels      map[string]*tally
	budgets     map[string]*budgetTally
	order       []string // of budgets
}

// budgetTally is one budget's part.
type budgetTally struct {
	allocation.Budget
	requests, admitted, refused int64 // requests that hit it; admitted; that it was the first to refuse
	units, refusedUnits         int64
	reasons                     map[string]int64
	periods, instances          *tally
	period                      allocation.Instant // running, of a budget that is no template
	demand, highest             int64
	highestAt                   allocation.Instant
	refusedPeriods              int64
	lastRefused                 allocation.Instant
}

func newTallies(policy []allocation.Budget, by []string) tallies {
	t := tallies{
		by: by, reasons: map[string]int64{}, regions: newTally(), priorities: newTally(), labels: map[string]*tally{},
		budgets: map[string]*budgetTally{},
	}
	for _, label := range by {
		t.labels[label] = newTally()
	}
	for _, b := range policy {
		t.budgets[b.Name] = &budgetTally{Budget: b, reasons: map[string]int64{}, periods: newTally(), instances: newTally()}
		t.order = append(t.order, b.Name)
	}
	return t
}

// enter counts one decision.
func (t *tallies) enter(q request, d allocation.Decision) {
	refused := !d.Admitted()
	t.requests++
	if refused {
		t.refused++
		t.reasons[string(d.Reason)]++
	}
	t.regions.add(q.Region, refused, 0)
	if q.Priority != "" {
		t.priorities.add(q.Priority, refused, 0)
	}
	for _, label := range t.by {
		if value := q.Labels[label]; value != "" {
			t.labels[label].add(value, refused, 0)
		}
	}
	blamed := false
	for i := range d.Budgets {
		b := &d.Budgets[i]
		first := refused && !blamed && b.Reason != allocation.Allow
		blamed = blamed || first
		t.budgets[b.Budget].enter(b, d.Admitted(), first)
	}
	if x := t.budgets[d.Blames]; refused && !blamed && x != nil { // found before any counter was looked at
		x.requests++
		x.refused++
		x.reasons[string(d.Reason)]++
	}
}

// enter counts a decision for one of its budgets; first says that this budget was the first to refuse it.
func (x *budgetTally) enter(b *allocation.BudgetDecision, admitted, first bool) {
	x.requests++
	if admitted {
		x.admitted++
		x.units += b.Charged
	}
	if first {
		x.refused++
		x.refusedUnits += b.Requested
		x.reasons[string(b.Reason)]++
	}
	name := b.Period.String()
	if first || x.periods.of[name] != nil {
		x.periods.add(name, first, b.Requested) // requests since its first refusal
	}
	if first && b.Period != x.lastRefused {
		x.lastRefused = b.Period
		x.refusedPeriods++
	}
	if b.Instance != "" {
		x.instances.add(b.Instance, first, b.Requested)
		return
	}
	if b.Period != x.period {
		x.period, x.demand = b.Period, 0
	}
	if x.demand += b.Requested; x.demand > x.highest {
		x.highest, x.highestAt = x.demand, b.Period
	}
}

// report makes the report of what was counted.
func (r *run) report() (Report, error) {
	if r.world == nil {
		return Report{}, fmt.Errorf("%s holds no request; write one JSON object a line", r.o.Name)
	}
	if err := r.world.Err(); err != nil {
		return Report{}, fmt.Errorf("the protocol broke a promise: %w", err)
	}
	out := Report{
		Format: ReportFormat, Requests: r.requests, Admitted: r.requests - r.refused, Refused: r.refused, From: r.from, Until: r.until,
		Reasons: r.reasons, Regions: r.tallies.regions.top(true), Priorities: r.priorities.top(true), ToWhom: map[string][]Entry{},
	}
	for _, label := range r.by {
		out.ToWhom[label] = r.labels[label].top(false)
		out.Approximate = out.Approximate || r.labels[label].forgot
	}
	for _, name := range r.order {
		x := r.budgets[name]
		b := BudgetReport{
			Budget: name, Unit: x.Unit, Limit: x.LimitOrZero(), Window: x.Window.String(), Requests: x.requests, Admitted: x.admitted,
			AdmittedUnits: x.units, Refused: x.refused, RefusedUnits: x.refusedUnits, Reasons: x.reasons, RefusedPeriods: x.refusedPeriods,
			Periods: x.periods.top(false), Instances: x.instances.top(false), HighestDemand: x.highest,
		}
		if x.highest > 0 {
			b.HighestAt = x.highestAt
		}
		out.Approximate = out.Approximate || x.periods.forgot || x.instances.forgot
		out.Budgets = append(out.Budgets, b)
	}
	return out, nil
}
