package regional

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"tranche/allocation"
)

const (
	maxCosts        = 32       // units in one request
	maxPooledBuffer = 64 << 10 // a buffer that grew beyond is not kept
)

// buffers are for bodies and answers.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func takeBuffer() *bytes.Buffer { return buffers.Get().(*bytes.Buffer) }

func giveBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxPooledBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

// field is one field of a call's body.
type field uint

const (
	fieldLabels field = 1 << iota
	fieldCosts
	fieldOp
	fieldDeadline
	fieldLifetime
	fieldID
	fieldTenant
	fieldItems
	fieldLegacy
	fieldPriority
	fieldFingerprint
)

var fieldNames = []string{"labels", "costs", "op", "deadline_ms", "lifetime", "admission_id", "tenant", "items", "legacy", "priority", "key_fingerprint"}

// fieldsOf names a set of fields.
func fieldsOf(set field) string {
	var names []string
	for i, name := range fieldNames {
		if set&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// callBody is the body of any call; which fields it may have is the call's.
type callBody struct {
	given    field
	labels   allocation.Labels
	costs    map[string]int64
	op       allocation.Op
	deadline time.Duration
	lifetime allocation.Duration
	id       string
	tenant   string
	items    []callBody
	legacy   string // what the limiter says that is still in force
	priority allocation.Priority

	fingerprint string // of an external key, as a gateway names it
}

// read reads the body of a call that takes these fields. Its fault names all that is wrong.
func (a *api) read(w http.ResponseWriter, r *http.Request, allowed field) (body callBody, wrong *fault) {
	wrong = body.from(w, r, allowed)
	return body, wrong
}

// from is read, into a body that is empty.
func (b *callBody) from(w http.ResponseWriter, r *http.Request, allowed field) *fault {
	if f := jsonOnly(r.Header); f != nil {
		return f
	}
	if r.ContentLength > MaxBodyBytes {
		return tooLarge()
	}
	buffer, sent := takeBuffer(), r.Body
	defer giveBuffer(buffer)
	if r.ContentLength < 0 { // else the server reads no more than that
		sent = http.MaxBytesReader(w, sent, MaxBodyBytes)
	}
	if _, err := buffer.ReadFrom(sent); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			return tooLarge()
		}
		problem := "could not be read to its end"
		if errors.Is(err, io.ErrUnexpectedEOF) {
			problem = "is shorter than Content-Length says"
		}
		return invalid(allocation.FieldError{Field: "body", Problem: problem, Fix: "send it whole, within 30 s"})
	}
	return b.parse(buffer.Bytes(), allowed)
}

func tooLarge() *fault {
	return &fault{kind: bodyTooLarge, detail: "send at most 1 MiB; split a batch"}
}

// jsonOnly refuses other bodies; a browser cannot send this content type to another site without asking first.
func jsonOnly(h http.Header) *fault {
	const fix = "send Content-Type: application/json"
	if encoding := first(h["Content-Encoding"]); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return &fault{kind: wrongMedia, detail: "the body is encoded; send it as plain JSON"}
	}
	given := first(h["Content-Type"])
	if given == "application/json" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	charset := params["charset"]
	if err != nil || kind != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &fault{kind: wrongMedia, detail: fix}
	}
	return nil
}

// readCall reads a body from its bytes, of which it keeps nothing.
func readCall(data []byte, allowed field) (body callBody, wrong *fault) {
	wrong = body.parse(data, allowed)
	return body, wrong
}

func (b *callBody) parse(data []byte, allowed field) *fault {
	r := readers.Get().(*jsonReader)
	defer r.done()
	r.begin(data)
	b.op, b.deadline = allocation.Spend, DefaultDeadline
	b.read(r, allowed)
	if problems := r.end(); len(problems) > 0 {
		*b = callBody{}
		return invalid(problems...)
	}
	return nil
}

// read reads one object: the body, or an item of a batch.
func (b *callBody) read(r *jsonReader, allowed field) {
	r.members(func(key string) {
		f := fieldOf(key)
		if f&allowed == 0 {
			r.wrong("is not known", "use "+fieldsOf(allowed))
			r.pass(maxJSONDepth)
			return
		}
		if b.given&f != 0 {
			r.wrong("is given twice", "give it once")
			r.pass(maxJSONDepth)
			return
		}
		b.given |= f
		b.readField(r, f)
	})
	if b.given&fieldLifetime != 0 && allowed&fieldOp != 0 && b.op != allocation.Reserve {
		r.path = append(r.path, step{"lifetime", -1})
		r.wrong("is for reservations", `leave it out, or use op "reserve"`)
		r.path = r.path[:len(r.path)-1]
	}
}

func fieldOf(key string) field {
	for i, name := range fieldNames {
		if name == key {
			return 1 << i
		}
	}
	return 0
}

func (b *callBody) readField(r *jsonReader, f field) {
	switch f {
	case fieldLabels:
		b.labels = readLabels(r)
	case fieldCosts:
		b.costs = readCosts(r)
	case fieldOp:
		b.op = readOp(r)
	case fieldDeadline:
		b.deadline = time.Duration(r.whole(MinDeadline.Milliseconds(), MaxDeadline.Milliseconds())) * time.Millisecond
	case fieldLifetime:
		b.lifetime = readLifetime(r)
	case fieldID:
		if text, ok := r.text(); ok {
			id, problem := parseAdmissionID(text)
			if b.id = id; problem != "" {
				r.wrong(problem, fixAdmissionID)
			}
		}
	case fieldTenant:
		b.tenant = readTenant(r)
	case fieldItems:
		b.items = readItems(r)
	case fieldPriority:
		b.priority = readPriority(r)
	case fieldFingerprint:
		text, ok := r.text()
		if b.fingerprint = text; ok && !allocation.ValidFingerprint(text) {
			r.wrong(wrongFingerprint, fixFingerprint)
		}
	case fieldLegacy:
		text, ok := r.text()
		if b.legacy = text; ok && text != legacyAllow && text != legacyDeny {
			r.wrong("is not a verdict", "use allow or deny: what the limiter says that is still in force")
		}
	}
}

const itemFields = fieldLabels | fieldCosts | fieldOp | fieldLifetime | fieldID | fieldLegacy | fieldPriority | fieldFingerprint

const (
	wrongFingerprint = "is not a fingerprint"
	fixFingerprint   = "send the one that `tranche keys fingerprint` makes, never the key itself"
)

func readItems(r *jsonReader) []callBody {
	var items []callBody
	n := r.elements(MaxBatchRequests, func() {
		item := callBody{op: allocation.Spend}
		item.read(r, itemFields)
		items = append(items, item)
	})
	if n > MaxBatchRequests {
		r.wrong("are too many", "send at most 1000 in a batch")
	}
	return items
}

// readLabels reads labels, and holds them against their bounds: a label that a template could not take would else be
// found out by the database.
func readLabels(r *jsonReader) allocation.Labels {
	labels := allocation.Labels{}
	r.members(func(key string) {
		text, ok := r.text()
		if _, twice := labels[key]; twice {
			r.wrong("is given twice", "give it once")
		} else if ok && len(labels) <= allocation.MaxLabels {
			labels[key] = text
		}
	})
	if problems, bad := errors.AsType[allocation.Problems](labels.Validate()); bad && !r.broken {
		within := strings.TrimSuffix(r.place(), "labels")
		for _, p := range problems {
			if len(r.problems) < maxProblems {
				p.Field = within + p.Field
				r.problems = append(r.problems, p)
			}
		}
	}
	return labels
}

func readCosts(r *jsonReader) map[string]int64 {
	costs := map[string]int64{}
	r.members(func(key string) {
		_, twice := costs[key]
		switch {
		case twice:
			r.wrong("is given twice", "give it once")
		case !validUnitName(key):
			r.wrong("is not a unit", "use 1 to 64 of a-z 0-9 _ beginning with a letter, like tokens")
		case len(costs) == maxCosts:
			r.wrong("is one unit too many", "give at most 32")
		default:
			costs[key] = r.whole(0, allocation.MaxUnits)
			return
		}
		r.pass(maxJSONDepth)
	})
	return costs
}

// validUnitName is what a budget's unit may be.
func validUnitName(unit string) bool {
	if unit == "" || len(unit) > allocation.MaxLabelName || unit[0] < 'a' || unit[0] > 'z' {
		return false
	}
	for i := range len(unit) {
		if c := unit[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

func readOp(r *jsonReader) allocation.Op {
	text, ok := r.text()
	switch op := allocation.Op(text); op {
	case allocation.Spend, allocation.Reserve, allocation.Check:
		return op
	case allocation.Settle, allocation.Release, allocation.Extend:
		r.wrong("is "+text, "call /v1/"+text+" for that; here use spend, reserve or check")
		return allocation.Spend
	}
	if ok {
		r.wrong("is not an operation", "use spend, reserve or check")
	}
	return allocation.Spend
}

func readPriority(r *jsonReader) allocation.Priority {
	text, ok := r.text()
	if text == "" && ok {
		r.wrong("is empty", "use essential, interactive or batch, or leave it out for interactive")
	}
	p, problem := allocation.ParsePriority(text)
	if problem != nil {
		r.wrong(problem.Problem, problem.Fix)
	}
	return p
}

func readLifetime(r *jsonReader) (d allocation.Duration) {
	text, ok := r.text()
	if !ok {
		return 0
	}
	err := d.UnmarshalText([]byte(text))
	if err != nil || d < 1 || d > allocation.MaxReservation {
		r.wrong("is not a lifetime", "use 1s to 720h, like 90s or 10m")
		return 0
	}
	return d
}

func readTenant(r *jsonReader) string {
	text, ok := r.text()
	if ok && text != "" && (allocation.Labels{"tenant": text}).Validate() != nil {
		r.wrong("is not the value of a label", "give the tenant label that the admission was made with")
	}
	return text
}
