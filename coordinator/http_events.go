package coordinator

import "net/http"

func (s *Service) eventRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/events", readers, func(c call) (reply, error) {
		after, limit, err := c.page()
		if err != nil {
			return reply{}, err
		}
		page, err := s.eventsPage(after, limit)
		return ok(page), err
	}, pageAfter, pageLimit)
}
