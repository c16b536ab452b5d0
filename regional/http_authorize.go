package regional

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// The headers of a gateway's sub-request. A gateway sets all that begin with Tranche- itself, and lets none of its callers'
// through: one that is not known, or that comes twice, is refused.
const (
	trancheHeaders   = "Tranche-"
	labelHeaders     = "Tranche-Label-" // and a label's name, in any case
	costHeaders      = "Tranche-Cost-"  // and a unit
	opHeader         = "Tranche-Op"
	lifetimeHeader   = "Tranche-Lifetime"
	legacyHeader     = "Tranche-Legacy"
	priorityHeader   = "Tranche-Priority"
	tokenHeader      = "Tranche-Token" // instead of Authorization, which is the caller's at some gateways
	methodLabel      = "method"
	pathLabel        = "path"
	deniedStatus     = "denied"      // a parameter: the status of every refusal, for a gateway that can take no other
	deadlineMillis   = "deadline_ms" // a parameter
	labelsFrom       = "labels_from" // a parameter: label:Header pairs, for gateways that cannot copy one header to another
	deniedAs403      = "403"
	authorizeHeaders = "Tranche-Label-NAME, Tranche-Cost-UNIT, Tranche-Op, Tranche-Lifetime, Tranche-Priority, Tranche-Legacy, Tranche-Key-Fingerprint and Tranche-Token"
)

// originals are the headers of what the caller asked the gateway, by the gateway's way of naming them.
var originals = []struct{ method, uri string }{{"X-Forwarded-Method", "X-Forwarded-Uri"}, {"X-Original-Method", "X-Original-Uri"}}

// authorize answers GET and HEAD /v1/authorize: may the request that the gateway holds go on? There is no body, and the
// gateway may ask twice, so an admission id makes it safe.
func (a *api) authorize(w http.ResponseWriter, r *http.Request, caller string) {
	arrived := a.config.Now()
	body, problems := readAuthorize(r)
	if len(problems) > 0 {
		a.tellGateway(w, r, a.gatewayFault(*invalid(problems...)))
		return
	}
	if refused := a.overreaches(caller, &body); refused != nil {
		a.tellGateway(w, r, a.gatewayFault(*refused))
		return
	}
	requests := [1]allocation.Request{a.request(&body, caller, correlationOf(r.Header))}
	decisions := a.decide(r.Context(), requests[:], &body, arrived)
	a.tellGateway(w, r, a.public(&decisions[0]))
}

// tellGateway writes what the gateway may pass on. Where it can take no status but 403 for a refusal, the headers say what
// was meant. What was not decided stays 503: no gateway may take it for a word about the budget.
func (a *api) tellGateway(w http.ResponseWriter, r *http.Request, p Public) {
	maps.Copy(w.Header(), p.Header)
	w.Header().Set("Content-Length", strconv.Itoa(len(p.Body)))
	status := p.Status
	if status != http.StatusOK && !p.Undecided() && r.URL.Query().Get(deniedStatus) == deniedAs403 {
		status = http.StatusForbidden
	}
	w.WriteHeader(status)
	_, _ = w.Write(p.Body) // a gateway that has gone asks again with the id
}

// gatewayCaller is the credential's name of a sub-request. A gateway whose token is wrong is a deployment that is wrong:
// its callers are not to be told that they lack a token.
func (a *api) gatewayCaller(r *http.Request) (string, *fault) {
	given := r.Header["Authorization"]
	if own := r.Header[tokenHeader]; len(own) > 0 {
		given = nil
		for _, secret := range own {
			given = append(given, "Bearer "+secret)
		}
	}
	name, refused := a.tokens().bearer(given)
	if refused != nil {
		refused.status = http.StatusServiceUnavailable
	}
	return name, refused
}

// readAuthorize reads a sub-request's parameters and headers.
func readAuthorize(r *http.Request) (callBody, allocation.Problems) {
	b := callBody{op: allocation.Spend, deadline: DefaultDeadline, labels: allocation.Labels{}, costs: map[string]int64{}}
	h := headerReader{header: r.Header, body: &b}
	h.parameters(r)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if strings.HasPrefix(name, trancheHeaders) {
			h.tranche(name, r.Header[name])
		}
	}
	h.original()
	if b.lifetime != 0 && b.op != allocation.Reserve {
		h.wrong(lifetimeHeader, "is for reservations", "leave it out, or send "+opHeader+": reserve")
	}
	id, problem := admissionID(r.Header, "")
	if b.id = id; problem != nil {
		h.problems = append(h.problems, *problem)
	}
	if found, bad := errors.AsType[allocation.Problems](b.labels.Validate()); bad {
		h.problems = append(h.problems, found...)
	}
	return b, h.problems
}

// headerReader reads the headers of a sub-request into a call.
type headerReader struct {
	header   http.Header
	body     *callBody
	problems allocation.Problems
}

func (h *headerReader) wrong(field, problem, fix string) {
	if len(h.problems) < maxProblems {
		h.problems = append(h.problems, allocation.FieldError{Field: shown(field), Problem: problem, Fix: fix})
	}
}

func (h *headerReader) parameters(r *http.Request) {
	params, fault := query(r, deniedStatus, deadlineMillis, labelsFrom)
	if fault != nil {
		h.problems = append(h.problems, fault.problems...)
		return
	}
	if text, given := params[deniedStatus]; given && text != deniedAs403 {
		h.wrong(deniedStatus, "is not a status that a refusal can have", "use "+deniedAs403+" for nginx, or leave it out for the status that was meant")
	}
	if text, given := params[deadlineMillis]; given {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < MinDeadline.Milliseconds() || n > MaxDeadline.Milliseconds() {
			h.wrong(deadlineMillis, "is not a deadline", "use 1 to 30000")
			return
		}
		h.body.deadline = time.Duration(n) * time.Millisecond
	}
	if text, given := params[labelsFrom]; given {
		h.from(text)
	}
}

// from reads labels out of other headers, as label:Header pairs with commas between them. The gateway's address is its own,
// so no caller can change them; what stands in those headers is as true as whoever set them.
func (h *headerReader) from(pairs string) {
	for pair := range strings.SplitSeq(pairs, ",") {
		label, header, ok := strings.Cut(pair, ":")
		values := h.header.Values(header)
		switch _, twice := h.body.labels[label]; {
		case !ok || header == "" || twice || (allocation.Labels{label: "x"}).Validate() != nil:
			h.wrong(labelsFrom, "is not label:Header pairs", "write each label once, like tenant:X-Tenant,user:X-User")
			return
		case len(values) > 1:
			h.wrong(header, "is given twice", "let whatever sets it take away what a caller sent")
		case len(values) == 1 && values[0] != "":
			h.body.labels[label] = values[0]
		}
	}
}

// tranche reads one header. An empty value is one that the gateway had none for, and is as if it were not there: budgets
// that need it refuse.
func (h *headerReader) tranche(name string, values []string) {
	label, isLabel := strings.CutPrefix(name, labelHeaders)
	unit, isCost := strings.CutPrefix(name, costHeaders)
	text := values[0]
	switch {
	case name == tokenHeader:
	case name == fingerprintHeader:
		if h.body.fingerprint = text; len(values) > 1 || text != "" && !allocation.ValidFingerprint(text) {
			h.wrong(name, wrongFingerprint, fixFingerprint)
		}
	case !isLabel && !isCost && name != opHeader && name != lifetimeHeader && name != legacyHeader && name != priorityHeader:
		h.wrong(name, "is not known", "use "+authorizeHeaders+", and let no such header of a caller through")
	case len(values) > 1:
		h.wrong(name, "is given twice", "set it in the gateway, and let no such header of a caller through")
	case text == "":
	case isLabel && h.body.labels[strings.ToLower(label)] != "":
		h.wrong(name, "is a label that labels_from takes from another header", "keep one of the two")
	case isLabel:
		h.body.labels[strings.ToLower(label)] = text
	case isCost:
		h.cost(name, strings.ToLower(unit), text)
	case name == opHeader:
		h.op(text)
	case name == priorityHeader:
		p, problem := allocation.ParsePriority(text)
		if h.body.priority = p; problem != nil {
			h.wrong(name, problem.Problem, problem.Fix)
		}
	case name == legacyHeader:
		if h.body.legacy = text; text != legacyAllow && text != legacyDeny {
			h.wrong(name, "is not a verdict", "use allow or deny: what the limiter says that is still in force")
		}
	default:
		err := h.body.lifetime.UnmarshalText([]byte(text))
		if err != nil || h.body.lifetime < 1 || h.body.lifetime > allocation.MaxReservation {
			h.body.lifetime = 0
			h.wrong(name, "is not a lifetime", "use 1s to 720h, like 90s or 10m")
		}
	}
}

func (h *headerReader) cost(name, unit, text string) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case !validUnitName(unit):
		h.wrong(name, "is not a unit", "use 1 to 64 of a-z 0-9 _ beginning with a letter, like Tranche-Cost-Tokens")
	case len(h.body.costs) == maxCosts:
		h.wrong(name, "is one unit too many", "give at most 32")
	case err != nil || n < 0 || n > allocation.MaxUnits || text[0] == '+':
		h.wrong(name, "is not a cost", "use a whole number from 0 to "+strconv.FormatInt(allocation.MaxUnits, 10))
	default:
		h.body.costs[unit] = n
	}
}

func (h *headerReader) op(text string) {
	switch op := allocation.Op(text); op {
	case allocation.Spend, allocation.Reserve, allocation.Check:
		h.body.op = op
	default:
		h.wrong(opHeader, "is not an operation of a gateway", "use spend, reserve or check; settle and release are calls of their own")
	}
}

// original makes labels of what the caller asked the gateway: method, and path, decoded and without its query. A path that
// no label can hold is left out, and budgets that go by it refuse. A label that the gateway set by name stands.
func (h *headerReader) original() {
	seen := ""
	for _, o := range originals {
		methods, uris := h.header[o.method], h.header[o.uri]
		if len(methods)+len(uris) == 0 {
			continue
		}
		if seen != "" || len(methods) > 1 || len(uris) > 1 {
			h.wrong(o.uri, "tells the original request a second time", "set one pair, "+originals[0].uri+" or "+originals[1].uri+", in the gateway, and let none of a caller through")
			return
		}
		seen = o.uri
		if len(methods) == 1 {
			h.put(methodLabel, methods[0])
		}
		if len(uris) == 1 {
			if u, err := url.ParseRequestURI(uris[0]); err == nil && u.Path != "" {
				h.put(pathLabel, path.Clean(u.Path))
			}
		}
	}
}

func (h *headerReader) put(label, value string) {
	if _, given := h.body.labels[label]; !given && (allocation.Labels{label: value}).Validate() == nil {
		h.body.labels[label] = value
	}
}
