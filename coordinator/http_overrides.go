package coordinator

import "net/http"

func (s *Service) overrideRoutes(mux *http.ServeMux) {
	s.route(mux, "POST /v1/overrides", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[OverrideRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.override(c.ctx, c.who(), q, dry)
		return reply{status: created(dry), body: a}, err
	}, dryRun)
	s.route(mux, "GET /v1/overrides", readers, func(call) (reply, error) { return ok(s.listOverrides()), nil })
	s.route(mux, "POST /v1/overrides/{id}/end", admins, func(c call) (reply, error) {
		q, err := decodeBody[EndOverrideRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.endOverride(c.ctx, c.who(), c.PathValue("id"), q)
		return ok(a), err
	})
}
