package coordinator

import "net/http"

// memberRoutes are those that change which regions take part. Each previews with dry_run=true.
func (s *Service) memberRoutes(mux *http.ServeMux) {
	s.route(mux, "POST /v1/regions", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[RegisterRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		if dry {
			a, err := s.previewMembers(q.Region, actRegister)
			return ok(a), err
		}
		a, err := s.registerKnown(c.ctx, c.who(), q)
		return reply{status: http.StatusCreated, body: a}, err
	}, dryRun)
	for pattern, act := range map[string]memberAct{"POST /v1/regions/{region}/drain": actDrain, "POST /v1/regions/{region}/resume": actResume} {
		s.route(mux, pattern, admins, func(c call) (reply, error) {
			dry, err := c.flag(dryRun)
			if err != nil {
				return reply{}, err
			}
			if dry {
				a, err := s.previewMembers(c.PathValue("region"), act)
				return ok(a), err
			}
			a, err := s.setDraining(c.ctx, c.who(), c.PathValue("region"), act == actDrain)
			return ok(a), err
		}, dryRun)
	}
	s.route(mux, "DELETE /v1/regions/{region}", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		q, err := decodeBody[RemoveRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.removeRegion(c.ctx, c.who(), c.PathValue("region"), q, dry)
		return ok(a), err
	}, dryRun)
}
