package regional

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"tranche/allocation"
)

// shadowDeadline bounds how long a node in shadow looks for a decision: whoever only watches must not be slow.
const shadowDeadline = 100 * time.Millisecond

// shadowHeader says of an answer that let a request through why enforcement would have refused it.
const shadowHeader = "Tranche-Shadow"

const batchPath = "/v1/admit/batch"

// What the field legacy of a call says: what the limiter decided that is still in force.
const (
	legacyAllow = "allow"
	legacyDeny  = "deny"
)

// letThrough turns a refusal into the admission that shadow makes of it. Nothing was charged for it, or, for an outcome
// that is unknown, nobody knows.
func letThrough(d *allocation.Decision) {
	if d.Admitted() {
		return
	}
	d.Would, d.WouldBlame = d.Reason, d.Blames
	d.Reason, d.Action, d.Blames, d.Home, d.Retry, d.State = allocation.Allow, allocation.ActionPreferred, "", "", 0, ""
	for i := range d.Budgets {
		if b := &d.Budgets[i]; b.Enforcement == "" {
			b.Enforcement = allocation.Shadow
		}
	}
}

// shadowed says whether a refusal is let through: all are by a node in shadow; by another one, those that say nothing
// about the budgets, of requests for which no budget is enforced.
func (a *api) shadowed(r *allocation.Request, d *allocation.Decision) bool {
	switch {
	case d.Admitted():
		return false
	case a.config.Shadow:
		return true
	case !admits(r.Op) || allocation.AnswerTo(d.Reason).Status != http.StatusServiceUnavailable:
		return false
	}
	return a.Catalogue().Unenforced(*r, allocation.At(a.config.Now()))
}

// patience is the deadline of a call.
func (a *api) patience(arrived time.Time, asked time.Duration) time.Time {
	if a.config.Shadow {
		asked = min(asked, shadowDeadline)
	}
	return arrived.Add(asked)
}

// shadowBody says what enforcement would have done with what was let through.
type shadowBody struct {
	Would    string        `json:"would"` // the reason
	Title    string        `json:"title"`
	Outcome  string        `json:"outcome"` // whether something may have been charged
	Blocking *blockingBody `json:"blocking,omitempty"`
}

func (a *api) shadowOf(d *allocation.Decision) *shadowBody {
	if d.Would == "" {
		return nil
	}
	out := &shadowBody{Would: string(d.Would), Title: allocation.AnswerTo(d.Would).Title, Outcome: outcomeNone}
	if row, ours := faultAnswers[faultKind(d.Would)]; ours {
		out.Title = row.title
	}
	if d.Would == allocation.OutcomeUnknown {
		out.Outcome = outcomeUnknown
	}
	if d.WouldBlame != "" {
		as := allocation.Decision{Blames: d.WouldBlame, Budgets: d.Budgets}
		if blocking := (blockingBody{}); a.blockingOf(&as, &blocking) {
			out.Blocking = &blocking
		}
	}
	return out
}

// shadowedFault answers a call of a node in shadow that could not even be decided.
func (a *api) shadowedFault(w *statusWriter, f fault) {
	d := a.faultThrough(f, w.route.op)
	p := a.present(&d)
	if w.sent == nil {
		p.write(w)
		return
	}
	p.body.Status = p.status
	answer := batchBody{Results: make([]answerBody, itemsOf(w.sent))}
	for i := range answer.Results {
		answer.Results[i] = p.body
	}
	w.Header().Set(shadowHeader, "would="+string(d.Would))
	writeJSON(w, http.StatusOK, "application/json", &answer)
}

// faultThrough is the decision for a call that a node in shadow lets through although it could not be decided.
func (a *api) faultThrough(f fault, op allocation.Op) allocation.Decision {
	d := allocation.Decision{
		Reason: f.reason, Action: allocation.ActionRefused, Op: op, Region: a.Catalogue().Region, Detail: f.detail,
	}
	if d.Reason == "" {
		d.Reason = allocation.Reason(f.kind)
	}
	letThrough(&d)
	a.config.Metrics.countShadow(&d)
	a.watch.note(&allocation.Request{Op: allocation.Spend}, &d, "", true)
	return d
}

// gatewayFault tells a fault to a gateway; in shadow it is let through.
func (a *api) gatewayFault(f fault) Public {
	if !a.config.Shadow {
		f.receipt = a.faultReceipt(f)
		return publicFault(f)
	}
	d := a.faultThrough(f, allocation.Spend)
	return a.public(&d)
}

// itemsOf counts the items of a batch that could not be read as one.
func itemsOf(sent io.Reader) int {
	var body struct {
		Items []json.RawMessage `json:"items"`
	}
	_ = json.NewDecoder(sent).Decode(&body) // one that is no JSON has no items
	return min(len(body.Items), MaxBatchRequests)
}

// remember keeps what is read of a body, so that an answer can be given for each of its items whatever is wrong with it.
func remember(r *http.Request) io.Reader {
	read := new(bytes.Buffer)
	rest := io.LimitReader(r.Body, MaxBodyBytes)
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, read), r.Body}
	return io.MultiReader(read, rest)
}
