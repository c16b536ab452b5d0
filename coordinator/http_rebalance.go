package coordinator

import "net/http"

// RebalancesList is all rebalances that are kept, oldest first.
type RebalancesList struct {
	*Evidence
	Rebalances []RebalanceAnswer `json:"rebalances"`
}

func (s *Service) rebalanceRoutes(mux *http.ServeMux) {
	s.route(mux, "POST /v1/rebalances", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[RebalanceRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.rebalance(c.ctx, c.who(), q, dry)
		return reply{status: created(dry), body: a}, err
	}, dryRun)
	s.route(mux, "GET /v1/rebalances", readers, func(call) (reply, error) { return ok(s.listRebalances()), nil })
	s.route(mux, "GET /v1/rebalances/{id}", readers, func(c call) (reply, error) {
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		d := s.state.rebalances[c.PathValue("id")]
		if d == nil {
			return reply{}, notFound("rebalance", c.PathValue("id"))
		}
		a := s.rebalanceAnswer(d.value)
		a.Evidence = s.evidence()
		return ok(a), nil
	})
	s.route(mux, "POST /v1/plans", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[RebalancePlanRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.rebalanceMatching(c.ctx, c.who(), q, dry)
		return reply{status: created(dry), body: a}, err
	}, dryRun)
	s.route(mux, "GET /v1/plans", readers, func(call) (reply, error) { return ok(s.listPlans()), nil })
	s.route(mux, "GET /v1/plans/{id}", readers, func(c call) (reply, error) {
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		d := s.state.plans[c.PathValue("id")]
		if d == nil {
			return reply{}, notFound("rebalance plan", c.PathValue("id"))
		}
		a := s.answerPlan(d.value, true)
		a.Evidence = s.evidence()
		return ok(a), nil
	})
}
