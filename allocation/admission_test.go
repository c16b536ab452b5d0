package allocation

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A retry is the same request if its labels, operation and units are; the estimate may differ (invariant 6). If this
// fails an honest retry is refused, or one id admits two different requests.
func TestPayloadHash(t *testing.T) {
	same := request(Spend, "x", requests(1))
	for name, c := range map[string]struct {
		change func(*Request)
		same   bool
	}{
		"another estimate":  {func(r *Request) { r.Costs = requests(2) }, true},
		"another lifetime":  {func(r *Request) { r.Lifetime = Minute }, true},
		"another trace":     {func(r *Request) { r.Correlation = "2" }, true},
		"another operation": {func(r *Request) { r.Op = Reserve }, false},
		"another unit":      {func(r *Request) { r.Costs = map[string]int64{"requests": 1, "tokens": 1} }, false},
		"requests implied":  {func(r *Request) { r.Costs = nil }, true},
		"another label":     {func(r *Request) { r.Labels = Labels{"tenant": "acme", "caller": "lee"} }, false},
		"one label less":    {func(r *Request) { r.Labels = Labels{"tenant": "acme"} }, false},
	} {
		r := request(Spend, "x", requests(1))
		c.change(&r)
		if (r.PayloadHash() == same.PayloadHash()) != c.same || len(r.PayloadHash()) != 16 {
			t.Errorf("%s: the same payload is %v", name, !c.same)
		}
	}
}

// Everybody locks in one order, bytewise as Postgres' "C" collation. If this fails two transactions wait for each other.
func TestKeysAreOrderedBytewise(t *testing.T) {
	ids := []IDKey{{"A", "z", "z"}, {"a", "", "z"}, {"a", "b", "c"}, {"a", "b", "d"}, {"a", "c", "a"}, {"é", "a", "a"}}
	rows := []UsageKey{{"A", "z", 9, "z"}, {"a", "", 9, "z"}, {"a", "b", -1, "z"}, {"a", "b", 2, "a"}, {"a", "b", 2, "b"}, {"a", "b", 10, "a"}, {"a.b", "", 0, ""}, {"a/b", "", 0, ""}}
	for i := range ids {
		for j := range ids {
			if got := ids[i].Compare(ids[j]); got != compare(Instant(i), Instant(j)) {
				t.Errorf("%v and %v: %d", ids[i], ids[j], got)
			}
		}
	}
	for i := range rows {
		for j := range rows {
			if got := rows[i].Compare(rows[j]); got != compare(Instant(i), Instant(j)) {
				t.Errorf("%v and %v: %d", rows[i], rows[j], got)
			}
		}
	}
}

// decideModel is a naive second account of an owner: the counters are the sums over what each id was told.
type decideModel struct {
	*Locked
	ids    map[IDKey]*modelID
	rows   map[UsageKey]*modelRow
	before map[UsageKey]Usage
}

type modelRow struct{ granted, returned, target int64 }

type modelID struct {
	payload         string
	state           State
	expires, latest int64
	lines           []AdmissionLine
	settled         map[string]int64
}

func newDecideModel(t *rapid.T) *decideModel {
	scale := rapid.SampledFrom([]int64{20, 20, MaxUnits})
	all := []granted{
		{testBudget("a", "requests", scale.Draw(t, "limit")), 0},
		{testBudget("b", "tokens", scale.Draw(t, "limit")), 0},
		{testBudget("c/{caller}", "requests", scale.Draw(t, "limit")), 0},
		{testBudget("d", "tokens", scale.Draw(t, "limit")), 0},
	}
	all[1].Match, all[1].OnLapse, all[1].LongestReservation = map[string]string{"llm": "yes"}, OnLapseRelease, 2*Minute
	all[3].Match, all[3].Allocation = map[string]string{"paid": "yes"}, Policy{Policy: PolicyHome, Region: "here"}
	for i := range all {
		all[i].units = min(*all[i].Limit, rapid.SampledFrom([]int64{0, 10, 20, MaxUnits - 1}).Draw(t, "held"))
	}
	m := &decideModel{Locked: newOwner(all...), ids: map[IDKey]*modelID{}, rows: map[UsageKey]*modelRow{}}
	for k, u := range m.Usage {
		if k.Instance == "kim" {
			lee := *u
			lee.Instance = "lee"
			m.Usage[lee.UsageKey] = &lee
		}
	}
	for k, u := range m.Usage {
		m.rows[k] = &modelRow{granted: u.Granted, target: u.Target}
	}
	return m
}

// used is what all ids were charged of a row, and hold.
func (m *decideModel) used(k UsageKey) (spent, held, overdraft int64) {
	for _, id := range m.ids {
		for _, l := range id.lines {
			if l.UsageKey == k {
				spent, held, overdraft = spent+l.Spent, held+l.Held, overdraft+l.Overdraft
			}
		}
	}
	return spent, held, overdraft
}

func (m *decideModel) free(k UsageKey) int64 {
	spent, held, _ := m.used(k)
	r := m.rows[k]
	return max(0, min(r.granted-r.returned, r.target, m.Catalogue.limit(k))-spent-held)
}

// giveBack is what a row must have returned by now.
func (m *decideModel) giveBack(k UsageKey) {
	spent, held, _ := m.used(k)
	r := m.rows[k]
	if k.Instance == "" && r.granted-r.returned > max(r.target, spent+held) {
		r.returned = r.granted - max(r.target, spent+held)
	}
}

func (m *decideModel) over(l AdmissionLine) bool {
	return m.Stopped != "" || m.Usage[l.UsageKey].Sealed || l.Until <= m.ClosedBefore
}

// do decides a request and checks what it may have touched: nothing at all if it was refused or is a repetition, else
// only what is marked to be written.
func (m *decideModel) do(t *rapid.T, r Request, want Reason) Decision {
	rows, ids := map[UsageKey]Usage{}, map[IDKey]Admission{}
	for k, u := range m.Usage {
		rows[k] = *u
	}
	for k, a := range m.IDs {
		was := *a
		was.Lines = slices.Clone(a.Lines)
		ids[k] = was
	}
	clear(m.ChangedUsage)
	clear(m.Inserted)
	clear(m.Updated)
	d := m.put(r)
	if d.Reason != want {
		t.Fatalf("%s %s %v %v: %s, want %s (%s)", r.Op, r.Key.ID, r.Labels, r.Costs, d.Reason, want, d.Detail)
	}
	idle := !d.Admitted() || d.Replayed || r.Op == Check
	if idle && len(m.ChangedUsage)+len(m.Inserted)+len(m.Updated) > 0 {
		t.Fatalf("%s of %s is to be written, but was answered %s, replayed %v", r.Op, r.Key.ID, d.Reason, d.Replayed)
	}
	for k, u := range m.Usage {
		if *u != rows[k] && !m.ChangedUsage[k] {
			t.Fatalf("%s, answered %s, changed %v without marking it", r.Op, d.Reason, k)
		}
	}
	for k, a := range m.IDs {
		was, known := ids[k]
		if m.Inserted[k] == known || known && !m.Updated[k] && !reflect.DeepEqual(was, *a) {
			t.Fatalf("%s of %s, answered %s: known %v, inserted %v, updated %v", r.Op, k.ID, d.Reason, known, m.Inserted[k], m.Updated[k])
		}
	}
	return d
}

// anyOf draws without rapid's bias to the first ones.
func anyOf[T any](t *rapid.T, of ...T) T {
	n := 0
	for range 8 {
		n *= 2
		if rapid.Bool().Draw(t, "any") {
			n++
		}
	}
	return of[n*len(of)/256]
}

func drawRequest(t *rapid.T, ops ...Op) Request {
	r := request(anyOf(t, ops...), anyOf(t, "1", "2", "3", "4", "5", "6"), map[string]int64{})
	r.Labels["caller"] = rapid.SampledFrom([]string{"kim", "kim", "lee"}).Draw(t, "caller")
	r.Labels["llm"] = rapid.SampledFrom([]string{"yes", "no"}).Draw(t, "llm")
	r.Labels["paid"] = rapid.SampledFrom([]string{"yes", "no"}).Draw(t, "paid")
	for _, unit := range []string{"requests", "tokens"} {
		if anyOf(t, true, true, true, true, true, true, false) {
			r.Costs[unit] = rapid.OneOf(rapid.Int64Range(0, 9), rapid.SampledFrom([]int64{20, 21, MaxUnits/2 + 1, MaxUnits - 9, MaxUnits})).Draw(t, unit)
		}
	}
	r.Lifetime = Duration(rapid.SampledFrom([]int64{0, 30, 3000}).Draw(t, "lifetime"))
	return r
}
