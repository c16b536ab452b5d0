package regional

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"tranche/allocation"
)

// Every decision is told as JSON, so it is written by hand here, byte for byte as encoding/json writes answerBody without
// escaping HTML: the tags of its fields are what holds, and a test compares the two.

// jsonWriter writes one object after the other to a buffer of its caller's.
type jsonWriter struct {
	out  []byte
	rest bool // a member stands before the next one
}

// open begins an object or a list, and close ends one.
func (w *jsonWriter) open(bracket byte)  { w.out, w.rest = append(w.out, bracket), false }
func (w *jsonWriter) close(bracket byte) { w.out, w.rest = append(w.out, bracket), true }

// comma stands between two elements.
func (w *jsonWriter) comma() {
	if w.rest {
		w.out = append(w.out, ',')
	}
	w.rest = true
}

// name begins a member; the name needs no escape.
func (w *jsonWriter) name(name string) {
	w.comma()
	w.out = append(append(append(w.out, '"'), name...), '"', ':')
}

func (w *jsonWriter) text(name, value string) {
	w.name(name)
	w.out = appendText(w.out, value)
}

// some writes a text that is left out if it is empty.
func (w *jsonWriter) some(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *jsonWriter) number(name string, value int64) {
	w.name(name)
	w.out = strconv.AppendInt(w.out, value, 10)
}

// counted writes a number that is left out if it is 0.
func (w *jsonWriter) counted(name string, value int64) {
	if value != 0 {
		w.number(name, value)
	}
}

// told writes a number that is left out if it is not known.
func (w *jsonWriter) told(name string, value *int64) {
	if value != nil {
		w.number(name, *value)
	}
}

func (w *jsonWriter) truth(name string, value bool) {
	w.name(name)
	w.out = strconv.AppendBool(w.out, value)
}

const hexDigits = "0123456789abcdef"

// plain are the bytes that stand in a text as they are.
var plain = func() (bytes [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		bytes[c] = c != '"' && c != '\\'
	}
	return bytes
}()

// appendText quotes a text as encoding/json does, but for HTML's characters.
func appendText(to []byte, s string) []byte {
	to = append(to, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if plain[c] {
			i++
			continue
		}
		r, size := rune(c), 1
		if c >= utf8.RuneSelf {
			if r, size = utf8.DecodeRuneInString(s[i:]); r != '\u2028' && r != '\u2029' && (r != utf8.RuneError || size > 1) {
				i += size
				continue
			}
		}
		to = appendEscaped(append(to, s[from:i]...), r)
		i += size
		from = i
	}
	return append(append(to, s[from:]...), '"')
}

// appendEscaped writes what cannot stand in a text of JSON as it is; utf8.RuneError stands for what is no UTF-8.
func appendEscaped(to []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(to, '\\', byte(r))
	case '\b':
		return append(to, '\\', 'b')
	case '\f':
		return append(to, '\\', 'f')
	case '\n':
		return append(to, '\\', 'n')
	case '\r':
		return append(to, '\\', 'r')
	case '\t':
		return append(to, '\\', 't')
	}
	return append(to, '\\', 'u', hexDigits[r>>12&0xf], hexDigits[r>>8&0xf], hexDigits[r>>4&0xf], hexDigits[r&0xf])
}

// appendJSON writes the results of a batch.
func (b *batchBody) appendJSON(to []byte) []byte {
	w := jsonWriter{out: append(to, `{"results":`...)}
	w.open('[')
	for i := range b.Results {
		w.comma()
		b.Results[i].write(&w)
	}
	w.close(']')
	w.close('}')
	return w.out
}

// appendJSON writes one answer.
func (b *answerBody) appendJSON(to []byte) []byte {
	w := jsonWriter{out: to}
	b.write(&w)
	return w.out
}

func (b *answerBody) write(w *jsonWriter) {
	w.open('{')
	w.some("type", b.Type)
	w.some("title", b.Title)
	w.counted("status", int64(b.Status))
	w.some("detail", b.Detail)
	w.text("decision", b.Decision)
	w.text("reason", b.Reason)
	w.text("action", b.Action)
	w.some("route", b.Route)
	w.text("op", b.Op)
	w.some("admission_id", b.AdmissionID)
	w.text("region", b.Region)
	w.some("state", b.State)
	w.truth("replayed", b.Replayed)
	w.text("decided_at", b.DecidedAt)
	w.some("expires_at", b.ExpiresAt)
	if b.Shadow != nil {
		b.Shadow.write(w)
	}
	if b.Ladder != nil {
		b.Ladder.write(w)
	}
	if b.refusalBody != nil {
		b.refusalBody.write(w)
	}
	w.name("budgets")
	w.open('[')
	for i := range b.Budgets {
		w.comma()
		b.Budgets[i].write(w)
	}
	w.close(']')
	b.Evidence.write(w)
	w.close('}')
}

func (s *shadowBody) write(w *jsonWriter) {
	w.name("shadow")
	w.open('{')
	w.text("would", s.Would)
	w.text("title", s.Title)
	w.text("outcome", s.Outcome)
	s.Blocking.write(w)
	w.close('}')
}

func (l *ladderBody) write(w *jsonWriter) {
	w.name("ladder")
	w.open('{')
	w.text("budget", l.Budget)
	w.text("action", l.Action)
	w.some("route", l.Route)
	w.number("used_percent", l.UsedPercent)
	w.text("of", l.Of)
	w.some("observed_at", l.ObservedAt)
	w.told("age_ms", l.AgeMillis)
	w.close('}')
}

func (r *refusalBody) write(w *jsonWriter) {
	w.truth("retryable", r.Retryable)
	w.text("retry", r.Retry)
	w.counted("retry_after_seconds", r.RetryAfter)
	w.text("outcome", r.Outcome)
	w.some("home", r.Home)
	r.Blocking.write(w)
	if len(r.Affordable) > 0 {
		w.name("affordable")
		w.open('{')
		units := make([]string, 0, 8)
		for unit := range r.Affordable {
			units = append(units, unit)
		}
		slices.Sort(units)
		for _, unit := range units {
			w.number(unit, r.Affordable[unit]) // a unit's name needs no escape
		}
		w.close('}')
	}
	if len(r.Violated) > 0 {
		w.name("violated-policies")
		w.open('[')
		for _, budget := range r.Violated {
			w.comma()
			w.out = appendText(w.out, budget)
		}
		w.close(']')
	}
	w.some("receipt", r.Receipt)
}

func (b *blockingBody) write(w *jsonWriter) {
	if b == nil {
		return
	}
	w.name("blocking")
	w.open('{')
	w.text("budget", b.Budget)
	w.some("instance", b.Instance)
	w.some("unit", b.Unit)
	b.Period.write(w)
	w.close('}')
}

func (p *periodBody) write(w *jsonWriter) {
	if p == nil {
		return
	}
	w.name("period")
	w.open('{')
	w.text("start", p.Start)
	w.text("end", p.End)
	w.close('}')
}

func (b *budgetBody) write(w *jsonWriter) {
	w.open('{')
	w.text("budget", b.Budget)
	w.some("instance", b.Instance)
	w.text("unit", b.Unit)
	w.text("reason", b.Reason)
	b.Period.write(w)
	w.told("resets_in_seconds", b.ResetsIn)
	w.text("class", b.Class)
	w.number("generation", b.Generation)
	w.number("version", b.Version)
	w.number("limit", b.Limit)
	w.number("share", b.Share)
	w.number("requested", b.Requested)
	w.number("charged", b.Charged)
	w.number("overdraft", b.Overdraft)
	w.number("remaining", b.Remaining)
	w.counted("protected", b.Protected)
	if s := b.Stale; s != nil {
		w.name("stale_evidence")
		w.open('{')
		w.text("max_evidence_age", s.MaxEvidenceAge)
		w.number("at_most", s.AtMost)
		w.text("covered_until", s.CoveredUntil)
		w.close('}')
	}
	w.some("enforcement", b.Enforcement)
	w.some("override", b.Override)
	w.close('}')
}

func (e *evidenceBody) write(w *jsonWriter) {
	w.name("evidence")
	w.open('{')
	w.some("observed_at", e.ObservedAt)
	w.told("age_ms", e.AgeMillis)
	w.some("incarnation", e.Incarnation)
	w.number("config", e.Config)
	w.number("ledger_revision", e.LedgerRevision)
	w.some("correlation", e.Correlation)
	w.some("tenant", e.Tenant)
	w.text("credential", e.Credential)
	w.some("node", e.Node)
	w.some("priority", e.Priority)
	w.some("key_fingerprint", e.Fingerprint)
	w.close('}')
}

// appendJSON writes a fault.
func (b *faultBody) appendJSON(to []byte) []byte {
	w := jsonWriter{out: to}
	w.open('{')
	w.text("type", b.Type)
	w.text("title", b.Title)
	w.number("status", int64(b.Status))
	w.some("detail", b.Detail)
	w.text("reason", b.Reason)
	w.truth("retryable", b.Retryable)
	w.some("retry", b.Retry)
	w.counted("retry_after_seconds", b.RetryAfter)
	w.text("outcome", b.Outcome)
	if len(b.Errors) > 0 {
		w.name("errors")
		w.open('[')
		for _, e := range b.Errors {
			w.comma()
			writeProblem(&w, &e)
		}
		w.close(']')
	}
	w.some("receipt", b.Receipt)
	w.close('}')
	return w.out
}

func writeProblem(w *jsonWriter, e *allocation.FieldError) {
	w.open('{')
	w.text("field", e.Field)
	w.text("problem", e.Problem)
	w.text("fix", e.Fix)
	w.close('}')
}
