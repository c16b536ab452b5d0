package coordinator

import (
	"context"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
)

// RoutesAnswer is the routes table as it stands, or, with DryRun, as it would.
type RoutesAnswer struct {
	Version int64              `json:"version"` // 0: none was ever declared
	Number  int64              `json:"number"`  // the configuration number of the change
	Changed *time.Time         `json:"changed,omitempty"`
	By      string             `json:"by,omitempty"`
	Routes  []allocation.Route `json:"routes"`

	// Of a change only.
	DryRun  bool               `json:"dry_run,omitempty"`
	Added   []allocation.Route `json:"added,omitempty"`
	Removed []allocation.Route `json:"removed,omitempty"`
}

var routesRef = allocation.DocumentRef{Kind: allocation.KindRoutes, Name: allocation.NameRoutes}

// endpointRoutes are those about the table of endpoints and their capabilities.
func (s *Service) endpointRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/routes", readers, func(call) (reply, error) {
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		return ok(s.state.routesAnswer()), nil
	})
	s.route(mux, "PUT /v1/routes", admins, func(c call) (reply, error) {
		dry, err := c.flag(dryRun)
		if err != nil {
			return reply{}, err
		}
		t, err := decodeBody[allocation.Routes](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.changeRoutes(c.ctx, c.who(), t, dry)
		return ok(a), err
	}, dryRun)
	type request struct {
		Method string `json:"method"`
		Path   string `json:"path"`
	}
	s.route(mux, "POST /v1/routes/match", readers, func(c call) (reply, error) {
		q, err := decodeBody[request](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		if q.Path == "" {
			return reply{}, invalid("path", "is missing", "give the path of a request, like /v1/chat")
		}
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		a := RouteMatch{Method: q.Method, Path: q.Path}
		if r, found := s.state.routes().Match(q.Method, q.Path); found {
			a.Route = &r
		}
		return ok(a), nil
	})
}

// RouteMatch says which line of the table decides for an endpoint.
type RouteMatch struct {
	Method string            `json:"method,omitempty"`
	Path   string            `json:"path"`
	Route  *allocation.Route `json:"route,omitempty"` // absent: none; such a request has only the capability that it names itself
}

// routes is the table in force.
func (s *state) routes() allocation.Routes {
	d := s.documents[routesRef]
	if d == nil {
		return allocation.Routes{}
	}
	t, err := d.value.Routes()
	if err != nil { // of a later version
		return allocation.Routes{}
	}
	return t
}

func (s *state) routesAnswer() RoutesAnswer {
	a := RoutesAnswer{Routes: s.routes().Routes}
	if a.Routes == nil {
		a.Routes = []allocation.Route{}
	}
	if d := s.documents[routesRef]; d != nil {
		a.Version, a.Number, a.By = d.value.Version, d.value.Number, d.value.By
		changed := d.value.Changed
		a.Changed = &changed
	}
	return a
}

// changeRoutes replaces the whole table: what it does not name any more has no capability from then on.
func (s *Service) changeRoutes(ctx context.Context, who actor, t allocation.Routes, dry bool) (RoutesAnswer, error) {
	if err := t.Validate(); err != nil {
		return RoutesAnswer{}, err
	}
	var answer RoutesAnswer
	err := s.inTurn(ctx, func() (Change, error) {
		before := s.state.routesAnswer()
		answer = before
		answer.Added, answer.Removed = missingIn(t.Routes, before.Routes), missingIn(before.Routes, t.Routes)
		if answer.DryRun = dry; dry || len(answer.Added)+len(answer.Removed) == 0 {
			return Change{}, nil
		}
		change, _, err := s.changeDocument(who, "routes.change", routesRef, func(*ConfigDocument) (any, bool, error) { return t, false, nil })
		return change, err
	})
	if err != nil || dry {
		return answer, err
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	now := s.state.routesAnswer()
	now.Added, now.Removed = answer.Added, answer.Removed
	return now, nil
}

// missingIn are the lines of one table that the other does not have.
func missingIn(list, other []allocation.Route) (out []allocation.Route) {
	for _, r := range list {
		if !slices.Contains(other, r) {
			out = append(out, r)
		}
	}
	return out
}
