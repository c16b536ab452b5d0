package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
)

// An id's row holds the keys of its usage rows in arrays, since they are searched for, and what nobody searches for in one
// JSON document.

// storedRest is that document.
type storedRest struct {
	Lines   []storedLine           `json:"lines,omitempty"`
	First   allocation.Evidence    `json:"first"`
	Settled map[string]int64       `json:"settled,omitempty"`
	Ladder  *allocation.LadderStep `json:"ladder,omitempty"`
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
	Override    string            `json:"override,omitempty"`
	Would       allocation.Reason `json:"would,omitempty"`
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
			Override: l.Override, Enforcement: l.Enforcement, Would: l.Would,
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
	a.IDKey, a.Payload, a.First, a.Settled, a.Ladder = key, string(s.payload), rest.First, rest.Settled, rest.Ladder
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
	alike                                bool // all but the ids and the documents is the same in every row
}

func newIDRows(list []*allocation.Admission) (*idRows, error) {
	n := len(list)
	r := &idRows{
		idKeys:   idKeys{credentials: make([]string, n), tenants: make([]string, n), ids: make([]string, n)},
		payloads: make([][]byte, n), ops: make([]string, n), states: make([]string, n),
		at: make([]int64, n), expires: make([]int64, n), latest: make([]int64, n),
		budgets: make([]string, n), instances: make([]string, n), periods: make([]string, n), classes: make([]string, n),
		rest: make([]string, n), alike: true,
	}
	var text []byte
	for i, a := range list {
		var err error
		if text, err = appendRest(text[:0], a); err != nil {
			return nil, err
		}
		r.credentials[i], r.tenants[i], r.ids[i] = a.Credential, a.Tenant, a.ID
		r.ops[i], r.states[i] = string(a.Op), string(a.State)
		r.at[i], r.expires[i], r.latest[i] = a.At, a.ExpiresAt, a.Latest
		r.rest[i] = string(text)
		if i > 0 && sameLines(a.Lines, list[i-1].Lines) {
			r.budgets[i], r.instances[i], r.periods[i], r.classes[i] = r.budgets[i-1], r.instances[i-1], r.periods[i-1], r.classes[i-1]
		} else {
			r.keysOf(i, a.Lines)
			r.alike = r.alike && i == 0
		}
		if i > 0 && a.Payload == list[i-1].Payload {
			r.payloads[i] = r.payloads[i-1]
		} else {
			r.payloads[i] = []byte(a.Payload)
		}
		r.alike = r.alike && alikeButID(a, list[0])
	}
	return r, nil
}

func (r *idRows) keysOf(i int, lines []allocation.AdmissionLine) {
	k := newKeys(len(lines))
	for _, l := range lines {
		k.add(l.UsageKey)
	}
	r.budgets[i], r.instances[i], r.periods[i], r.classes[i] = textArray(k.budgets), textArray(k.instances), numberArray(k.periods), textArray(k.classes)
}

func sameLines(a, b []allocation.AdmissionLine) bool {
	return slices.EqualFunc(a, b, func(a, b allocation.AdmissionLine) bool { return a.UsageKey == b.UsageKey })
}

// alikeButID compares what has a column of its own, lines aside.
func alikeButID(a, b *allocation.Admission) bool {
	return a.Credential == b.Credential && a.Tenant == b.Tenant && a.Payload == b.Payload && a.Op == b.Op && a.State == b.State &&
		a.At == b.At && a.ExpiresAt == b.ExpiresAt && a.Latest == b.Latest
}

// queueInserted inserts the ids into a table. In most batches the rows differ in their ids and documents only: then the rest
// travels once, and the server reads and parses it once.
func (r *idRows) queueInserted(q *pgx.Batch, table int16) {
	if r.alike {
		q.Queue(insertAlike[table], r.ids, r.rest, r.credentials[0], r.tenants[0], r.payloads[0], r.ops[0], r.states[0],
			r.at[0], r.expires[0], r.latest[0], r.budgets[0], r.instances[0], r.periods[0], r.classes[0])
		return
	}
	q.Queue(insertIDs[table], append(r.args(), r.payloads, r.ops, r.states, r.at, r.expires, r.latest,
		r.budgets, r.instances, r.periods, r.classes, r.rest)...)
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
