package allocation

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// RecordFormat is the format of a Record that this program writes and replays.
const RecordFormat = 1

// Record is one decision with all that the pure function saw when it made it: the request, the counters, shares and policies
// of the budgets that it met, what was known of other regions, and the clock. Replay decides it again, and must come to the
// same. It holds no secret: of a caller's key its fingerprint, and whether what was shown was that key.
//
// It is bounded by the bounds of a request: at most MaxBudgetsPerRequest budgets and one more, one period of each.
type Record struct {
	Format   int             `json:"format"`
	Name     string          `json:"decision"` // the decision's id, as its receipt has it
	Request  RecordedRequest `json:"request"`
	Seen     *RecordedState  `json:"seen,omitempty"` // absent: no owner was asked, so there is nothing to replay
	Decision Decision        `json:"decision_made"`
}

// RecordedRequest is a request as it came to the owner.
type RecordedRequest struct {
	Op          Op               `json:"op"`
	Key         IDKey            `json:"key"`
	Generated   bool             `json:"generated,omitempty"`
	Labels      Labels           `json:"labels,omitempty"` // as sent
	Costs       map[string]int64 `json:"costs,omitempty"`
	Lifetime    Duration         `json:"lifetime,omitempty"`
	Priority    Priority         `json:"priority,omitempty"`
	Correlation string           `json:"correlation,omitempty"`
	Fingerprint string           `json:"fingerprint,omitempty"` // of an external key
	Shown       *RecordedKey     `json:"shown,omitempty"`       // the caller's own key; absent: a gateway asked
}

// RecordedKey is a key as a caller showed it, and what the region knew of it.
type RecordedKey struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Proved      bool   `json:"proved"`          // what was shown is this key
	Known       *Key   `json:"known,omitempty"` // without what it is compared with; absent: no key has this fingerprint
}

// RecordedState is what the owner was locked in, or read as, when it decided: only what this one decision looked at.
type RecordedState struct {
	Region       string             `json:"region"`
	Config       int64              `json:"config"`
	Now          int64              `json:"now"` // Unix microseconds
	ClosedBefore Instant            `json:"closed_before,omitempty"`
	Stopped      Reason             `json:"stopped,omitempty"`
	Incarnation  string             `json:"incarnation,omitempty"`
	Revision     int64              `json:"ledger_revision"`
	ObservedAt   int64              `json:"observed_at"` // Unix microseconds; 0: never
	Node         string             `json:"node,omitempty"`
	Budgets      []ConfiguredBudget `json:"budgets,omitempty"`
	Terms        []Term             `json:"terms,omitempty"`     // the period that holds now, and how far the terms reach behind it
	Documents    []Document         `json:"documents,omitempty"` // the block that was met, and the route that named the capability
	Usage        []Usage            `json:"usage,omitempty"`     // before the decision
	Full         []UsageKey         `json:"full,omitempty"`
	None         []UsageKey         `json:"none,omitempty"`
	Elsewhere    []Elsewhere        `json:"elsewhere,omitempty"`
	Admission    *Admission         `json:"admission,omitempty"` // of the id, if it was known
	Payload      string             `json:"payload,omitempty"`   // of that admission, hex
}

// Errors of Replay.
var (
	ErrNotDecided   = errors.New("no owner decided it: the node refused it by itself, and there is nothing to replay")
	ErrRecordFormat = errors.New("the record is of a format that this program does not know: use the program that wrote it, or a newer one")
)

// Record keeps a decision that Decide has just made over this state: a refusal, or an admission, whose charge is taken off
// what is kept. It changes nothing.
func (l *Locked) Record(p Plan, d Decision) *Record {
	now := l.now()
	p = l.Catalogue.Plan(p.Request, now)
	s := &RecordedState{
		Region: l.Catalogue.Region, Config: l.Catalogue.Number, Now: l.Now, ClosedBefore: l.ClosedBefore, Stopped: l.Stopped,
		Incarnation: l.Incarnation, Revision: l.Revision, ObservedAt: l.ObservedAt, Node: l.Node,
	}
	l.recordRows(p, d, s)
	l.Catalogue.recordPolicy(p, now, s)
	for _, b := range s.Budgets {
		s.Terms = append(s.Terms, l.Catalogue.recordedTerms(b.Budget.Name, now)...)
		if e, ok := l.Elsewhere[b.Budget.Name]; ok {
			e.Budget = b.Budget.Name
			s.Elsewhere = append(s.Elsewhere, e)
		}
	}
	d.Budgets = slices.Clone(d.Budgets)
	return &Record{Format: RecordFormat, Request: l.Catalogue.recordRequest(p.Request), Seen: s, Decision: d}
}

// RecordUndecided keeps a refusal of which no owner decided.
func RecordUndecided(r Request, d Decision) *Record {
	return &Record{Format: RecordFormat, Request: (&Catalogue{policy: &policy{}}).recordRequest(r), Decision: d}
}

func (c *Catalogue) recordRequest(r Request) RecordedRequest {
	out := RecordedRequest{
		Op: r.Op, Key: r.Key, Generated: r.Generated, Labels: r.Labels, Costs: r.Costs, Lifetime: r.Lifetime, Priority: r.Priority,
		Correlation: r.Correlation, Fingerprint: r.Fingerprint,
	}
	if r.Presented != (Presented{}) {
		shown := &RecordedKey{Name: r.Presented.Name, Fingerprint: r.Presented.Fingerprint}
		if k := c.policy.keys[r.Presented.Fingerprint]; k != nil {
			public := k.Public()
			shown.Known, shown.Proved = &public, r.Presented.matches(k)
		}
		out.Shown = shown
	}
	return out
}

// recordRows keeps the usage rows and the id that a decision looked at, as they were before it.
func (l *Locked) recordRows(p Plan, d Decision, s *RecordedState) {
	var keys []UsageKey
	for _, line := range p.Lines {
		keys = append(keys, line.UsageKey)
	}
	a := l.IDs[p.Key]
	charged := map[UsageKey]AdmissionLine{}
	if a != nil && p.Op != Check {
		if d.Admitted() && !d.Replayed { // made by this decision
			for _, line := range a.charged() {
				charged[line.UsageKey] = *line
			}
		} else {
			known := *a
			s.Admission, s.Payload = &known, hex.EncodeToString([]byte(a.Payload))
			for _, line := range a.Lines {
				keys = append(keys, line.UsageKey)
			}
		}
	}
	slices.SortFunc(keys, UsageKey.Compare)
	for _, k := range slices.Compact(keys) {
		if u := l.Usage[k]; u != nil {
			before, line := *u, charged[k]
			before.Spent, before.Reserved, before.Overdraft = u.Spent-line.Spent, u.Reserved-line.Held, u.Overdraft-line.Overdraft
			s.Usage = append(s.Usage, before)
		}
		if l.Full[k] {
			s.Full = append(s.Full, k)
		}
		if l.None[k] {
			s.None = append(s.None, k)
		}
	}
}

// recordPolicy keeps the budgets that apply, and the documents that had a part in the decision.
func (c *Catalogue) recordPolicy(p Plan, now Instant, s *RecordedState) {
	r := p.Request
	if r.admits() {
		r.Labels = c.Complete(r.Labels)
		if r.Labels[LabelCapability] != p.Labels[LabelCapability] {
			if route, ok := c.routed.match(r.Labels[LabelMethod], r.Labels[LabelPath]); ok {
				s.Documents = append(s.Documents, recordedDocument(KindRoutes, NameRoutes, Routes{Routes: []Route{route}}))
			}
		}
		hits, missing := c.index.Match(r.Labels)
		for _, h := range hits[:min(len(hits), MaxBudgetsPerRequest+1)] {
			s.addBudget(c, h.Budget.Name)
		}
		if missing != nil {
			s.addBudget(c, missing.Budget)
		}
	}
	if s.Admission != nil {
		for _, line := range s.Admission.Lines {
			if !r.admits() {
				s.addBudget(c, line.Budget)
			}
		}
	}
	b, hit := c.blockOn(r, now)
	if !hit && r.Op == Extend && s.Admission != nil {
		b, hit = c.blockOnMore(r, s.Admission, now)
	}
	if hit {
		s.Documents = append(s.Documents, recordedDocument(KindBlock, b.name, b.Block))
	}
}

func (s *RecordedState) addBudget(c *Catalogue, name string) {
	if b, ok := c.budgets.get(name); ok {
		s.Budgets = append(s.Budgets, *b)
	}
}

func recordedDocument(kind, name string, body any) Document {
	text, err := json.Marshal(body)
	if err != nil {
		panic("a document that came from JSON: " + err.Error())
	}
	return Document{Kind: kind, Name: name, Version: 1, Body: text}
}

// recordedTerms are the terms of a budget cut down to what a decision at an instant can tell from them.
func (c *Catalogue) recordedTerms(budget string, now Instant) []Term {
	term, period, ok := c.period(budget, now)
	if !ok {
		return nil
	}
	term.Periods = Periods{Instants: []Instant{period.Start, period.End}}
	out := []Term{term}
	if until := c.CoveredUntil(budget, now); until > period.End {
		term.Periods = Periods{Instants: []Instant{period.End, until}}
		out = append(out, term)
	}
	return out
}

// noSalt stands for the salt of a recorded key, which is not kept.
const noSalt = "00000000000000000000000000000000"

// request is the request again. What the caller showed stands in it for the key that it was found to be.
func (q RecordedRequest) request() (Request, []Document) {
	r := Request{
		Op: q.Op, Key: q.Key, Generated: q.Generated, Labels: q.Labels, Costs: q.Costs, Lifetime: q.Lifetime, Priority: q.Priority,
		Correlation: q.Correlation, Fingerprint: q.Fingerprint,
	}
	if q.Shown == nil {
		return r, nil
	}
	r.Presented = Presented{Name: q.Shown.Name, Fingerprint: q.Shown.Fingerprint}
	if q.Shown.Known == nil {
		return r, nil
	}
	k := *q.Shown.Known
	if k.Salt, k.Hash = noSalt, ""; q.Shown.Proved {
		k.Hash = hex.EncodeToString(r.Presented.hash(noSalt))
	}
	return r, []Document{recordedDocument(KindKey, q.Shown.Fingerprint, k)}
}

// locked is the owner's state again, as far as it was kept.
func (s *RecordedState) locked(key IDKey, documents []Document) (*Locked, error) {
	l := &Locked{
		Now: s.Now, ClosedBefore: s.ClosedBefore, Stopped: s.Stopped, Incarnation: s.Incarnation, Revision: s.Revision, ObservedAt: s.ObservedAt,
		Node: s.Node, Usage: map[UsageKey]*Usage{}, Full: map[UsageKey]bool{}, None: map[UsageKey]bool{}, IDs: map[IDKey]*Admission{},
		LookedUp: func(IDKey) bool { return true }, Elsewhere: map[string]Elsewhere{},
		ChangedUsage: map[UsageKey]bool{}, Inserted: map[IDKey]bool{}, Updated: map[IDKey]bool{},
	}
	l.Catalogue = NewCatalogue(s.Region).With(s.Config, s.Budgets, s.Terms, nil).WithDocuments(append(documents, s.Documents...))
	for _, u := range s.Usage {
		l.Usage[u.UsageKey] = &u
	}
	for _, k := range s.Full {
		l.Full[k] = true
	}
	for _, k := range s.None {
		l.None[k] = true
	}
	for _, e := range s.Elsewhere {
		l.Elsewhere[e.Budget] = e
	}
	if s.Admission != nil {
		payload, err := hex.DecodeString(s.Payload)
		if err != nil {
			return nil, fmt.Errorf("the payload of the recorded admission is not hex: %w", err)
		}
		a := *s.Admission
		a.Payload, a.Lines = string(payload), slices.Clone(a.Lines)
		l.IDs[key] = &a
	}
	return l, nil
}

// Replay decides the recorded request again over what was recorded. A record that cannot be decided, for want of a row
// that the decision would need, is an error: it was cut or changed.
func (r Record) Replay() (Decision, error) {
	switch {
	case r.Format != RecordFormat:
		return Decision{}, fmt.Errorf("format %d: %w", r.Format, ErrRecordFormat)
	case r.Seen == nil:
		return Decision{}, ErrNotDecided
	}
	q, documents := r.Request.request()
	l, err := r.Seen.locked(q.Key, documents)
	if err != nil {
		return Decision{}, err
	}
	o := l.Decide(l.Catalogue.Plan(q, l.now()))
	if o.Again {
		return Decision{}, errors.New("the record lacks a row that the decision needs: a part of it was taken out, or changed")
	}
	return o.Decision, nil
}
