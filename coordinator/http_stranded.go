package coordinator

import "net/http"

// lose is the query parameter of a what-if.
const lose = "lose"

func (s *Service) strandedRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/stranded", readers, func(c call) (reply, error) {
		f, err := s.strandedFilter(c)
		if err != nil {
			return reply{}, err
		}
		return ok(s.stranded(f)), nil
	}, byBudget, byRegion, byMatch, withHistory)
	s.route(mux, "GET /v1/whatif", readers, func(c call) (reply, error) {
		f, err := s.strandedFilter(c)
		if err != nil {
			return reply{}, err
		}
		if f.Region = c.URL.Query().Get(lose); f.Region == "" {
			return reply{}, invalid(lose, "is missing", "name the region to lose: ?lose=us-east")
		}
		w, err := s.whatIf(f)
		return ok(w), err
	}, lose, byBudget, byMatch)
	s.route(mux, "POST /v1/writeoffs", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[WriteOffRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.writeOff(c.ctx, c.who(), q, dry)
		return reply{status: created(dry), body: a}, err
	}, dryRun)
	s.route(mux, "GET /v1/writeoffs", readers, func(call) (reply, error) { return ok(s.listWriteOffs()), nil })
	s.route(mux, "POST /v1/compensations", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[CompensateRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.compensate(c.ctx, c.who(), q, dry)
		return reply{status: created(dry), body: a}, err
	}, dryRun)
	s.route(mux, "GET /v1/compensations", readers, func(call) (reply, error) { return ok(s.listCompensations()), nil })
	s.route(mux, "DELETE /v1/compensations/{id}", admins, func(c call) (reply, error) {
		a, err := s.cancelCompensation(c.ctx, c.who(), c.PathValue("id"))
		return ok(a), err
	})
	s.route(mux, "POST /v1/refusals", callers, func(c call) (reply, error) {
		q, err := decodeBody[RefusalReport](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		return ok(struct{}{}), s.hearRefusals(c.token.Region, q)
	})
}
