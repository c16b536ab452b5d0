package regional

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"tranche/allocation"
)

// A gateway tells what the upstream did with a request that was admitted. It changes no charge: what was admitted stays
// spent. It is counted apart from our own refusals, and told back with a receipt, so that whoever was refused upstream has
// something to show too.
const (
	outcomeTail = "/outcome"
	outcomePath = decisionsPath + "{admission_id}" + outcomeTail

	maxOutcomeBytes  = 4 << 10
	maxOutcomes      = 10_000 // that are remembered, so that a repeated report is not counted twice
	maxCapabilities  = 100    // that metrics tell apart
	capabilityNone   = "none"
	capabilityOthers = "other"
)

// outcomeReport is the body of a call.
type outcomeReport struct {
	outcome    allocation.Upstream
	capability string
	tenant     string
}

// outcomeBody answers it.
type outcomeBody struct {
	AdmissionID string `json:"admission_id"`
	Region      string `json:"region"`
	Outcome     string `json:"outcome"`
	Capability  string `json:"capability"` // as it is counted: none, or other for one that neither routes nor a budget names
	Repeated    bool   `json:"repeated"`   // it was told before, and is counted once
	Receipt     string `json:"receipt,omitempty"`
}

// outcome answers POST /v1/decisions/{admission_id}/outcome.
func (a *api) outcome(w http.ResponseWriter, r *http.Request, caller string) {
	report, wrong := readOutcome(w, r)
	id, problem := parseAdmissionID(strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, decisionsPath), outcomeTail))
	if wrong == nil && problem != "" {
		wrong = invalid(allocation.FieldError{Field: "admission_id", Problem: problem, Fix: fixAdmissionID})
	}
	if wrong == nil {
		wrong = a.speaksFor(caller, report.tenant)
	}
	if wrong != nil {
		writeFault(w, *wrong)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readDeadline)
	defer cancel()
	key := allocation.IDKey{Credential: caller, Tenant: report.tenant, ID: id}
	d, found, err := a.Find(ctx, key)
	switch {
	case err != nil:
		a.config.Logger.Debug("find the decision of an outcome", "error", err)
		writeFault(w, readFault(err))
	case !found:
		writeFault(w, reasonFault(allocation.AdmissionIDUnknown,
			"an outcome is of what was admitted: none of this credential, tenant and id is known in this region; give the tenant that it was made with"))
	case !d.Admitted():
		p := a.present(&d)
		p.write(w)
	default:
		capability := a.outcomes.capability(a.Catalogue(), report.capability)
		body := outcomeBody{
			AdmissionID: id, Region: d.Region, Outcome: string(report.outcome), Capability: capability,
			Repeated: !a.outcomes.first(key, report.outcome), Receipt: a.receipt(&d, a.config.Now().UnixMicro(), report.outcome),
		}
		if !body.Repeated {
			a.config.Metrics.upstream.WithLabelValues(capability, body.Outcome).Inc()
		}
		writeJSON(w, http.StatusOK, "application/json", body)
	}
}

// readOutcome reads the body: outcome, and where they apply tenant and capability.
func readOutcome(w http.ResponseWriter, r *http.Request) (report outcomeReport, wrong *fault) {
	if f := jsonOnly(r.Header); f != nil {
		return report, f
	}
	var buffer bytes.Buffer
	if _, err := buffer.ReadFrom(http.MaxBytesReader(w, r.Body, maxOutcomeBytes)); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return report, &fault{kind: bodyTooLarge, detail: "an outcome has at most 4 KiB"}
		}
		return report, invalid(allocation.FieldError{Field: "body", Problem: "could not be read to its end", Fix: "send it whole"})
	}
	reader := newJSONReader(buffer.Bytes())
	seen := map[string]bool{}
	reader.members(func(key string) {
		known := slices.Contains(outcomeFields, key)
		if !known || seen[key] {
			reader.wrong("is not known, or is given twice", "use "+strings.Join(outcomeFields, ", ")+", each once")
			reader.pass(maxJSONDepth)
			return
		}
		seen[key] = true
		switch key {
		case "outcome":
			report.outcome = readUpstream(reader)
		case "tenant":
			report.tenant = readTenant(reader)
		case "capability":
			text, ok := reader.text()
			if report.capability = text; ok && text != "" && (allocation.Labels{allocation.LabelCapability: text}).Validate() != nil {
				reader.wrong("is not the value of a label", "give the capability label that the admission was made with")
			}
		}
	})
	problems := reader.end()
	if len(problems) == 0 && !seen["outcome"] {
		problems = append(problems, allocation.FieldError{Field: "outcome", Problem: "is missing", Fix: "use " + upstreamWords()})
	}
	if len(problems) > 0 {
		return report, invalid(problems...)
	}
	return report, nil
}

var outcomeFields = []string{"outcome", "tenant", "capability"}

func readUpstream(r *jsonReader) allocation.Upstream {
	text, ok := r.text()
	if ok && !slices.Contains(allocation.Upstreams(), allocation.Upstream(text)) {
		r.wrong("is not an outcome", "use "+upstreamWords())
	}
	return allocation.Upstream(text)
}

func upstreamWords() string {
	var words []string
	for _, u := range allocation.Upstreams() {
		words = append(words, string(u))
	}
	return strings.Join(words, ", ")
}

// outcomes remembers the latest reports of one node, and which capabilities are worth a label.
type outcomes struct {
	mu     sync.Mutex
	seen   map[outcomeOf]bool
	order  []outcomeOf // a ring once it is full
	oldest int

	catalogue    *allocation.Catalogue // that the capabilities are of
	capabilities map[string]bool
}

type outcomeOf struct {
	key     allocation.IDKey
	outcome allocation.Upstream
}

// first says whether a report is the first of its kind that this node remembers.
func (o *outcomes) first(key allocation.IDKey, outcome allocation.Upstream) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := outcomeOf{key, outcome}
	if o.seen[of] {
		return false
	}
	if o.seen == nil {
		o.seen = map[outcomeOf]bool{}
	}
	o.seen[of] = true
	if len(o.order) < maxOutcomes {
		o.order = append(o.order, of)
		return true
	}
	delete(o.seen, o.order[o.oldest])
	o.order[o.oldest] = of
	o.oldest = (o.oldest + 1) % maxOutcomes
	return true
}

// capability is the label under which a capability is counted. Those that the routes table or a budget names are the
// operator's own words, and few; what a caller makes up is other.
func (o *outcomes) capability(c *allocation.Catalogue, name string) string {
	if name == "" {
		return capabilityNone
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.catalogue != c {
		if o.capabilities == nil {
			o.capabilities = map[string]bool{}
		}
		for _, r := range c.Routes().Routes {
			o.enter(r.Capability)
		}
		for _, b := range c.Budgets() {
			o.enter(b.Budget.Match[allocation.LabelCapability])
		}
		o.catalogue = c
	}
	if !o.capabilities[name] {
		return capabilityOthers
	}
	return name
}

// enter keeps what was ever named: a label that was counted does not turn into another one.
func (o *outcomes) enter(name string) {
	if name != "" && len(o.capabilities) < maxCapabilities {
		o.capabilities[name] = true
	}
}
