package regional

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"

	"tranche/allocation"
)

// status answers GET /v1/status.
func (a *api) status(w http.ResponseWriter, _ *http.Request, _ string) {
	writeJSON(w, http.StatusOK, "application/json", a.statusNow())
}

// statusNow is the node's status, as its doors are. One in shadow is always ready to let everything through: were it taken
// out of service for its database's absence, the gateway would refuse.
func (a *api) statusNow() NodeStatus {
	s := a.Status()
	if !a.config.Shadow {
		return s
	}
	s.Shadow = true
	for _, why := range s.Reasons {
		s.Warnings = append(s.Warnings, "nothing is decided, and everything is let through: "+strings.TrimPrefix(why, admitsNothing))
	}
	s.Ready, s.Reasons = true, nil
	return s
}

// healthz says that the process runs; it does not speak of the database, whose absence no restart cures.
func (a *api) healthz(w http.ResponseWriter, _ *http.Request, _ string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n")
}

// readyBody says whether admissions commit, and if not, why.
type readyBody struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"`

	Warnings []string `json:"warnings,omitempty"`
	Shadow   bool     `json:"shadow,omitempty"` // everything is let through
}

// readyz is 503 while admissions fail to commit.
func (a *api) readyz(w http.ResponseWriter, _ *http.Request, _ string) {
	s := a.statusNow()
	status := http.StatusOK
	if !s.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, "application/json", readyBody{Ready: s.Ready, Reasons: s.Reasons, Warnings: s.Warnings, Shadow: s.Shadow})
}

func (a *api) serveMetrics(w http.ResponseWriter, r *http.Request, _ string) {
	a.metrics.ServeHTTP(w, r)
}

// matchBody lists the budgets that a request with some labels would be charged to.
type matchBody struct {
	Region  string        `json:"region"`
	Budgets []matchedBody `json:"budgets"`
	Refusal *unmatched    `json:"refusal,omitempty"` // why such a request is refused whatever it costs
}

// unmatched is a refusal for labels.
type unmatched struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
	Budget string `json:"budget,omitempty"`
}

// matchedBody is one budget. Share and Remaining are absent where the owner could not be asked; to a caller with a key of its own
// they, the limit and the version are told only of budgets of its tenant.
type matchedBody struct {
	Budget    string      `json:"budget"`
	Instance  string      `json:"instance,omitempty"`
	Unit      string      `json:"unit"`
	Reason    string      `json:"reason"` // why it would refuse a request that costs nothing, or allow
	Home      string      `json:"home,omitempty"`
	Period    *periodBody `json:"period,omitempty"`
	ResetsIn  *int64      `json:"resets_in_seconds,omitempty"`
	Version   *int64      `json:"version,omitempty"`
	Limit     *int64      `json:"limit,omitempty"`
	Share     *int64      `json:"share,omitempty"`
	Remaining *int64      `json:"remaining,omitempty"`

	Enforcement string `json:"enforcement"` // enforce, shadow or meter, for these labels now
}

// match answers POST /v1/match. It charges nothing, and needs no costs.
func (a *api) match(w http.ResponseWriter, r *http.Request, caller string) {
	arrived := a.config.Now()
	body, wrong := a.read(w, r, fieldLabels|fieldDeadline)
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	catalogue := a.Catalogue()
	body.op, body.costs = allocation.Check, map[string]int64{}
	if refused := cmp.Or(a.barsReading(r.Context(), body.labels[tenantLabel]), a.overreaches(caller, &body)); refused != nil {
		writeFault(w, *refused)
		return
	}
	request := a.request(&body, caller, correlationOf(r.Header))
	request.Presented = keyOf(r.Context())
	plan := planAtNoCost(catalogue, request, allocation.At(arrived))
	answer := matchBody{Region: catalogue.Region, Budgets: make([]matchedBody, len(plan.Lines))}
	if plan.Refusal != "" {
		answer.Refusal = &unmatched{Reason: string(plan.Refusal), Detail: plan.Detail, Budget: plan.Blames}
		writeJSON(w, http.StatusOK, "application/json", answer)
		return
	}
	for i := range plan.Lines {
		answer.Budgets[i] = matchedOf(&plan.Lines[i], allocation.At(arrived))
		answer.Budgets[i].Enforcement = plan.Lines[i].Budget.EnforcementOf(request, allocation.At(arrived))
	}
	// The shares are the owner's to tell. It may know budgets that the plan does not, or be away: then the plan stands.
	decisions := a.Decide(r.Context(), []allocation.Request{request}, arrived.Add(body.deadline))
	if len(decisions) == 1 && len(decisions[0].Budgets) == len(answer.Budgets) {
		for i := range decisions[0].Budgets {
			answer.Budgets[i].tell(&decisions[0].Budgets[i])
		}
	}
	for i := range answer.Budgets {
		if allocation.IsKeyCredential(caller) && !ofOneTenant(plan.Lines[i].Budget) {
			b := &answer.Budgets[i]
			b.Version, b.Limit, b.Share, b.Remaining = nil, nil, nil, nil
		}
	}
	writeJSON(w, http.StatusOK, "application/json", answer)
}

// ofOneTenant says whether all that a budget counts, or each of its instances, is of one tenant. What others spend of a budget that
// is shared is no caller's business; nor is what stands under another label than tenant, which any key may send.
func ofOneTenant(b *allocation.Budget) bool {
	return b.Match[tenantLabel] != "" || slices.Contains(b.TemplateLabels(), tenantLabel)
}

// planAtNoCost plans a request that costs 0 in every unit that its budgets count. Each try finds one unit more, of the few
// that one request can hit.
func planAtNoCost(c *allocation.Catalogue, r allocation.Request, now allocation.Instant) allocation.Plan {
	r.Costs["requests"] = 0
	for {
		p := c.Plan(r, now)
		again := false
		for _, l := range p.Lines { // of budgets that refuse nobody
			if l.Problem == allocation.CostUnknown {
				r.Costs[l.Budget.Unit], again = 0, true
			}
		}
		b, known := c.Budget(p.Blames)
		if !again && (p.Refusal != allocation.CostUnknown || !known) {
			return p
		}
		if p.Refusal == allocation.CostUnknown && known {
			r.Costs[b.Budget.Unit] = 0
		}
	}
}

func matchedOf(l *allocation.Line, now allocation.Instant) matchedBody {
	out := matchedBody{
		Budget: l.UsageKey.Budget, Instance: l.Instance, Unit: l.Budget.Unit, Reason: string(l.Problem), Home: l.Home,
		Version: &l.Version, Limit: new(int64),
	}
	*out.Limit = l.Budget.LimitOrZero()
	if l.Problem == "" {
		out.Reason = string(allocation.Allow)
	}
	if l.Until != 0 {
		out.Period = &periodBody{Start: l.Period.String(), End: l.Until.String()}
	}
	if l.Until != 0 && l.Until != allocation.Never {
		resets := resetsIn(l.Until, now)
		out.ResetsIn = &resets
	}
	return out
}

// tell adds what the owner says of the same budget in the same period.
func (m *matchedBody) tell(b *allocation.BudgetDecision) {
	if b.Budget != m.Budget || b.Instance != m.Instance || m.Period == nil || m.Period.Start != b.Period.String() {
		return
	}
	m.Reason, m.Limit, m.Version = string(b.Reason), &b.Limit, &b.Version
	m.Share, m.Remaining = &b.Share, &b.Remaining
	m.Enforcement = cmp.Or(b.Enforcement, allocation.Enforce)
}
