package fleet

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"time"

	"tranche/coordinator"
)

// acts are what a person does about what is stranded, by the report: count it as spent for good, raise a limit by it, or call
// such a raise off.
type acts struct {
	fleet  *fleet
	person *operator
	random *rand.Rand
}

// drawActs gives some runs a person who acts on what is stranded.
func (p *plan) drawActs(r *rand.Rand) {
	if r.IntN(4) == 0 {
		p.acts = oneOf[time.Duration](r, 2, 4, 8) * time.Second
	}
}

func newActs(f *fleet) *acts {
	if f.plan.acts == 0 {
		return nil
	}
	p := f.w.Process("on-call")
	p.Serve()
	a := &acts{fleet: f, random: f.w.Random("acts")}
	a.person = &operator{fleet: f, process: p, random: a.random}
	return a
}

// run acts until the faults are over.
func (a *acts) run() {
	ctx, f := a.person.process.Context(), a.fleet
	for {
		a.person.process.Sleep(ctx, time.Duration(a.random.Int64N(int64(f.plan.acts))))
		if f.faults.over {
			return
		}
		r := f.leaving()
		switch {
		case a.random.IntN(8) == 0:
			a.callOff(ctx)
		case r != nil && a.random.IntN(2) == 0:
			a.leave(ctx, r)
		default:
			a.act(ctx)
		}
	}
}

// act looks at the report, and does something about one of its lines.
func (a *acts) act(ctx context.Context) {
	var report coordinator.StrandedReport
	if r := a.person.call(ctx, "GET", "/v1/stranded", nil, ""); r.status != http.StatusOK || json.Unmarshal(r.body, &report) != nil || len(report.Lines) == 0 {
		return
	}
	line := report.Lines[a.random.IntN(len(report.Lines))]
	if a.random.IntN(2) == 0 {
		a.writeOff(ctx, line)
		return
	}
	if a.fleet.steady(line.Budget) || line.Stranded <= 0 {
		return
	}
	units := int64(0) // all of it
	if a.random.IntN(2) == 0 {
		units = 1 + a.random.Int64N(line.Stranded)
	}
	if r := a.person.call(ctx, "POST", "/v1/compensations", coordinator.CompensateRequest{
		Budget: line.Budget, Region: line.Region, Incarnation: line.Incarnation, Units: units, Reason: "drawn", By: "on-call",
	}, ""); r.status == http.StatusCreated {
		a.fleet.notes["compensations"]++
	}
}

func (a *acts) writeOff(ctx context.Context, line coordinator.StrandedLine) {
	if r := a.person.call(ctx, "POST", "/v1/writeoffs", coordinator.WriteOffRequest{
		Budget: line.Budget, Region: line.Region, Incarnation: line.Incarnation, Reason: "drawn", By: "on-call",
	}, ""); r.status == http.StatusCreated {
		a.fleet.notes["write-offs"]++
	}
}

// callOff cancels a raise that stands.
func (a *acts) callOff(ctx context.Context) {
	var list coordinator.CompensationsList
	if r := a.person.call(ctx, "GET", "/v1/compensations", nil, ""); r.status != http.StatusOK || json.Unmarshal(r.body, &list) != nil {
		return
	}
	for _, c := range list.Compensations {
		if c.State == coordinator.CompensationActive {
			a.person.call(ctx, "DELETE", "/v1/compensations/"+c.ID, nil, "")
			return
		}
	}
}

// steady says whether nobody is to change a budget.
func (f *fleet) steady(name string) bool {
	for _, b := range f.plan.budgets {
		if b.Name == name {
			return b.steady
		}
	}
	return false
}
