package coordinator

import "net/http"

// explainRoutes are those that tell afterwards what happened.
func (s *Service) explainRoutes(mux *http.ServeMux) {
	type request struct {
		Receipt string `json:"receipt"`
	}
	s.route(mux, "POST /v1/explain", readers, func(c call) (reply, error) {
		q, err := decodeBody[request](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		if q.Receipt == "" {
			return reply{}, invalid("receipt", "is missing", "give the receipt that came with the refusal, like tr1.…")
		}
		a, err := s.explain(q.Receipt)
		return ok(a), err
	})
	s.route(mux, "GET /v1/estimates", readers, func(call) (reply, error) { return ok(s.estimates()), nil })
}
