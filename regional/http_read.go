package regional

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// readDeadline bounds the reads that have no deadline of their own.
const readDeadline = 5 * time.Second

// query is the parameters of a GET: those that are asked for, once each, and no others.
func query(r *http.Request, names ...string) (map[string]string, *fault) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, invalid(allocation.FieldError{Field: "query", Problem: "is not well-formed", Fix: "escape its values"})
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(names, name):
			return nil, invalid(allocation.FieldError{Field: shown(name), Problem: "is not known", Fix: "use " + orNothing(names)})
		case len(values[name]) > 1:
			return nil, invalid(allocation.FieldError{Field: name, Problem: "is given twice", Fix: "give it once"})
		}
		out[name] = values[name][0]
	}
	return out, nil
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "no parameters"
	}
	return strings.Join(names, ", ")
}

func pageSize(text string, most int) (int, *fault) {
	if text == "" {
		return min(DefaultPage, most), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, invalid(allocation.FieldError{Field: "limit", Problem: "is not a page's size", Fix: "use 1 to " + strconv.Itoa(most)})
	}
	return n, nil
}

// findDecision answers GET /v1/decisions/{id}?tenant=: where an admission of this caller stands. It is 200 also for one
// that was released.
func (a *api) findDecision(w http.ResponseWriter, r *http.Request, caller string) {
	params, wrong := query(r, "tenant")
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	id, problem := parseAdmissionID(strings.TrimPrefix(r.URL.Path, decisionsPath))
	if problem != "" {
		writeFault(w, *invalid(allocation.FieldError{Field: "admission_id", Problem: problem, Fix: fixAdmissionID}))
		return
	}
	refused := a.barsReading(r.Context(), params["tenant"])
	if refused == nil {
		refused = a.speaksFor(caller, params["tenant"])
	}
	if refused != nil {
		writeFault(w, *refused)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	d, found, err := a.Find(ctx, allocation.IDKey{Credential: caller, Tenant: params["tenant"], ID: id})
	switch {
	case err != nil:
		a.config.Logger.Debug("find a decision", "error", err)
		writeFault(w, readFault(err))
	case !found:
		writeFault(w, reasonFault(allocation.AdmissionIDUnknown,
			"none of this credential, tenant and id is known in this region, or its retention is over; give the tenant as ?tenant="))
	default:
		p := a.present(&d)
		p.write(w)
	}
}

// reservationBody is one open reservation.
type reservationBody struct {
	AdmissionID string            `json:"admission_id"`
	Credential  string            `json:"credential"`
	Tenant      string            `json:"tenant,omitempty"`
	State       string            `json:"state"`
	DecidedAt   string            `json:"decided_at"`
	ExpiresAt   string            `json:"expires_at"`
	Latest      string            `json:"extendable_until"`
	Budgets     []reservationLine `json:"budgets"`
	Correlation string            `json:"correlation,omitempty"`
}

// reservationLine is what a reservation holds of one budget.
type reservationLine struct {
	Budget     string     `json:"budget"`
	Instance   string     `json:"instance,omitempty"`
	Unit       string     `json:"unit"`
	Period     periodBody `json:"period"`
	Generation int64      `json:"generation"`
	Reserved   int64      `json:"reserved"`
	OnLapse    string     `json:"on_lapse"`
}

// reservationsBody is one page; Next goes on behind it.
type reservationsBody struct {
	Reservations []reservationBody `json:"reservations"`
	Next         string            `json:"next,omitempty"`
}

// reservations answers GET /v1/reservations?after=&limit=: the region's open reservations, of all credentials.
func (a *api) reservations(w http.ResponseWriter, r *http.Request, caller string) {
	params, limit, wrong := page(r, MaxPage)
	wrong = cmp.Or(a.listsAll(caller), wrong)
	var after allocation.IDKey
	if wrong == nil && params["after"] != "" {
		text, err := base64.RawURLEncoding.DecodeString(params["after"])
		if err != nil || json.Unmarshal(text, &after) != nil {
			wrong = invalid(allocation.FieldError{Field: "after", Problem: "is not a page's next", Fix: "give what the page before said"})
		}
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	list, err := a.Reservations(ctx, after, limit)
	if err != nil {
		a.config.Logger.Debug("list reservations", "error", err)
		writeFault(w, readFault(err))
		return
	}
	body := reservationsBody{Reservations: make([]reservationBody, len(list))}
	for i := range list {
		body.Reservations[i] = reservationOf(&list[i])
	}
	if len(list) == limit {
		last, _ := json.Marshal(list[limit-1].IDKey) // three strings
		body.Next = base64.RawURLEncoding.EncodeToString(last)
	}
	writeJSON(w, http.StatusOK, "application/json", body)
}

func page(r *http.Request, most int) (params map[string]string, limit int, wrong *fault) {
	if params, wrong = query(r, "after", "limit"); wrong == nil {
		limit, wrong = pageSize(params["limit"], most)
	}
	return params, limit, wrong
}

func reservationOf(m *allocation.Admission) reservationBody {
	out := reservationBody{
		AdmissionID: m.ID, Credential: m.Credential, Tenant: m.Tenant, State: string(m.State), DecidedAt: formatMicros(m.At),
		ExpiresAt: formatMicros(m.ExpiresAt), Latest: formatMicros(m.Latest), Correlation: m.First.Correlation,
		Budgets: make([]reservationLine, len(m.Lines)),
	}
	for i, line := range m.Lines {
		out.Budgets[i] = reservationLine{
			Budget: line.Budget, Instance: line.Instance, Unit: line.Unit, Generation: line.Generation, Reserved: line.Held,
			Period: periodBody{Start: line.Period.String(), End: line.Until.String()}, OnLapse: line.OnLapse,
		}
	}
	return out
}

// accountBody is one page of an account; Next goes on behind it.
type accountBody struct {
	Account
	Next string `json:"next,omitempty"`
}

// account answers GET /v1/account?after=&limit=: all that the owner holds, for verify.
func (a *api) account(w http.ResponseWriter, r *http.Request, caller string) {
	params, limit, wrong := page(r, MaxAccountPage)
	wrong = cmp.Or(a.listsAll(caller), wrong)
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	account, err := a.Export(ctx, params["after"], limit)
	if err != nil {
		a.config.Logger.Debug("export the account", "error", err)
		writeFault(w, readFault(err))
		return
	}
	body := accountBody{Account: account}
	if account.More {
		for _, s := range account.Shares {
			body.Next = max(body.Next, s.Budget)
		}
		for _, u := range account.Usage {
			body.Next = max(body.Next, u.Budget)
		}
	}
	writeJSON(w, http.StatusOK, "application/json", body)
}
