package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
)

// An id's row holds the keys of its usage rows in arrays, since they are searched for, and what nobody searches for in one
// JSON document.

// storedRest is that document.
type storedRest struct {
	Lines   []storedLine        `json:"lines,omitempty"`
	First   allocation.Evidence `json:"first"`
	Settled map[string]int64    `json:"settled,omitempty"`
}

type storedLine struct {
	Until      int64  `json:"until"`
	Unit       string `json:"unit"`
	Version    int64  `json:"version"`
	Generation int64  `json:"generation"`
	Limit      int64  `json:"limit"`
	Share      int64  `json:"share"`
	Requested  int64  `json:"requested"`
	Remaining  int64  `json:"remaining"`
	Held       int64  `json:"held,omitempty"`
	Spent      int64  `json:"spent,omitempty"`
	Overdraft  int64  `json:"overdraft,omitempty"`
	OnLapse    string `json:"on_lapse"`

	Enforcement string            `json:"enforcement,omitempty"`
	Would       allocation.Reason `json:"would,omitempty"`
}

func restOf(a *allocation.Admission) (string, error) {
	rest := storedRest{First: a.First, Settled: a.Settled}
	for _, l := range a.Lines {
		rest.Lines = append(rest.Lines, storedLine{
			Until: int64(l.Until), Unit: l.Unit, Version: l.Version, Generation: l.Generation, Limit: l.Limit, Share: l.Share,
			Requested: l.Requested, Remaining: l.Remaining, Held: l.Held, Spent: l.Spent, Overdraft: l.Overdraft, OnLapse: l.OnLapse,
			Enforcement: l.Enforcement, Would: l.Would,
		})
	}
	text, err := json.Marshal(rest)
	if err != nil {
		return "", fmt.Errorf("encode id %s: %w", a.ID, err)
	}
	return string(text), nil
}

// linesOf joins the lines of a document with the keys of the row.
func linesOf(rest storedRest, k keys) ([]allocation.AdmissionLine, error) {
	n := len(rest.Lines)
	if len(k.budgets) != n || len(k.instances) != n || len(k.periods) != n || len(k.classes) != n {
		return nil, fmt.Errorf("an id's row has %d lines and %d keys", n, len(k.budgets))
	}
	var lines []allocation.AdmissionLine
	for i, l := range rest.Lines {
		lines = append(lines, allocation.AdmissionLine{
			UsageKey: allocation.UsageKey{
				Budget: k.budgets[i], Instance: k.instances[i], Period: allocation.Instant(k.periods[i]), Class: allocation.Class(k.classes[i]),
			},
			Until: allocation.Instant(l.Until), Unit: l.Unit, Version: l.Version, Generation: l.Generation, Limit: l.Limit, Share: l.Share,
			Requested: l.Requested, Remaining: l.Remaining, Held: l.Held, Spent: l.Spent, Overdraft: l.Overdraft, OnLapse: l.OnLapse,
			Enforcement: l.Enforcement, Would: l.Would,
		})
	}
	return lines, nil
}

// scannedID is where the columns of one id's row go, but for its key.
type scannedID struct {
	a       allocation.Admission
	table   int16
	payload []byte
	k       keys
	rest    []byte
}

func (s *scannedID) fields() []any {
	return []any{
		&s.table, &s.payload, &s.a.Op, &s.a.State, &s.a.At, &s.a.ExpiresAt, &s.a.Latest,
		&s.k.budgets, &s.k.instances, &s.k.periods, &s.k.classes, &s.rest,
	}
}

func (s *scannedID) admission(key allocation.IDKey) (*allocation.Admission, error) {
	var rest storedRest
	if err := json.Unmarshal(s.rest, &rest); err != nil {
		return nil, fmt.Errorf("decode id %s: %w", key.ID, err)
	}
	a := s.a
	a.IDKey, a.Payload, a.First, a.Settled = key, string(s.payload), rest.First, rest.Settled
	var err error
	if a.Lines, err = linesOf(rest, s.k); err != nil {
		return nil, fmt.Errorf("decode id %s: %w", key.ID, err)
	}
	return &a, nil
}

// eachID reads the rows of selectIDs, which name each id by its place in the list, from 1.
func eachID(rows pgx.Rows, ids []allocation.IDKey, each func(*allocation.Admission, int16)) error {
	for rows.Next() {
		var n int64
		var s scannedID
		if err := rows.Scan(append([]any{&n}, s.fields()...)...); err != nil {
			return err
		}
		a, err := s.admission(ids[n-1])
		if err != nil {
			return err
		}
		each(a, s.table)
	}
	return rows.Err()
}

// idRows are the columns of ids that a batch writes. Arrays of arrays must be rectangular in Postgres, so each row's own
// arrays travel as text.
type idRows struct {
	idKeys
	payloads                             [][]byte
	ops, states, was                     []string
	at, expires, latest                  []int64
	budgets, instances, periods, classes []string
	rest                                 []string
}

func newIDRows(list []*allocation.Admission) (*idRows, error) {
	r := &idRows{}
	for _, a := range list {
		rest, err := restOf(a)
		if err != nil {
			return nil, err
		}
		r.credentials = append(r.credentials, a.Credential)
		r.tenants = append(r.tenants, a.Tenant)
		r.ids = append(r.ids, a.ID)
		r.payloads = append(r.payloads, []byte(a.Payload))
		r.ops = append(r.ops, string(a.Op))
		r.states = append(r.states, string(a.State))
		r.at = append(r.at, a.At)
		r.expires = append(r.expires, a.ExpiresAt)
		r.latest = append(r.latest, a.Latest)
		k := newKeys(len(a.Lines))
		for _, l := range a.Lines {
			k.add(l.UsageKey)
		}
		r.budgets = append(r.budgets, textArray(k.budgets))
		r.instances = append(r.instances, textArray(k.instances))
		r.periods = append(r.periods, numberArray(k.periods))
		r.classes = append(r.classes, textArray(k.classes))
		r.rest = append(r.rest, rest)
	}
	return r, nil
}

func (r *idRows) inserted() []any {
	return append(r.args(), r.payloads, r.ops, r.states, r.at, r.expires, r.latest,
		r.budgets, r.instances, r.periods, r.classes, r.rest, len(r.ids))
}

func (r *idRows) updated() []any {
	return append(r.args(), r.was, r.states, r.expires, r.latest, r.rest, len(r.ids))
}

var arrayEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// textArray is the text form of a text[].
func textArray(list []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(arrayEscapes.Replace(s))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// numberArray is the text form of a bigint[].
func numberArray(list []int64) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, n := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	b.WriteByte('}')
	return b.String()
}
