package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	maxBody        = 1 << 20
	requestTimeout = 15 * time.Second // of one request; a held sync call has its hold beside it
)

// Handler serves the API: see http_routes.go for what there is.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	s.routes(mux)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, map[string]string{"status": "ok"}) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := s.ready(); err != nil {
			p := *asProblem(err)
			p.Status = http.StatusServiceUnavailable
			writeProblem(w, &p)
			return
		}
		writeJSON(w, 200, map[string]string{"status": "ready"})
	})
	if gatherer := s.gatherer(); gatherer != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if allowed := allowedAt(mux, r); len(allowed) > 0 {
			list := strings.Join(allowed, ", ")
			w.Header().Set("Allow", list)
			writeProblem(w, problem(http.StatusMethodNotAllowed, CodeInvalid, fmt.Sprintf("%.20s is not a method of %.200s", r.Method, r.URL.Path), "use "+list))
			return
		}
		writeProblem(w, problem(http.StatusNotFound, CodeNotFound, fmt.Sprintf("there is no %.20s %.200s", r.Method, r.URL.Path), "see the API's documentation"))
	})
	return mux
}

// allowedAt is the methods that some route serves at a request's path. The mux itself does not say: to it, the route of
// all that is unknown serves every method.
func allowedAt(mux *http.ServeMux, r *http.Request) (allowed []string) {
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete} {
		asked := r.WithContext(r.Context())
		asked.Method = method
		handler, pattern := mux.Handler(asked)
		// A redirect to the path with a slash at its end is no route of ours; it is no HandlerFunc either.
		if _, serves := handler.(http.HandlerFunc); serves && pattern != "" && pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	return allowed
}

func (s *Service) gatherer() prometheus.Gatherer {
	if s.config.Gatherer != nil {
		return s.config.Gatherer
	}
	g, _ := s.config.Registry.(prometheus.Gatherer)
	return g
}

// call is one authenticated request.
type call struct {
	*http.Request
	ctx   context.Context
	token TokenDocument
}

// who stands in the audit line of an act.
func (c call) who() actor {
	host, _, err := net.SplitHostPort(c.RemoteAddr)
	if err != nil {
		host = c.RemoteAddr
	}
	return actor{name: c.token.Name, from: host}
}

// reply is what a route answers. A problem is an error.
type reply struct {
	status int
	etag   int64 // a version; 0: none
	body   any
}

func ok(body any) reply { return reply{status: http.StatusOK, body: body} }

// route serves requests of certain roles. A wrong token is 401 without a word about what was wrong with it; a token of
// another role is 403; a query parameter that the route does not take is 422.
func (s *Service) route(mux *http.ServeMux, pattern string, roles []string, serve func(call) (reply, error), parameters ...string) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := s.runtime.WithTimeout(r.Context(), requestTimeout+s.config.ReportUnreachableAfter/3)
		defer cancel()
		answer, err := s.serve(ctx, r, roles, func(c call) (reply, error) {
			if err := c.checkQuery(pattern, parameters); err != nil {
				return reply{}, err
			}
			return serve(c)
		})
		if err != nil {
			p := asProblem(err)
			if p.Code == CodeInternal {
				s.log.Error("request is not served", "route", pattern, "error", err)
			}
			writeProblem(w, p)
			return
		}
		if answer.etag > 0 {
			w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(answer.etag, 10)))
		}
		writeJSON(w, answer.status, answer.body)
	})
}

func (s *Service) serve(ctx context.Context, r *http.Request, roles []string, serve func(call) (reply, error)) (reply, error) {
	if !s.mirror.Ready() {
		return reply{}, errStarting
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token, known := s.state.authenticate(strings.TrimSpace(secret))
	if !known || !strings.EqualFold(scheme, "Bearer") {
		return reply{}, problem(http.StatusUnauthorized, CodeUnauthorized, "a valid bearer token is required", "send Authorization: Bearer and a token of this deployment")
	}
	if !slices.Contains(roles, token.Role) {
		return reply{}, problem(http.StatusForbidden, CodeForbidden, fmt.Sprintf("a token of role %s may not do this", token.Role), "use one of role "+strings.Join(roles, " or "))
	}
	return serve(call{Request: r, ctx: ctx, token: token})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body) // the caller may be gone
	}
}

// body reads a request's body within a bound.
func (c call) body(bound int64) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(nil, c.Body, bound))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, problem(http.StatusRequestEntityTooLarge, CodeTooLarge, fmt.Sprintf("the body has more than %d bytes", bound), "send less")
	}
	if err != nil {
		return nil, problem(http.StatusBadRequest, CodeInvalid, "the body could not be read", "send it again")
	}
	return data, nil
}

// decodeBody reads one JSON document strictly: a field that nobody reads would be a wish that nobody hears.
func decodeBody[T any](c call, bound int64) (T, error) {
	var out T
	data, err := c.body(bound)
	if err != nil {
		return out, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&out); err != nil {
		return out, malformed(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return out, problem(http.StatusBadRequest, CodeInvalid, "something follows the JSON document", "send one document")
	}
	return out, nil
}

// malformed names the field, where the decoder does.
func malformed(err error) *Problem {
	p := problem(http.StatusBadRequest, CodeInvalid, "the body is not the JSON that is expected: "+err.Error(), "see the API's documentation")
	if wrong, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		p.Field, p.Detail = wrong.Field, "is "+wrong.Value
		p.Fix = "give a " + wrong.Type.String()
	} else if _, quoted, found := strings.Cut(err.Error(), "unknown field "); found {
		p.Field, p.Detail, p.Fix = strings.Trim(quoted, `"`), "is not known", "leave it out, or correct its name"
	}
	return p
}

// checkQuery refuses parameters that nobody reads: a misspelt dry_run would make the change.
func (c call) checkQuery(pattern string, known []string) error {
	q, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return invalid("query", fmt.Sprintf("%.100q cannot be read", c.URL.RawQuery), "separate parameters by & and escape their values")
	}
	fix := "leave it out: this call takes none"
	if len(known) > 0 {
		fix = "use " + strings.Join(known, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case !slices.Contains(known, name):
			return invalid(fmt.Sprintf("%.40s", name), "is not a parameter of "+pattern, fix)
		case len(q[name]) > 1:
			return invalid(name, fmt.Sprintf("is given %d times", len(q[name])), "give it once")
		}
	}
	return nil
}

// flag reads a query parameter that is true or false. One without a value is neither.
func (c call) flag(name string) (bool, error) {
	q := c.URL.Query()
	switch v := q.Get(name); {
	case !q.Has(name), v == "false":
		return false, nil
	case v == "true":
		return true, nil
	default:
		return false, invalid(name, fmt.Sprintf("is %.40q", v), "use true or false")
	}
}

// page reads the query parameters of a list.
func (c call) page() (after string, limit int, err error) {
	q := c.URL.Query()
	limit = defaultPage
	if text := q.Get(pageLimit); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPage {
			return "", 0, invalid(pageLimit, fmt.Sprintf("is %.40q", text), fmt.Sprintf("use 1 to %d", maxPage))
		}
	}
	return q.Get(pageAfter), limit, nil
}

// condition reads what a change of a budget rests on.
func (c call) condition() (condition, error) {
	match, none := c.Header.Get("If-Match"), c.Header.Get("If-None-Match")
	switch {
	case match == "" && none == "*":
		return condition{create: true}, nil
	case match == "":
		return condition{}, problem(http.StatusPreconditionRequired, CodeVersionMissing, "If-Match is missing",
			`send If-Match: "VERSION" as you have read it, or If-None-Match: * to create it`)
	}
	text, err := strconv.Unquote(match)
	version, bad := strconv.ParseInt(text, 10, 64)
	if err != nil || bad != nil || version <= 0 {
		return condition{}, invalid("If-Match", fmt.Sprintf("is %.40q", match), `send the ETag that a read gave, like "3"`)
	}
	return condition{version: version}, nil
}
