package coordinator

import (
	"fmt"
	"net/http"

	"tranche/allocation"
)

func (s *Service) exposureRoutes(mux *http.ServeMux) {
	s.route(mux, "GET /v1/exposure", readers, func(c call) (reply, error) {
		q, err := exposureQuery(c)
		if err != nil {
			return reply{}, err
		}
		e, err := s.exposure(q)
		return ok(e), err
	}, askKey, askTenant, askCapability, askSince)
}

func exposureQuery(c call) (ExposureQuery, error) {
	v := c.URL.Query()
	q := ExposureQuery{Key: v.Get(askKey), Tenant: v.Get(askTenant), Capability: v.Get(askCapability)}
	for _, p := range []struct{ name, value string }{{askKey, q.Key}, {askTenant, q.Tenant}, {askCapability, q.Capability}} {
		if len(p.value) > maxSubject {
			return q, invalid(p.name, fmt.Sprintf("has %d bytes", len(p.value)), fmt.Sprintf("use at most %d", maxSubject))
		}
	}
	switch {
	case q.Key == "" && q.Tenant == "" && q.Capability == "":
		return q, invalid(askKey, "is missing, and so are tenant and capability", "say whose exposure: ?key=FINGERPRINT, ?tenant=acme or ?capability=export")
	case q.Key != "" && (q.Tenant != "" || q.Capability != ""):
		return q, invalid(askKey, "is given together with a tenant or a capability", "a key has a tenant and capabilities of its own: give the key alone")
	case allocation.LooksLikeKey(q.Key):
		return q, invalid(askKey, "is a key itself", "give its fingerprint: `tranche keys fingerprint` reads it from standard input")
	}
	if text := v.Get(askSince); text != "" {
		if err := q.Since.UnmarshalText([]byte(text)); err != nil || q.Since <= 0 || q.Since == allocation.Never {
			return q, invalid(askSince, fmt.Sprintf("%.40q is not an instant", text), "write it in UTC and whole seconds, like 2026-11-30T08:00:00Z")
		}
	}
	return q, nil
}
