package allocation

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// kept decides a request, records it, and reads the record back from its JSON.
func kept(t testing.TB, l *Locked, r Request) (Record, Decision) {
	t.Helper()
	p := l.Catalogue.Plan(r, l.now())
	o := l.Decide(p)
	if o.Again {
		t.Fatalf("%s of %s needs other rows", r.Op, r.Key.ID)
	}
	text, err := json.Marshal(l.Record(p, o.Decision))
	if err != nil {
		t.Fatal(err)
	}
	var back Record
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	return back, o.Decision
}

// sameAgain fails unless a record replays to what was decided, in every field, evidence included.
func sameAgain(t testing.TB, name string, r Record, d Decision) {
	t.Helper()
	again, err := r.Replay()
	if err != nil || !reflect.DeepEqual(again, d) {
		t.Errorf("%s: replayed as %+v, %v; decided was %+v", name, again, err, d)
	}
	if differ, err := r.Compare(); err != nil || len(differ) != 0 {
		t.Errorf("%s: %+v, %v", name, differ, err)
	}
}

// Every refusal that the pure function can make comes out the same from its record. If this fails, a record cannot tell an
// operator whether the rule in force then was followed.
func TestRecordsReplay(t *testing.T) {
	seen := map[Reason]bool{}
	for i, first := range faultsInOrder {
		for _, second := range faultsInOrder[i:] {
			if second.not == first.name || second.not == "row" && (first.name == "full" || first.name == "in no share") {
				continue
			}
			for _, op := range []Op{Spend, Check} {
				f := newFaulty(op, first, second)
				record, d := kept(t, f.Locked, f.r)
				sameAgain(t, first.name+" and "+second.name, record, d)
				seen[d.Reason] = true
			}
		}
	}
	for name, f := range moreRefusals() {
		record, d := kept(t, f.Locked, f.r)
		sameAgain(t, name, record, d)
		if d.Admitted() {
			t.Errorf("%s is admitted", name)
		}
		seen[d.Reason] = true
	}
	// What the node says by itself, and what nothing says any more.
	notDecided := []Reason{Allow, Frozen, Overloaded, DatabaseUnavailable, OutcomeUnknown}
	for _, a := range Answers() {
		if !seen[a.Reason] && !slices.Contains(notDecided, a.Reason) {
			t.Errorf("no record of %s was replayed", a.Reason)
		}
	}
}

// moreRefusals are those that no single fault of the table leads to.
func moreRefusals() map[string]*faulty {
	out := map[string]*faulty{}
	elsewhere := func(e Elsewhere) *faulty {
		f := newFaulty(Spend)
		f.row("A").Spent = 45
		e.Period, e.Limit, e.Generation = firstMinute, 100, 1
		f.Elsewhere["A"] = e
		return f
	}
	out["ceiling"] = elsewhere(Elsewhere{})
	out["stranded"] = elsewhere(Elsewhere{Stranded: 50})
	nothing := newFaulty(Spend)
	nothing.Catalogue = NewCatalogue("here")
	out["no budget"] = nothing
	for _, stopped := range []Reason{HistoryLost, Starting, Sealed} {
		f := newFaulty(Spend)
		f.Stopped = stopped
		out["stopped: "+string(stopped)] = f
	}
	for _, op := range []Op{Settle, Extend} { // a release of an unknown id is remembered, and answered
		out[string(op)+" of an unknown id"] = newFaulty(op)
	}
	for _, op := range []Op{Settle, Release, Extend} {
		f := newFaulty(Reserve)
		f.put(f.r)
		f.r.Op, f.r.Costs = Settle, map[string]int64{"requests": 1, "tokens": 3}
		f.put(f.r)
		f.r.Op, f.r.Costs = op, map[string]int64{"requests": 1, "tokens": 4}
		out[string(op)+" after a settle"] = f
	}
	endpoint := newFaulty(Spend)
	endpoint.r.Labels = Labels{"tenant": "acme", "caller": "kim", LabelMethod: "POST", LabelPath: "/v1/x/7"}
	routes := recordedDocument(KindRoutes, NameRoutes, Routes{Routes: []Route{{Path: "/v1/x/{n}", Capability: "model"}, {Path: "/v1/*", Capability: "other"}}})
	block := recordedDocument(KindBlock, "b-2", Block{Match: Labels{LabelCapability: "model"}, Until: firstMinute + 60, By: "op", Reason: "an incident"})
	endpoint.Catalogue = endpoint.Catalogue.WithDocuments([]Document{routes, block})
	out["block by an endpoint's capability"] = endpoint
	old := newFaulty(Spend, fault{make: func(f *faulty) {
		b := f.budget["A"]
		b.MaxEvidenceAge, b.OnStaleEvidence = Minute, OnStaleAdmit
	}})
	old.row("A").Spent = 45
	out["spent on stale evidence"] = old
	return out
}

// What is admitted at a lower quality, or in shadow only, is recorded as it was before its own charge.
func TestRecordsOfAdmissionsReplay(t *testing.T) {
	for _, op := range []Op{Spend, Reserve, Check} {
		l := laddered(&Ladder{Preset: LadderStandard})
		l.Usage[UsageKey{Budget: "a", Period: firstMinute, Class: General}].Spent = 40
		r := request(op, "x", requests(3))
		record, d := kept(t, l, r)
		if d.Action != ActionDegraded {
			t.Fatalf("%+v", d)
		}
		sameAgain(t, "degraded "+string(op), record, d)
		b := mode(testBudget("a", "requests", 100), Shadow)
		l = newOwner(granted{b, 2}, granted{testBudget("b", "requests", 100), 50})
		if record, d = kept(t, l, r); !d.Admitted() || d.Would == "" {
			t.Fatalf("%+v", d)
		}
		sameAgain(t, "in shadow "+string(op), record, d)
	}
}

// Any sequence of operations over several budgets: whatever is decided replays the same.
func TestRecordsReplayAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newDecideModel(t)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			r := drawRequest(t, Spend, Reserve, Reserve, Check, Settle, Release, Extend)
			r.Priority = rapid.SampledFrom(append(Priorities(), "")).Draw(t, "priority")
			p := m.Catalogue.Plan(r, m.now())
			o := m.Decide(p)
			if o.Again || o.Decision.Admitted() && !r.admits() || o.Decision.Replayed {
				continue
			}
			text, err := json.Marshal(m.Record(p, o.Decision))
			if err != nil {
				t.Fatal(err)
			}
			var back Record
			if err := json.Unmarshal(text, &back); err != nil {
				t.Fatal(err)
			}
			if differ, err := back.Compare(); err != nil || len(differ) > 0 {
				t.Fatalf("%s: %+v, %v\n%s", r.Op, differ, err, text)
			}
			if len(text) > 32<<10 {
				t.Fatalf("a record of %d bytes", len(text))
			}
		}
	})
}

// A record that was changed, in its evidence or in what was decided, does not come out the same. If this fails, "same" says
// nothing.
func TestTamperedRecordsDiffer(t *testing.T) {
	for name, tamper := range map[string]func(*Record){
		"the reason":                 func(r *Record) { r.Decision.Reason = CeilingReached },
		"what was left":              func(r *Record) { r.Decision.Budgets[0].Remaining++ },
		"the revision told":          func(r *Record) { r.Decision.Evidence.LedgerRevision = 99 },
		"the revision seen":          func(r *Record) { r.Seen.Revision = 99 },
		"what was spent":             func(r *Record) { r.Seen.Usage[0].Spent = 0 },
		"the share":                  func(r *Record) { r.Seen.Usage[0].Granted += 50 },
		"the limit":                  func(r *Record) { r.Seen.Budgets[0].Budget.Limit = units(5) },
		"the cost":                   func(r *Record) { r.Request.Costs["tokens"] = 1 },
		"the clock":                  func(r *Record) { r.Seen.Now += 1_000_000 },
		"that the owner was stopped": func(r *Record) { r.Seen.Stopped = Starting },
		"a row taken out":            func(r *Record) { r.Seen.Usage = r.Seen.Usage[1:] },
		"a budget taken out":         func(r *Record) { r.Seen.Budgets = r.Seen.Budgets[1:] },
	} {
		f := newFaulty(Spend)
		f.row("A").Spent = 45
		record, d := kept(t, f.Locked, f.r)
		if d.Reason != RegionShareSpent {
			t.Fatalf("%+v", d)
		}
		sameAgain(t, name, record, d)
		tamper(&record)
		if differ, err := record.Compare(); err == nil && len(differ) == 0 {
			t.Errorf("%s was changed, and it is the same", name)
		}
	}
}

// A record says how it cannot be replayed, and what was refused by the node alone is told apart from what is broken.
func TestRecordsThatCannotBeReplayed(t *testing.T) {
	r := RecordUndecided(request(Spend, "x", nil), Decision{Reason: Overloaded})
	if _, err := r.Replay(); !errors.Is(err, ErrNotDecided) {
		t.Error(err)
	}
	r.Format = 9
	if _, err := r.Compare(); !errors.Is(err, ErrRecordFormat) {
		t.Error(err)
	}
}

// No secret of a key is in a record, valid or not. If this fails, whoever reads the sample can use what it holds.
func TestRecordsHoldNoSecret(t *testing.T) {
	var text, salt string
	f := newFaulty(Spend, fault{make: withKey(func(k *Key) { k.Revoked = &Lifted{At: 1, By: "op"} })})
	for _, d := range f.Catalogue.Documents(KindKey) {
		k, err := d.Key()
		if err != nil {
			t.Fatal(err)
		}
		salt = k.Salt
		text = k.Hash
	}
	secret, _ := acmeKey(func(*Key) {})
	for _, r := range []Request{f.r, func() Request { r := f.r; r.Presented, _ = Present(secret + "x"); return r }()} {
		record, _ := kept(t, f.Locked, r)
		out, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		for _, hidden := range []string{secret, secret[len(secret)-20:], salt, text} {
			if hidden == "" || strings.Contains(string(out), hidden) {
				t.Errorf("%q is told, or there is none: %s", hidden, out)
			}
		}
	}
}
