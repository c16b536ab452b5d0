package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"

	"tranche/allocation"
)

// appendRest appends the document of an id: a storedRest, written by hand, since it is written for every admission.
func appendRest(out []byte, a *allocation.Admission) ([]byte, error) {
	w := jsonWriter{out: append(out, '{')}
	if len(a.Lines) > 0 {
		w.raw(`"lines":[`)
		for i := range a.Lines {
			if i > 0 {
				w.raw(",")
			}
			w.line(&a.Lines[i])
		}
		w.raw(`],`)
	}
	w.raw(`"first":{"config":`).number(a.First.Config)
	w.raw(`,"ledger_revision":`).number(a.First.LedgerRevision)
	w.raw(`,"observed_at":`).number(a.First.ObservedAt)
	w.raw(`,"incarnation":`).text(a.First.Incarnation)
	w.textUnlessEmpty(`,"correlation":`, a.First.Correlation)
	w.textUnlessEmpty(`,"node":`, a.First.Node)
	w.textUnlessEmpty(`,"priority":`, string(a.First.Priority))
	w.textUnlessEmpty(`,"capability":`, a.First.Capability)
	w.textUnlessEmpty(`,"fingerprint":`, a.First.Fingerprint)
	w.raw(`}`)
	if len(a.Settled) > 0 {
		w.raw(`,"settled":`).any(a.Settled)
	}
	if a.Ladder != nil {
		w.raw(`,"ladder":`).any(a.Ladder)
	}
	w.raw(`}`)
	if w.err != nil {
		return nil, fmt.Errorf("encode id %s: %w", a.ID, w.err)
	}
	return w.out, nil
}

func (w *jsonWriter) line(l *allocation.AdmissionLine) {
	w.raw(`{"until":`).number(int64(l.Until))
	w.raw(`,"unit":`).text(l.Unit)
	w.raw(`,"version":`).number(l.Version)
	w.raw(`,"generation":`).number(l.Generation)
	w.raw(`,"limit":`).number(l.Limit)
	w.raw(`,"share":`).number(l.Share)
	w.raw(`,"requested":`).number(l.Requested)
	w.raw(`,"remaining":`).number(l.Remaining)
	w.numberUnlessZero(`,"held":`, l.Held)
	w.numberUnlessZero(`,"spent":`, l.Spent)
	w.numberUnlessZero(`,"overdraft":`, l.Overdraft)
	w.raw(`,"on_lapse":`).text(l.OnLapse)
	w.textUnlessEmpty(`,"enforcement":`, l.Enforcement)
	w.textUnlessEmpty(`,"override":`, l.Override)
	w.textUnlessEmpty(`,"would":`, string(l.Would))
	w.raw(`}`)
}

// jsonWriter appends JSON.
type jsonWriter struct {
	out []byte
	err error
}

func (w *jsonWriter) raw(text string) *jsonWriter {
	w.out = append(w.out, text...)
	return w
}

func (w *jsonWriter) number(n int64) { w.out = strconv.AppendInt(w.out, n, 10) }

func (w *jsonWriter) numberUnlessZero(name string, n int64) {
	if n != 0 {
		w.raw(name).number(n)
	}
}

func (w *jsonWriter) textUnlessEmpty(name, text string) {
	if text != "" {
		w.raw(name).text(text)
	}
}

// text appends a string. What is not plain ASCII is left to encoding/json, which knows how to escape it.
func (w *jsonWriter) text(text string) {
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			w.any(text)
			return
		}
	}
	w.out = append(append(append(w.out, '"'), text...), '"')
}

func (w *jsonWriter) any(v any) {
	encoded, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.out = append(w.out, encoded...)
}
