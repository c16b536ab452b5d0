package coordinator

import (
	"net/http"

	"tranche/allocation"
)

// Who may do what.
var (
	admins  = []string{RoleAdmin}
	readers = []string{RoleAdmin, RoleViewer}
	callers = []string{RoleRegion}
)

// The query parameters.
const (
	dryRun      = "dry_run"
	pageAfter   = "after"
	pageLimit   = "limit"
	withDeleted = "deleted"
)

// routes are the whole API. Names of budgets may hold slashes and braces; they stand at the end of a path, escaped as
// usual.
func (s *Service) routes(mux *http.ServeMux) {
	s.route(mux, "POST /v1/sync", callers, s.serveSync)

	s.route(mux, "POST /v1/budgets", admins, s.serveCreateBudget, dryRun)
	s.route(mux, "GET /v1/budgets", readers, s.serveListBudgets, pageAfter, pageLimit, withDeleted)
	s.route(mux, "POST /v1/budgets/match", readers, s.serveMatch)
	s.route(mux, "GET /v1/budgets/{name...}", readers, s.serveBudget)
	s.route(mux, "PUT /v1/budgets/{name...}", admins, s.serveChangeBudget, dryRun, actReason)
	s.route(mux, "DELETE /v1/budgets/{name...}", admins, s.serveDeleteBudget, dryRun)
	s.route(mux, "GET /v1/shares/{name...}", readers, func(c call) (reply, error) {
		a, err := s.shares(c.PathValue("name"))
		return ok(a), err
	})
	s.route(mux, "GET /v1/ledgers", readers, func(c call) (reply, error) {
		after, limit, err := c.page()
		if err != nil {
			return reply{}, err
		}
		return ok(s.ledgersPage(after, limit)), nil
	}, pageAfter, pageLimit)
	s.route(mux, "GET /v1/ledgers/{name...}", readers, func(c call) (reply, error) {
		after, limit, err := c.page()
		if err != nil {
			return reply{}, err
		}
		a, err := s.ledgersOf(c.PathValue("name"), after, limit)
		return ok(a), err
	}, pageAfter, pageLimit)

	s.endpointRoutes(mux)
	s.explainRoutes(mux)
	s.regionRoutes(mux)
	s.historyRoutes(mux)
	s.strandedRoutes(mux)
	s.closingRoutes(mux)
	s.route(mux, "GET /v1/status", readers, func(c call) (reply, error) {
		a, err := s.status(c.ctx)
		return ok(a), err
	})
	s.route(mux, "GET /v1/audit", readers, func(c call) (reply, error) {
		after, limit, err := c.page()
		if err != nil {
			return reply{}, err
		}
		page, err := s.auditPage(c.ctx, after, limit)
		return ok(page), err
	}, pageAfter, pageLimit)
	s.eventRoutes(mux)
	s.overrideRoutes(mux)
	s.tokenRoutes(mux)
	s.keyRoutes(mux)
}

// RegionsList and TokensList wrap lists, so that fields can be added.
type (
	// RegionsList is all regions by name.
	RegionsList struct {
		*Evidence
		Regions []RegionAnswer  `json:"regions"`
		Removed []RemovedRegion `json:"removed,omitempty"`
	}
	// TokensList is all credentials by name.
	TokensList struct {
		Tokens []TokenAnswer `json:"tokens"`
	}
)

func (s *Service) regionRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/regions", readers, func(call) (reply, error) { return ok(s.regionsList()), nil })
	s.route(mux, "POST /v1/regions/{region}/token", admins, func(c call) (reply, error) {
		a, err := s.renewRegionToken(c.ctx, c.who(), c.PathValue("region"))
		return ok(a), err
	})
	s.route(mux, "POST /v1/regions/{region}/seal", admins, func(c call) (reply, error) {
		q, err := decodeBody[SealRequest](c, maxSyncBytes)
		if err != nil {
			return reply{}, err
		}
		a, err := s.seal(c.ctx, c.who(), c.PathValue("region"), q)
		return ok(a), err
	})
	s.route(mux, "POST /v1/regions/{region}/adopt-failover", admins, func(c call) (reply, error) {
		q, err := decodeBody[AdoptRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.adoptFailover(c.ctx, c.who(), c.PathValue("region"), q)
		return ok(a), err
	})
	s.route(mux, "POST /v1/regions/{region}/handover", admins, func(c call) (reply, error) {
		q, err := decodeBody[HandoverRequest](c, maxSyncBytes)
		if err != nil {
			return reply{}, err
		}
		a, err := s.handOver(c.ctx, c.who(), c.PathValue("region"), q)
		return ok(a), err
	})
	s.rebalanceRoutes(mux)
	s.memberRoutes(mux)
}

func (s *Service) tokenRoutes(mux *http.ServeMux) {
	type request struct {
		Name string `json:"name"`
		Role string `json:"role"`
	}
	s.route(mux, "POST /v1/tokens", admins, func(c call) (reply, error) {
		q, err := decodeBody[request](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.createToken(c.ctx, c.who(), q.Name, q.Role)
		return reply{status: http.StatusCreated, body: a}, err
	})
	s.route(mux, "GET /v1/tokens", admins, func(call) (reply, error) { return ok(TokensList{s.listTokens()}), nil })
	s.route(mux, "POST /v1/tokens/{name}/rotate", admins, func(c call) (reply, error) {
		q, err := decodeBody[RotateRequest](c, maxBody)
		if err != nil {
			return reply{}, err
		}
		a, err := s.rotateToken(c.ctx, c.who(), c.PathValue("name"), q.Overlap)
		return reply{status: http.StatusCreated, body: a}, err
	})
	s.route(mux, "DELETE /v1/tokens/{name}", admins, func(c call) (reply, error) {
		err := s.revokeToken(c.ctx, c.who(), c.PathValue("name"))
		return ok(struct{}{}), err
	})
}

func created(dry bool) int {
	if dry {
		return http.StatusOK
	}
	return http.StatusCreated
}

func (s *Service) serveSync(c call) (reply, error) {
	started := s.now()
	q, err := decodeBody[allocation.SyncCall](c, maxSyncBytes)
	if err == nil && q.Region != c.token.Region {
		err = problem(http.StatusForbidden, CodeForbidden, "the token is of region "+c.token.Region, "call with the region's own token")
	}
	if err != nil {
		s.metrics.sync(syncInvalid, s.now().Sub(started))
		return reply{}, err
	}
	a, err := s.syncFrom(c.ctx, c.who().from, q)
	switch {
	case err != nil && asProblem(err).Status < http.StatusInternalServerError:
		s.metrics.sync(syncInvalid, s.now().Sub(started))
	case err != nil:
		s.metrics.sync(syncFailed, s.now().Sub(started))
	case a.Refusal != "":
		s.metrics.sync(syncRefused, s.now().Sub(started))
	default:
		s.metrics.sync(syncAnswered, s.now().Sub(started))
	}
	return ok(a), err
}

func (s *Service) serveCreateBudget(c call) (reply, error) {
	return s.writeBudget(c, "", condition{create: true})
}

func (s *Service) serveChangeBudget(c call) (reply, error) {
	on, err := c.condition()
	if err != nil {
		return reply{}, err
	}
	return s.writeBudget(c, c.PathValue("name"), on)
}

func (s *Service) writeBudget(c call, name string, on condition) (reply, error) {
	dry, err := c.flag(dryRun)
	if err != nil {
		return reply{}, err
	}
	data, err := c.body(maxBody)
	if err != nil {
		return reply{}, err
	}
	b, err := allocation.ParseBudget(data)
	if err != nil {
		return reply{}, err
	}
	if name == "" {
		name = b.Name
	}
	who := c.who()
	if who.reason, err = c.reason(); err != nil {
		return reply{}, err
	}
	a, err := s.changeBudget(c.ctx, who, name, &b, on, dry)
	status := http.StatusOK
	if on.create {
		status = created(dry)
	}
	return reply{status: status, etag: a.Version, body: a}, err
}

func (s *Service) serveDeleteBudget(c call) (reply, error) {
	on, err := c.condition()
	if err != nil {
		return reply{}, err
	}
	dry, err := c.flag(dryRun)
	if err != nil {
		return reply{}, err
	}
	a, err := s.changeBudget(c.ctx, c.who(), c.PathValue("name"), nil, on, dry)
	return ok(a), err
}

func (s *Service) serveBudget(c call) (reply, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	d := s.state.budgets[c.PathValue("name")]
	if d == nil || d.value.Deleted {
		return reply{}, notFound("budget", c.PathValue("name"))
	}
	return reply{status: http.StatusOK, etag: d.value.Version, body: s.answerBudget(d.value)}, nil
}

func (s *Service) serveListBudgets(c call) (reply, error) {
	after, limit, err := c.page()
	if err != nil {
		return reply{}, err
	}
	deleted, err := c.flag(withDeleted)
	if err != nil {
		return reply{}, err
	}
	return ok(s.listBudgets(after, limit, deleted)), nil
}

func (s *Service) serveMatch(c call) (reply, error) {
	type request struct {
		Labels allocation.Labels `json:"labels"`
	}
	q, err := decodeBody[request](c, maxBody)
	if err != nil {
		return reply{}, err
	}
	a, err := s.match(q.Labels)
	return ok(a), err
}
