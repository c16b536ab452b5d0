package regional

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// The three things that an answer can say of an admission: it stands, it was refused, or it was given back.
const (
	saidAdmitted = "admitted"
	saidRefused  = "refused"
	saidReleased = "released"
)

// microseconds is how instants of a database's clock are written.
const microseconds = "2006-01-02T15:04:05.000000Z07:00"

// answerBody is one decision. A refusal is also a problem (RFC 9457), with the problem's members in front.
type answerBody struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title,omitempty"`
	Status int    `json:"status,omitempty"` // of a refusal, and of each result of a batch
	Detail string `json:"detail,omitempty"`

	Decision    string `json:"decision"`
	Reason      string `json:"reason"`
	Action      string `json:"action"`
	Route       string `json:"route,omitempty"` // of a degraded admission: the cheaper one to take
	Op          string `json:"op"`
	AdmissionID string `json:"admission_id,omitempty"`
	Region      string `json:"region"`
	State       string `json:"state,omitempty"`
	Replayed    bool   `json:"replayed"`
	DecidedAt   string `json:"decided_at"`
	ExpiresAt   string `json:"expires_at,omitempty"`

	Shadow *shadowBody `json:"shadow,omitempty"` // of what was let through
	Ladder *ladderBody `json:"ladder,omitempty"` // what a ladder made of it

	*refusalBody

	Budgets  []budgetBody `json:"budgets"`
	Evidence evidenceBody `json:"evidence"`
}

// refusalBody is what only a refusal says.
type refusalBody struct {
	Retryable  bool             `json:"retryable"`
	Retry      string           `json:"retry"`
	RetryAfter int64            `json:"retry_after_seconds,omitempty"`
	Outcome    string           `json:"outcome"` // whether something may have been charged
	Home       string           `json:"home,omitempty"`
	Blocking   *blockingBody    `json:"blocking,omitempty"`
	Affordable map[string]int64 `json:"affordable,omitempty"` // by unit: the most that would pass now
	Violated   []string         `json:"violated-policies,omitempty"`
	Receipt    string           `json:"receipt,omitempty"` // for POST /v1/explain of the coordinator
}

// blockingBody is the first budget that refused.
type blockingBody struct {
	Budget   string      `json:"budget"`
	Instance string      `json:"instance,omitempty"`
	Unit     string      `json:"unit,omitempty"`
	Period   *periodBody `json:"period,omitempty"`
}

type periodBody struct {
	Start string `json:"start"`
	End   string `json:"end"` // "never" for a period without end
}

type budgetBody struct {
	Budget     string      `json:"budget"`
	Instance   string      `json:"instance,omitempty"`
	Unit       string      `json:"unit"`
	Reason     string      `json:"reason"`
	Period     *periodBody `json:"period,omitempty"`            // absent where no opened term holds the instant
	ResetsIn   *int64      `json:"resets_in_seconds,omitempty"` // absent for a period without end
	Class      string      `json:"class"`
	Generation int64       `json:"generation"`
	Version    int64       `json:"version"`
	Limit      int64       `json:"limit"` // of the whole budget
	Share      int64       `json:"share"` // of this region
	Requested  int64       `json:"requested"`
	Charged    int64       `json:"charged"`
	Overdraft  int64       `json:"overdraft"`
	Remaining  int64       `json:"remaining"`           // what this region may still spend on this priority
	Protected  int64       `json:"protected,omitempty"` // of the share, for essential traffic
	Stale      *staleBody  `json:"stale_evidence,omitempty"`

	Enforcement string `json:"enforcement,omitempty"` // shadow or meter, if it refuses nobody
	Override    string `json:"override,omitempty"`    // the id of the override that the limit includes
}

type evidenceBody struct {
	ObservedAt     string `json:"observed_at,omitempty"` // when the coordinator read its ledger; absent: never
	AgeMillis      *int64 `json:"age_ms,omitempty"`      // of that, when it was decided
	Incarnation    string `json:"incarnation,omitempty"`
	Config         int64  `json:"config"`
	LedgerRevision int64  `json:"ledger_revision"`
	Correlation    string `json:"correlation,omitempty"`
	Tenant         string `json:"tenant,omitempty"`
	Credential     string `json:"credential"`
	Node           string `json:"node,omitempty"`
	Priority       string `json:"priority,omitempty"` // that it counted as
	Fingerprint    string `json:"key_fingerprint,omitempty"`
}

// presented is a decision, ready to be told. What its body points at is within it, so that one that is used again makes
// nothing anew.
type presented struct {
	decision   *allocation.Decision
	status     int
	retryAfter int64
	now        allocation.Instant // that periods are told against
	body       answerBody

	refusal    refusalBody
	blocking   blockingBody
	budgets    [2]budgetBody
	resets     [2]int64
	age        int64
	violated   [1]string
	affordable map[string]int64
}

// present makes the answer to one decision.
func (a *api) present(d *allocation.Decision) *presented {
	p := &presented{}
	a.presentAs(p, d)
	return p
}

// presentAs makes the answer in place of an earlier one. A replay was decided long ago, so its periods are told against today.
func (a *api) presentAs(p *presented, d *allocation.Decision) {
	at := d.At
	if at == 0 {
		at = a.config.Now().UnixMicro()
	}
	p.decision, p.status, p.retryAfter, p.now = d, http.StatusOK, 0, allocation.At(time.UnixMicro(at))
	if d.Replayed {
		p.now = allocation.At(a.config.Now())
	}
	p.body = answerBody{
		Detail: d.Detail, Decision: saidAdmitted, Reason: string(d.Reason), Action: d.Action, Route: d.Route, Op: string(d.Op), Ladder: ladderOf(d, at),
		AdmissionID: d.Key.ID, Region: d.Region, State: string(d.State), Replayed: d.Replayed,
		DecidedAt: a.moments.text(at), Shadow: a.shadowOf(d), Budgets: p.budgets[:0],
	}
	a.presentEvidence(p, at)
	if d.Expires != 0 {
		p.body.ExpiresAt = formatMicros(d.Expires)
	}
	for i := range d.Budgets {
		a.presentBudget(p, i)
	}
	if allocation.IsKeyCredential(d.Key.Credential) {
		p.body.forKey()
	}
	switch {
	case !d.Admitted():
		a.presentRefusal(p, at)
	case d.State == allocation.StateReleased || d.State == allocation.StateLapsedReleased:
		p.body.Decision = saidReleased
	}
}

func (a *api) presentRefusal(p *presented, at int64) {
	d := p.decision
	row := allocation.AnswerTo(d.Reason)
	p.status, p.retryAfter = refusalStatus(d, row.Status, a.Catalogue()), a.retryAfter(d, row.Retry)
	p.body.Decision, p.body.Status = saidRefused, p.status
	p.body.Type, p.body.Title = problemType(d.Reason), row.Title
	if d.Reason == allocation.AdmissionIDMissing {
		p.body.AdmissionID = "" // one that was made here was never used
	}
	p.refusal = refusalBody{
		Retryable: row.Retryable(), Retry: string(row.Retry), RetryAfter: p.retryAfter, Outcome: outcomeNone, Home: d.Home,
		Receipt: a.receipt(d, at, ""),
	}
	refusal := &p.refusal
	if isCounter(d.Reason) {
		if p.affordable == nil {
			p.affordable = map[string]int64{}
		}
		refusal.Affordable = affordable(d, p.affordable)
	}
	if !d.Admitted() && d.Never() { // also where the period has no end, or the cost is above the region's whole share
		p.retryAfter, refusal.RetryAfter = 0, 0
		refusal.Retryable, refusal.Retry = false, string(allocation.RetryNever)
	}
	if d.Reason == allocation.OutcomeUnknown {
		refusal.Outcome = outcomeUnknown
	}
	if a.blockingOf(d, &p.blocking) {
		refusal.Blocking = &p.blocking
	}
	if row.Status == http.StatusTooManyRequests && d.Blames != "" {
		p.violated[0] = d.Blames
		refusal.Violated = p.violated[:]
	}
	p.body.refusalBody = refusal
}

// blockingOf names the first budget that refused; false if none did.
func (a *api) blockingOf(d *allocation.Decision, out *blockingBody) bool {
	if b := blamed(d); b != nil {
		*out = blockingBody{Budget: b.Budget, Instance: b.Instance, Unit: b.Unit, Period: a.moments.period(b)}
		return true
	}
	if d.Blames == "" {
		return false
	}
	*out = blockingBody{Budget: blamedName(d)}
	if b, known := a.Catalogue().Budget(out.Budget); known {
		out.Unit = b.Budget.Unit
	}
	return true
}

// write answers with the decision.
func (p *presented) write(w http.ResponseWriter) {
	setRateLimit(w.Header(), p.decision, p.now, p.retryAfter)
	if p.retryAfter > 0 {
		w.Header()["Retry-After"] = []string{strconv.FormatInt(p.retryAfter, 10)}
	}
	if p.body.Shadow != nil {
		w.Header().Set(shadowHeader, "would="+p.body.Shadow.Would)
	}
	contentType := "application/json"
	if r := p.body.refusalBody; r != nil {
		contentType = problemJSON
		setReceipt(w.Header(), r.Receipt)
	}
	writeJSON(w, p.status, contentType, &p.body)
}

// writeJSON writes a body. What it is given can always be written as JSON.
func writeJSON(w http.ResponseWriter, status int, contentType string, body any) {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	if hand, written := body.(interface{ appendJSON(to []byte) []byte }); written {
		buffer.Write(append(hand.appendJSON(buffer.AvailableBuffer()), '\n'))
	} else {
		encodeInto(buffer, body)
	}
	h := w.Header()
	if known := contentTypes[contentType]; known != nil {
		h["Content-Type"] = known
	} else {
		h.Set("Content-Type", contentType)
	}
	h["Content-Length"] = []string{strconv.Itoa(buffer.Len())}
	w.WriteHeader(status)
	_, _ = w.Write(buffer.Bytes()) // a caller that has gone asks again with its id
}

// The values of headers that most answers have. Nobody changes them: a second value makes another list.
var (
	noStore      = []string{"no-store"}
	noSniff      = []string{"nosniff"}
	contentTypes = map[string][]string{"application/json": {"application/json"}, problemJSON: {problemJSON}}
)

func encodeInto(buffer *bytes.Buffer, body any) {
	to := json.NewEncoder(buffer)
	to.SetEscapeHTML(false)
	if err := to.Encode(body); err != nil {
		panic("an answer that is no JSON: " + err.Error())
	}
}

// encodeJSON is a body that is kept.
func encodeJSON(body any) []byte {
	var buffer bytes.Buffer
	encodeInto(&buffer, body)
	return buffer.Bytes()
}

func formatMicros(at int64) string { return time.UnixMicro(at).UTC().Format(microseconds) }

func (a *api) presentBudget(p *presented, i int) {
	b := &p.decision.Budgets[i]
	out := budgetBody{
		Budget: b.Budget, Instance: b.Instance, Unit: b.Unit, Reason: string(b.Reason), Period: a.moments.period(b),
		Class: string(b.Class), Generation: b.Generation, Version: b.Version, Limit: b.Limit, Share: b.Share,
		Requested: b.Requested, Charged: b.Charged, Overdraft: b.Overdraft, Remaining: b.Remaining, Enforcement: b.Enforcement,
		Override: b.Override, Protected: b.Protected, Stale: staleOf(b.Stale),
	}
	if out.Period != nil && b.Until != allocation.Never {
		resets := resetsIn(b.Until, p.now)
		if i < len(p.resets) {
			p.resets[i] = resets
			out.ResetsIn = &p.resets[i]
		} else {
			out.ResetsIn = new(resets)
		}
	}
	p.body.Budgets = append(p.body.Budgets, out)
}

func (a *api) presentEvidence(p *presented, at int64) {
	d := p.decision
	e := &p.body.Evidence
	*e = evidenceBody{
		Incarnation: d.Evidence.Incarnation, Config: d.Evidence.Config, LedgerRevision: d.Evidence.LedgerRevision,
		Correlation: d.Evidence.Correlation, Tenant: d.Key.Tenant, Credential: d.Key.Credential, Node: d.Evidence.Node,
		Priority: string(d.Evidence.Priority), Fingerprint: d.Evidence.Fingerprint,
	}
	if d.Evidence.ObservedAt != 0 {
		p.age = max(0, at-d.Evidence.ObservedAt) / 1000
		e.ObservedAt, e.AgeMillis = a.moments.text(d.Evidence.ObservedAt), &p.age
	}
}

// blamed is the first refusing budget's part of a decision; nil if it is about none, or does not list it.
func blamed(d *allocation.Decision) *allocation.BudgetDecision {
	if d.Blames == "" {
		return nil
	}
	name, instance := blamedName(d), ""
	if len(name) < len(d.Blames) {
		instance = strings.TrimSuffix(d.Blames[len(name)+len(" ["):], "]")
	}
	for i := range d.Budgets {
		if b := &d.Budgets[i]; b.Budget == name && b.Instance == instance {
			return b
		}
	}
	return nil
}

// blamedName is the name of the first refusing budget, without its instance.
func blamedName(d *allocation.Decision) string {
	name, _, _ := strings.Cut(d.Blames, " [")
	return name
}

// affordable is, by unit, the most that a request to the same budgets could cost now; for refusals by a counter.
func affordable(d *allocation.Decision, most map[string]int64) map[string]int64 {
	clear(most)
	for i := range d.Budgets {
		b := &d.Budgets[i]
		left := b.Remaining
		if b.Reason != allocation.Allow && !isCounter(b.Reason) {
			left = 0
		}
		if known, ok := most[b.Unit]; !ok || left < known {
			most[b.Unit] = left
		}
	}
	return most
}

// isCounter says whether a reason is that a cost does not fit.
func isCounter(r allocation.Reason) bool {
	switch r {
	case allocation.RegionShareSpent, allocation.CeilingReached, allocation.CapacityStranded, allocation.CostExceedsLimit, allocation.OnlyProtectedLeft:
		return true
	}
	return false
}
