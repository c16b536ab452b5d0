package coordinator

import "net/http"

// historyRoutes are those of a history that was lost.
func (s *Service) historyRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/history", readers, func(call) (reply, error) {
		a, err := s.historyAnswer()
		return ok(a), err
	})
	s.route(mux, "POST /v1/history/give-up", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[GiveUpRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.giveUp(c.ctx, c.who(), q, dry)
		return ok(a), err
	}, dryRun)
	s.route(mux, "POST /v1/history/limits-known", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[KnowLimitsRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.knowLimits(c.ctx, c.who(), q, dry)
		return ok(a), err
	}, dryRun)
}
