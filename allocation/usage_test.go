package allocation

import (
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// Under any order of calls, the owner agrees with a model that only sums up what each id was told: never more than the
// share, once per id, all budgets or none. If this fails some order of calls spends beyond the share, charges an id
// twice, or leaves units held by nobody.
func TestDecideAgainstModel(t *testing.T) {
	for range 10 { // a hundred runs are too few to meet the rare orders
		rapid.Check(t, func(t *rapid.T) {
			m := newDecideModel(t)
			for range 40 {
				anyOf(t, m.admit, m.admit, m.admit, m.admit, m.settle, m.settle, m.release, m.extend, m.lapse,
					m.changeShare, m.changeShare, m.changeLimit, m.changeClock)(t)
				m.check(t)
			}
		})
	}
}

func (m *decideModel) admit(t *rapid.T) {
	r := drawRequest(t, Spend, Reserve, Check)
	plan := m.Catalogue.Plan(r, m.now())
	want, id := plan.Refusal, m.ids[r.Key]
	switch {
	case m.Stopped != "":
		want = m.Stopped
	case r.Op != Check && id != nil:
		switch {
		case id.lines != nil && id.payload != r.PayloadHash():
			want = AdmissionIDConflict
		case id.state == StateReleased || id.state == StateLapsedReleased:
			want = AdmissionIDReleased
		default:
			want = Allow
		}
		if d := m.do(t, r, want); want == Allow && (!d.Replayed || d.State != id.state) {
			t.Fatalf("a known id is answered %+v", d)
		}
		return
	case want == "":
		want = m.judgeAll(plan)
	}
	m.do(t, r, want)
	if want != Allow || r.Op == Check {
		return
	}
	longest := Hour
	id = &modelID{payload: r.PayloadHash(), state: StateSpent}
	for _, p := range plan.Lines {
		line := AdmissionLine{UsageKey: p.UsageKey, Until: p.Until, Unit: p.Budget.Unit, Requested: p.Cost, OnLapse: p.Budget.OnLapse, Spent: p.Cost}
		if r.Op == Reserve {
			line.Spent, line.Held, id.state = 0, p.Cost, StateReserved
		}
		if p.Budget.LongestReservation > 0 {
			longest = min(longest, p.Budget.LongestReservation)
		}
		id.lines = append(id.lines, line)
	}
	life := longest
	if r.Lifetime > 0 {
		life = min(life, r.Lifetime)
	}
	id.expires, id.latest = m.Now+int64(life)*1e6, m.Now+int64(longest)*1e6
	m.ids[r.Key] = id
}

// judgeAll is the answer by the counters: that of the first budget that does not admit.
func (m *decideModel) judgeAll(plan Plan) Reason {
	for _, p := range plan.Lines {
		spent, _, _ := m.used(p.UsageKey)
		limit := m.Catalogue.limit(p.UsageKey)
		switch {
		case m.Usage[p.UsageKey].Sealed:
			return Sealed
		case p.Until <= m.ClosedBefore:
			return ClockBehind
		case limit > 0 && p.Cost > limit:
			return CostExceedsLimit
		case limit == 0 || p.Cost > m.free(p.UsageKey) && spent+p.Cost > limit:
			return CeilingReached
		case p.Cost > m.free(p.UsageKey):
			return RegionShareSpent
		}
	}
	return Allow
}

func (m *decideModel) settle(t *rapid.T) {
	r := drawRequest(t, Settle)
	id := m.ids[r.Key]
	if id == nil || id.lines == nil {
		m.do(t, r, map[bool]Reason{true: AdmissionIDUnknown, false: AdmissionIDReleased}[id == nil])
		return
	}
	costs, charged := map[string]int64{}, map[string]int64{}
	for _, l := range id.lines {
		n, told := r.Costs[l.Unit]
		if !told && l.Unit == "tokens" {
			m.do(t, r, CostUnknown)
			return
		}
		if !told { // what the id stands for
			if n = l.Held + l.Spent; n == 0 {
				n = l.Requested
			}
			if id.state == StateSettled {
				n = id.settled[l.Unit]
			}
		}
		costs[l.Unit] = max(costs[l.Unit], n)
		charged[l.Unit] = l.Spent
	}
	if id.state == StateSettled {
		charged = id.settled
	}
	if id.state == StateSpent || id.state == StateSettled {
		m.do(t, r, map[bool]Reason{true: Allow, false: AdmissionIDConflict}[maps.Equal(costs, charged)])
		return
	}
	m.do(t, r, Allow)
	for i := range id.lines {
		l := &id.lines[i]
		room := l.Held
		l.Held = 0
		if !m.over(*l) {
			room = max(room, m.free(l.UsageKey))
		}
		if more := costs[l.Unit] - l.Spent; more > 0 {
			l.Spent += min(more, room)
			l.Overdraft = max(0, more-room)
		}
		m.giveBack(l.UsageKey)
	}
	id.state, id.settled = StateSettled, costs
}

func (m *decideModel) release(t *rapid.T) {
	r := drawRequest(t, Release)
	id := m.ids[r.Key]
	switch {
	case id == nil:
		m.do(t, r, Allow)
		m.ids[r.Key] = &modelID{state: StateReleased}
	case id.state == StateReserved:
		m.do(t, r, Allow)
		m.end(id, StateReleased, OnLapseRelease)
	case id.state == StateReleased || id.state == StateLapsedReleased:
		m.do(t, r, Allow)
	default:
		m.do(t, r, AdmissionIDSettled)
	}
}

// end ends what is held; by is what becomes of it, or empty for what each budget declares.
func (m *decideModel) end(id *modelID, s State, by string) {
	id.state = s
	for i := range id.lines {
		l := &id.lines[i]
		if by != OnLapseRelease && l.OnLapse != OnLapseRelease {
			l.Spent, id.state = l.Spent+l.Held, StateLapsedSpent
		}
		l.Held = 0
		m.giveBack(l.UsageKey)
	}
}

func (m *decideModel) lapse(t *rapid.T) { m.lapseOf(t, drawRequest(t, Lapse).Key) }

func (m *decideModel) lapseOf(t *rapid.T, key IDKey) {
	r := Request{Op: Lapse, Key: key}
	m.do(t, r, Allow)
	if id := m.ids[r.Key]; id != nil && id.state == StateReserved && id.expires <= m.Now {
		m.end(id, StateLapsedReleased, "")
	}
}

func (m *decideModel) extend(t *rapid.T) {
	r := drawRequest(t, Extend)
	id := m.ids[r.Key]
	if id != nil && id.state == StateReserved && id.expires <= m.Now {
		m.lapseOf(t, r.Key)
	}
	switch {
	case id == nil:
		m.do(t, r, AdmissionIDUnknown)
		return
	case id.state == StateReleased || id.state == StateLapsedReleased:
		m.do(t, r, AdmissionIDReleased)
		return
	case id.state != StateReserved:
		m.do(t, r, AdmissionIDSettled)
		return
	}
	for _, l := range id.lines {
		if more := r.Costs[l.Unit] - l.Held; more > 0 && (m.over(l) || more > m.free(l.UsageKey)) {
			m.do(t, r, m.refusesMore(l, more))
			return
		}
	}
	m.do(t, r, Allow)
	for i := range id.lines {
		id.lines[i].Held = max(id.lines[i].Held, r.Costs[id.lines[i].Unit])
	}
	if r.Lifetime > 0 {
		id.expires = max(id.expires, min(id.latest, m.Now+int64(r.Lifetime)*1e6))
	}
}

func (m *decideModel) refusesMore(l AdmissionLine, more int64) Reason {
	spent, _, _ := m.used(l.UsageKey)
	limit := m.Catalogue.limit(l.UsageKey)
	switch {
	case m.Stopped != "":
		return m.Stopped
	case m.Usage[l.UsageKey].Sealed:
		return Sealed
	case m.over(l):
		return ClockBehind
	case limit == 0 || spent+more > limit:
		return CeilingReached
	}
	return RegionShareSpent
}

// changeShare is a grant of a newer generation, or one that comes late.
func (m *decideModel) changeShare(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c/{caller}", "d"}).Draw(t, "budget")
	late := rapid.IntRange(0, 4).Draw(t, "late") == 0
	more := rapid.SampledFrom([]int64{0, 0, 5, MaxUnits / 2}).Draw(t, "more")
	target := rapid.SampledFrom([]int64{0, 3, 10, MaxUnits}).Draw(t, "target")
	for k, u := range m.Usage {
		if k.Budget != name {
			continue
		}
		e := GrantEntry{From: k.Period, Until: k.Period + 60, Class: General, Granted: min(u.Granted+more, MaxUnits), Target: target}
		s := Share{Budget: name, Template: u.Template, Version: 2, Generation: Generation{Number: u.Generation + 1}, Entries: []GrantEntry{e}}
		if late {
			s.Generation.Number = u.Generation - 1
		}
		*u = u.Take(s)
		if r := m.rows[k]; !late {
			r.granted, r.target = e.Granted, target
			m.giveBack(k)
		}
	}
}

func (m *decideModel) changeLimit(t *rapid.T) {
	c, _ := m.Catalogue.Budget(rapid.SampledFrom([]string{"a", "b", "c/{caller}", "d"}).Draw(t, "budget"))
	c.Version++
	c.Budget.Limit = units(rapid.SampledFrom([]int64{0, 7, 20, MaxUnits}).Draw(t, "limit"))
	c.Deleted = rapid.IntRange(0, 4).Draw(t, "deleted") == 0
	m.Catalogue = m.Catalogue.With(m.Catalogue.Number+1, []ConfiguredBudget{c}, nil, nil)
}

// changeClock moves the owner's clock within the first two periods, either way, and seldom ends one for good.
func (m *decideModel) changeClock(t *rapid.T) {
	m.Now = int64(firstMinute)*1e6 + rapid.Int64Range(0, 120e6-1).Draw(t, "now")
	switch rapid.IntRange(0, 12).Draw(t, "end") {
	case 0:
		m.ClosedBefore = max(m.ClosedBefore, rapid.SampledFrom([]Instant{secondMinute, secondMinute + 60}).Draw(t, "closed before"))
	case 1:
		for k, u := range m.Usage {
			u.Sealed = u.Sealed || k.Budget == "b" && k.Period == firstMinute
		}
	case 2:
		m.Stopped = HistoryLost
	case 3, 4, 5:
		m.Stopped = ""
	}
}

// check compares all counters with the model's sums, and with what they were.
func (m *decideModel) check(t *rapid.T) {
	now := map[UsageKey]Usage{}
	for k, u := range m.Usage {
		spent, held, overdraft := m.used(k)
		r, was := m.rows[k], m.before[k]
		switch {
		case u.Spent != spent || u.Reserved != held || u.Overdraft != overdraft || u.Granted != r.granted || u.Returned != r.returned:
			t.Fatalf("%+v\nis by what the ids were told spent %d, reserved %d, overdraft %d; granted %d, returned %d", *u, spent, held, overdraft, r.granted, r.returned)
		case spent+held > u.Granted-u.Returned || u.Overflowed() || u.Spendable(m.Catalogue.limit(k)) != m.free(k):
			t.Fatalf("overspent: %+v", *u)
		case u.Spent < was.Spent || u.Overdraft < was.Overdraft || u.Returned < was.Returned || u.Granted < was.Granted:
			t.Fatalf("a counter fell: %+v was %+v", *u, was)
		}
		now[k] = *u
	}
	m.before = now
	for k, a := range m.IDs {
		id := m.ids[k]
		if a.State != id.state || len(a.Lines) != len(id.lines) || a.State == StateReserved && (a.ExpiresAt != id.expires || a.Latest != id.latest) {
			t.Fatalf("%s is %+v, not %+v", k.ID, *a, *id)
		}
		for i, l := range a.Lines {
			w := id.lines[i]
			if l.UsageKey != w.UsageKey || l.Spent != w.Spent || l.Held != w.Held || l.Overdraft != w.Overdraft || l.Held > 0 && a.State != StateReserved {
				t.Fatalf("%s has %+v, not %+v", k.ID, l, w)
			}
		}
	}
	if len(m.IDs) != len(m.ids) {
		t.Fatalf("%d ids are remembered, not %d", len(m.IDs), len(m.ids))
	}
}
