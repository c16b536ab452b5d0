package regional

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// What was refused in the region, for an operator: refusals in full, as far as they are kept, and counts of all of them.
const (
	refusalsPath = "/v1/refusals"
	refusedPath  = "/v1/refusals/counts"
	keepPath     = "/v1/refusals/keep"

	maxKeepBytes = 4 << 10
)

// recordsBody is a page of refusals in full, the newest first; Next goes on behind it.
type recordsBody struct {
	Region  string            `json:"region"`
	Records []json.RawMessage `json:"records"` // allocation.Record
	Next    string            `json:"next,omitempty"`
}

// refusedBody is what was refused over time.
type refusedBody struct {
	Region string        `json:"region"`
	Every  string        `json:"every,omitempty"` // absent: one sum of all
	Counts []refusedLine `json:"counts"`
	More   bool          `json:"more,omitempty"` // there are more than one answer has: ask for less time, or tell fewer things apart
}

type refusedLine struct {
	At string `json:"at,omitempty"` // when the stretch of time begins
	RefusedCount
}

// keptBody lists the tenants all of whose refusals are kept.
type keptBody struct {
	Region  string       `json:"region"`
	Tenants []KeptTenant `json:"tenants"`
}

// keepRequest asks for all refusals of a tenant to be kept for a while.
type keepRequest struct {
	Tenant string              `json:"tenant"`
	For    allocation.Duration `json:"for"`
	By     string              `json:"by,omitempty"`
}

// recordsFor are the region's records for an operator, or why there are none for this caller.
func (a *api) recordsFor(caller string) (Records, *fault) {
	if f := a.mayOperate(caller); f != nil {
		return nil, f
	}
	if k, able := a.Backend.(interface{ Records() Records }); able {
		if records := k.Records(); records != nil {
			return records, nil
		}
	}
	f := reasonFault(allocation.Starting, "the node has no database yet that keeps refusals")
	return nil, &f
}

// refusals answers GET /v1/refusals: what is kept in full, found by what an operator has in hand.
func (a *api) refusals(w http.ResponseWriter, r *http.Request, caller string) {
	records, wrong := a.recordsFor(caller)
	var q RecordQuery
	if wrong == nil {
		q, wrong = readRecordQuery(r)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	list, next, err := records.FindRecords(ctx, q)
	if err != nil {
		a.config.Logger.Debug("find refusals", "error", err)
		writeFault(w, readFault(err))
		return
	}
	body := recordsBody{Region: a.Catalogue().Region, Records: make([]json.RawMessage, len(list))}
	for i := range list {
		body.Records[i] = encodeJSON(&list[i])
	}
	if next > 0 {
		body.Next = strconv.FormatInt(next, 10)
	}
	writeJSON(w, http.StatusOK, "application/json", body)
}

func readRecordQuery(r *http.Request) (q RecordQuery, wrong *fault) {
	params, wrong := query(r, "decision", "correlation", "admission_id", "fingerprint", "tenant", "reason", "from", "until", "after", "limit")
	if wrong == nil {
		q.Limit, wrong = pageSize(params["limit"], MaxRecordPage)
	}
	if wrong != nil {
		return q, wrong
	}
	q.Decision, q.Correlation, q.AdmissionID = params["decision"], params["correlation"], params["admission_id"]
	q.Fingerprint, q.Tenant, q.Reason = params["fingerprint"], params["tenant"], params["reason"]
	if q.Reason != "" && q.Reason != string(knownReason(allocation.Reason(q.Reason))) {
		return q, invalid(allocation.FieldError{Field: "reason", Problem: "is not a reason", Fix: "use one as refusals name it, like ceiling_reached"})
	}
	if q.Fingerprint != "" && !allocation.ValidFingerprint(q.Fingerprint) {
		return q, invalid(allocation.FieldError{Field: "fingerprint", Problem: wrongFingerprint, Fix: fixFingerprint})
	}
	from, until, wrong := stretch(params)
	if wrong != nil {
		return q, wrong
	}
	q.From, q.Until = micros(from), micros(until)
	if text := params["after"]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return q, invalid(allocation.FieldError{Field: "after", Problem: "is not a page's next", Fix: "give what the page before said"})
		}
		q.Before = n
	}
	return q, nil
}

// stretch reads from and until; zero: not given.
func stretch(params map[string]string) (from, until time.Time, wrong *fault) {
	for _, bound := range []struct {
		name string
		to   *time.Time
	}{{"from", &from}, {"until", &until}} {
		if text := params[bound.name]; text != "" {
			t, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return from, until, invalid(allocation.FieldError{Field: bound.name, Problem: "is not an instant", Fix: "write it like 2026-03-01T09:00:00Z"})
			}
			*bound.to = t
		}
	}
	if !until.IsZero() && !until.After(from) {
		return from, until, invalid(allocation.FieldError{Field: "until", Problem: "is not later than from", Fix: "give a later instant, or leave it out for now"})
	}
	return from, until, nil
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// refused answers GET /v1/refusals/counts: refused requests and units over time.
func (a *api) refused(w http.ResponseWriter, r *http.Request, caller string) {
	records, wrong := a.recordsFor(caller)
	var q RefusedQuery
	if wrong == nil {
		q, wrong = readRefusedQuery(r)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	list, err := records.RefusedOver(ctx, q)
	if err != nil {
		a.config.Logger.Debug("count refusals", "error", err)
		writeFault(w, readFault(err))
		return
	}
	body := refusedBody{Region: a.Catalogue().Region, Counts: []refusedLine{}, More: len(list) > MaxRefusedRows}
	if q.Every > 0 {
		body.Every = allocation.Duration(q.Every).String()
	}
	for _, c := range list[:min(len(list), MaxRefusedRows)] {
		line := refusedLine{RefusedCount: c}
		if q.Every > 0 {
			line.At = allocation.Instant(c.At).String()
		}
		body.Counts = append(body.Counts, line)
	}
	writeJSON(w, http.StatusOK, "application/json", body)
}

// refusedColumns are what counts may be told apart by.
var refusedColumns = []string{"capability", "tenant", "priority", "reason"}

func readRefusedQuery(r *http.Request) (q RefusedQuery, wrong *fault) {
	params, wrong := query(r, "from", "until", "every", "by", "tenant")
	if wrong != nil {
		return q, wrong
	}
	from, until, wrong := stretch(params)
	if wrong != nil {
		return q, wrong
	}
	q.From, q.Until, q.Tenant = micros(from)/1_000_000, micros(until)/1_000_000, params["tenant"]
	if text := params["every"]; text != "" {
		var every allocation.Duration
		if err := every.UnmarshalText([]byte(text)); err != nil || every < refusedEvery || every%refusedEvery != 0 || every > allocation.Day {
			return q, invalid(allocation.FieldError{Field: "every", Problem: "is not a stretch of whole minutes", Fix: "use 1m to 24h, or leave it out for one sum"})
		}
		q.Every = int64(every)
	}
	by := refusedColumns
	if text, given := params["by"]; given {
		by = strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
	}
	for _, name := range by {
		if !slices.Contains(refusedColumns, name) {
			return q, invalid(allocation.FieldError{Field: "by", Problem: "names what is not counted", Fix: "use some of " + strings.Join(refusedColumns, ",")})
		}
	}
	q.By = RefusedBy{slices.Contains(by, "capability"), slices.Contains(by, "tenant"), slices.Contains(by, "priority"), slices.Contains(by, "reason")}
	return q, nil
}

// keepTenant answers GET and POST /v1/refusals/keep: the tenants all of whose refusals are kept, and one more.
func (a *api) keepTenant(w http.ResponseWriter, r *http.Request, caller string) {
	records, wrong := a.recordsFor(caller)
	var k KeptTenant
	if wrong == nil && r.Method == http.MethodPost {
		k, wrong = a.readKeep(w, r, caller)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	if r.Method == http.MethodPost {
		switch kept, err := records.KeepTenant(ctx, k); {
		case err != nil:
			a.config.Logger.Debug("keep a tenant's refusals", "error", err)
			writeFault(w, readFault(err))
			return
		case !kept:
			writeFault(w, *invalid(allocation.FieldError{Field: "tenant", Problem: "is one too many: so many tenants are kept already", Fix: "wait until one of the " + strconv.Itoa(MaxKeptTenants) + " ends"}))
			return
		}
		a.config.Logger.Info("all refusals of a tenant are kept", "tenant", k.Tenant, "until", k.Until, "by", k.By)
	}
	list, err := records.KeptTenants(ctx)
	if err != nil {
		a.config.Logger.Debug("list the tenants that are kept", "error", err)
		writeFault(w, readFault(err))
		return
	}
	body := keptBody{Region: a.Catalogue().Region, Tenants: []KeptTenant{}}
	body.Tenants = append(body.Tenants, list...)
	writeJSON(w, http.StatusOK, "application/json", body)
}

func (a *api) readKeep(w http.ResponseWriter, r *http.Request, caller string) (k KeptTenant, wrong *fault) {
	if f := jsonOnly(r.Header); f != nil {
		return k, f
	}
	var q keepRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxKeepBytes))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return k, invalid(allocation.FieldError{Field: "body", Problem: "is not what is asked for", Fix: "send tenant, for and by"})
	}
	var problems allocation.Problems
	if q.Tenant == "" || (allocation.Labels{tenantLabel: q.Tenant}).Validate() != nil {
		problems = append(problems, allocation.FieldError{Field: "tenant", Problem: "is missing, or no value of the label", Fix: "name one tenant, as its requests do"})
	}
	if q.For < 1 || q.For > MaxKeepFor {
		problems = append(problems, allocation.FieldError{Field: "for", Problem: "is missing or too long: what is kept in full must have an end", Fix: "use at most " + MaxKeepFor.String() + ", such as 1h"})
	}
	if len(q.By) > allocation.MaxLabelValue {
		problems = append(problems, allocation.FieldError{Field: "by", Problem: "is too long", Fix: "name who asks, in at most 255 bytes"})
	}
	if len(problems) > 0 {
		return k, invalid(problems...)
	}
	now := a.config.Now().UTC()
	return KeptTenant{Tenant: q.Tenant, Since: now, Until: now.Add(q.For.Std()), By: by(q.By, caller)}, nil
}
