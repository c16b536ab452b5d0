package allocation

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// The states that an id can be in, each made by calls. One budget of which 100 are held; 10 are asked for.
var reachState = map[string]func(*Locked){
	"(unknown)":       func(*Locked) {},
	"spent":           func(l *Locked) { l.ask(Spend, "x", requests(10)) },
	"reserved":        func(l *Locked) { l.ask(Reserve, "x", requests(10)) },
	"settled":         func(l *Locked) { l.ask(Reserve, "x", requests(10)); l.ask(Settle, "x", requests(7)) },
	"released":        func(l *Locked) { l.ask(Reserve, "x", requests(10)); l.ask(Release, "x", nil) },
	"lapsed_spent":    func(l *Locked) { l.ask(Reserve, "x", requests(10)); l.Now += 3600e6; l.ask(Lapse, "x", nil) },
	"lapsed_released": func(l *Locked) { l.ask(Reserve, "x", requests(10)); l.Now += 3600e6; l.ask(Lapse, "x", nil) },
}

func ownerIn(state string) *Locked {
	b := testBudget("a", "requests", 1000)
	if state == "lapsed_released" {
		b.OnLapse = OnLapseRelease
	}
	l := newOwner(granted{b, 100})
	reachState[state](l)
	return l
}

// The table that callers are told, in Decide's comment, is what the code does. If this fails one of the two lies.
func TestDocumentedStates(t *testing.T) {
	rows := documentedStates(t)
	if len(rows) != len(reachState) {
		t.Fatalf("%d states are documented, there are %d", len(rows), len(reachState))
	}
	ops := []func(*Locked) Decision{
		func(l *Locked) Decision {
			if l.IDs[request(Spend, "x", nil).Key] != nil && l.IDs[request(Spend, "x", nil).Key].Op == Spend {
				return l.ask(Spend, "x", requests(10))
			}
			return l.ask(Reserve, "x", requests(10))
		},
		func(l *Locked) Decision {
			cost := int64(10)
			if a := l.IDs[request(Settle, "x", nil).Key]; a != nil && a.State == StateSettled {
				cost = 7
			}
			return l.ask(Settle, "x", requests(cost))
		},
		func(l *Locked) Decision { return l.ask(Release, "x", nil) },
		func(l *Locked) Decision { return l.ask(Extend, "x", requests(20)) },
	}
	for state, cells := range rows {
		for i, op := range ops {
			l := ownerIn(state)
			before := l.everything()
			d := op(l)
			if problem := contradictsCell(cells[i], d, before != l.everything()); problem != "" {
				t.Errorf("%s, column %d: documented as %q, but %s", state, i+1, cells[i], problem)
			}
		}
	}
	// The last column: only a reservation ends by itself.
	for state, cells := range rows {
		l := ownerIn(state)
		l.Now += 7200e6
		before := l.everything()
		d := l.ask(Lapse, "x", nil)
		if cells[4] == "–" && (l.everything() != before || !d.Admitted()) {
			t.Errorf("%s changed when its time was over", state)
		}
		if cells[4] != "–" && !slices.Contains(strings.Split(cells[4], " | "), string(d.State)) {
			t.Errorf("%s became %q when its time was over; documented is %q", state, d.State, cells[4])
		}
	}
}

// documentedStates reads the table in Decide's comment.
func documentedStates(t *testing.T) map[string][]string {
	source, err := os.ReadFile("decide.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(source), "reserve/spend")
	_, table, _ = strings.Cut(table, "\n")
	table, _, closed := strings.Cut(table, "//\n")
	if !found || !closed {
		t.Fatal("decide.go has no table of states")
	}
	rows := map[string][]string{}
	for line := range strings.Lines(table) {
		var cells []string
		for cell := range strings.SplitSeq(strings.TrimSpace(strings.TrimPrefix(line, "//")), "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		if len(cells) != 6 {
			t.Fatalf("a row of the table of states has %d cells: %q", len(cells), line)
		}
		rows[cells[0]] = cells[1:]
	}
	return rows
}

func contradictsCell(cell string, d Decision, changed bool) string {
	want := map[string]struct {
		status   int
		state    State
		replayed bool
		changed  bool
	}{
		"admits or not":        {200, StateReserved, false, true},
		"404":                  {404, "", false, false},
		"409":                  {409, d.State, false, false},
		"replay":               {200, d.State, true, false},
		"again":                {200, d.State, true, false},
		"same costs: again":    {200, d.State, true, false},
		"released, remembered": {200, StateReleased, false, true},
		"released":             {200, StateReleased, false, true},
		"settled":              {200, StateSettled, false, true},
		"settled, as it fits":  {200, StateSettled, false, true},
		"settled, above only":  {200, StateSettled, false, true},
		"extended":             {200, StateReserved, false, true},
	}
	w, ok := want[cell]
	switch got := AnswerTo(d.Reason).Status; {
	case !ok:
		return "the test knows no such cell"
	case got != w.status || d.State != w.state || d.Replayed != w.replayed || changed != w.changed:
		return fmt.Sprintf("the answer is %d %s, state %q, replayed %v, changed %v", got, d.Reason, d.State, d.Replayed, changed)
	}
	return ""
}

// What each call does to the counters, before the period is over and after. A wrong number here charges a caller too
// much, or lets a region spend what it already gave back.
func TestReservationCounters(t *testing.T) {
	for _, c := range []struct {
		state  string
		op     Op
		cost   int64
		reason Reason
		after  State
		open   string // spent/reserved/overdraft
		shut   string // the same after the period was closed, or sealed, or while the owner is stopped
	}{
		{"reserved", Settle, 0, Allow, StateSettled, "0/0/0", "0/0/0"},
		{"reserved", Settle, 4, Allow, StateSettled, "4/0/0", "4/0/0"},
		{"reserved", Settle, 10, Allow, StateSettled, "10/0/0", "10/0/0"},
		{"reserved", Settle, 15, Allow, StateSettled, "15/0/0", "10/0/5"},
		{"reserved", Settle, 100, Allow, StateSettled, "100/0/0", "10/0/90"},
		{"reserved", Settle, 130, Allow, StateSettled, "100/0/30", "10/0/120"},
		{"reserved", Settle, MaxUnits, Allow, StateSettled, fmt.Sprint("100/0/", MaxUnits-100), fmt.Sprint("10/0/", MaxUnits-10)},
		{"reserved", Release, 0, Allow, StateReleased, "0/0/0", "0/0/0"},
		{"reserved", Extend, 25, Allow, StateReserved, "0/25/0", ""},
		{"reserved", Extend, 100, Allow, StateReserved, "0/100/0", ""},
		{"reserved", Extend, 101, RegionShareSpent, StateReserved, "0/10/0", ""},
		{"reserved", Extend, 5, Allow, StateReserved, "0/10/0", "0/10/0"},
		{"reserved", Lapse, 0, Allow, StateReserved, "0/10/0", "0/10/0"}, // its time is not over
		{"released", Settle, 4, Allow, StateSettled, "4/0/0", "0/0/4"},
		{"released", Settle, 130, Allow, StateSettled, "100/0/30", "0/0/130"},
		{"released", Release, 0, Allow, StateReleased, "0/0/0", "0/0/0"},
		{"released", Extend, 20, AdmissionIDReleased, StateReleased, "0/0/0", "0/0/0"},
		{"lapsed_spent", Settle, 4, Allow, StateSettled, "10/0/0", "10/0/0"}, // spent never falls
		{"lapsed_spent", Settle, 15, Allow, StateSettled, "15/0/0", "10/0/5"},
		{"lapsed_spent", Settle, 130, Allow, StateSettled, "100/0/30", "10/0/120"},
		{"lapsed_spent", Release, 0, AdmissionIDSettled, StateLapsedSpent, "10/0/0", "10/0/0"},
		{"lapsed_released", Settle, 4, Allow, StateSettled, "4/0/0", "0/0/4"},
		{"lapsed_released", Release, 0, Allow, StateLapsedReleased, "0/0/0", "0/0/0"},
		{"lapsed_released", Extend, 20, AdmissionIDReleased, StateLapsedReleased, "0/0/0", "0/0/0"},
		{"settled", Settle, 7, Allow, StateSettled, "7/0/0", "7/0/0"},
		{"settled", Settle, 8, AdmissionIDConflict, StateSettled, "7/0/0", "7/0/0"},
		{"settled", Release, 0, AdmissionIDSettled, StateSettled, "7/0/0", "7/0/0"},
		{"settled", Extend, 20, AdmissionIDSettled, StateSettled, "7/0/0", "7/0/0"},
		{"spent", Settle, 10, Allow, StateSpent, "10/0/0", "10/0/0"},
		{"spent", Settle, 9, AdmissionIDConflict, StateSpent, "10/0/0", "10/0/0"},
		{"spent", Settle, 11, AdmissionIDConflict, StateSpent, "10/0/0", "10/0/0"},
		{"spent", Release, 0, AdmissionIDSettled, StateSpent, "10/0/0", "10/0/0"},
		{"spent", Extend, 20, AdmissionIDSettled, StateSpent, "10/0/0", "10/0/0"},
	} {
		name := fmt.Sprintf("%s, %s %d", c.state, c.op, c.cost)
		check := func(how string, l *Locked, reason Reason, want string) {
			t.Helper()
			d := l.ask(c.op, "x", requests(c.cost))
			if got := l.account("a"); d.Reason != reason || got != want || l.IDs[request(c.op, "x", nil).Key].State != c.after {
				t.Errorf("%s, %s: %s, %s; want %s, %s, %s", name, how, d.Reason, got, reason, want, c.after)
			}
			before := l.everything() // a second time it changes nothing
			if again := l.ask(c.op, "x", requests(c.cost)); again.Reason != reason || l.everything() != before {
				t.Errorf("%s, %s, again: %s\n%s\n%s", name, how, again.Reason, before, l.everything())
			}
		}
		check("open", ownerIn(c.state), c.reason, c.open)
		for _, how := range []string{"closed", "sealed", "stopped"} {
			l := ownerIn(c.state)
			reason, want := c.reason, c.shut
			if want == "" { // more units: there are none any more
				reason, want = shut(l, how), "0/10/0"
			} else {
				shut(l, how)
			}
			check(how, l, reason, want)
		}
	}
}

// shut ends all periods in one of the ways there are, and says how that is answered.
func shut(l *Locked, how string) Reason {
	switch how {
	case "closed":
		l.ClosedBefore = secondMinute + 60
		return ClockBehind
	case "sealed":
		for _, u := range l.Usage {
			u.Sealed = true
		}
		return Sealed
	}
	l.Stopped = HistoryLost
	return HistoryLost
}

// A reservation counts in the period in which it was made, whenever it is settled. If this fails, a request that runs
// over a boundary is charged to a period that its estimate was not taken from.
func TestReservationKeepsItsPeriod(t *testing.T) {
	l := ownerIn("reserved")
	l.Now = int64(secondMinute+5) * 1_000_000
	l.ask(Extend, "x", requests(20))
	l.ask(Settle, "x", requests(30))
	if got := l.account("a"); got != "30/0/0" {
		t.Errorf("the first period has %s", got)
	}
	if u := l.Usage[UsageKey{Budget: "a", Period: secondMinute, Class: General}]; u.Spent+u.Reserved != 0 {
		t.Errorf("the second period was charged %d", u.Spent)
	}
	if d := l.ask(Reserve, "x", requests(10)); !d.Replayed || d.Budgets[0].Period != firstMinute || d.Budgets[0].Charged != 30 {
		t.Errorf("the replay in the second period answers %+v", d.Budgets[0])
	}
}

// Budgets of one request each have their own on_lapse. If this fails a lapsed estimate is kept or given back against the
// owner's declaration, or charged twice by a late settle.
func TestLapseOfSeveralBudgets(t *testing.T) {
	spend, release := testBudget("a", "requests", 1000), testBudget("b", "requests", 1000)
	release.OnLapse = OnLapseRelease
	for _, c := range []struct {
		cost int64
		a, b string
	}{
		{4, "10/0/0", "4/0/0"},
		{10, "10/0/0", "10/0/0"},
		{60, "60/0/0", "50/0/10"},
	} {
		l := newOwner(granted{spend, 100}, granted{release, 50})
		l.ask(Reserve, "x", requests(10))
		l.Now += 3600e6
		if d := l.ask(Lapse, "x", nil); d.State != StateLapsedSpent || l.account("a") != "10/0/0" || l.account("b") != "0/0/0" {
			t.Fatalf("lapsed to %s, %s and %s", d.State, l.account("a"), l.account("b"))
		}
		if d := l.ask(Reserve, "x", requests(10)); !d.Replayed || d.State != StateLapsedSpent {
			t.Errorf("a replay answers %s, %s", d.Reason, d.State)
		}
		l.ask(Settle, "x", requests(c.cost))
		if l.account("a") != c.a || l.account("b") != c.b {
			t.Errorf("settled %d: %s and %s, want %s and %s", c.cost, l.account("a"), l.account("b"), c.a, c.b)
		}
	}
}

// A release that overtakes its reserve is remembered. If this fails, a caller that gave up still holds units until they lapse.
func TestReleaseOvertakesReserve(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 100})
	if d := l.ask(Release, "x", nil); !d.Admitted() || d.Detail == "" {
		t.Errorf("the release is answered %s %q", d.Reason, d.Detail)
	}
	for _, op := range []Op{Reserve, Spend, Settle, Extend} {
		if d := l.ask(op, "x", requests(10)); d.Reason != AdmissionIDReleased || l.account("a") != "0/0/0" {
			t.Errorf("%s after it: %s, %s", op, d.Reason, l.account("a"))
		}
	}
	if d := l.ask(Release, "x", nil); !d.Admitted() || !d.Replayed {
		t.Errorf("the second release is answered %s", d.Reason)
	}
}

// Extending is all or nothing over the budgets, and never past the longest reservation. If this fails a call that was
// refused holds units, or a reservation outlives its bound.
func TestExtend(t *testing.T) {
	wide, narrow := testBudget("a", "requests", 1000), testBudget("b/{caller}", "requests", 1000)
	wide.LongestReservation = 2 * Minute
	l := newOwner(granted{wide, 100}, granted{narrow, 15})
	r := request(Reserve, "x", requests(10))
	r.Lifetime = Minute
	if d := l.put(r); d.Expires != l.Now+60e6 {
		t.Errorf("it expires at %d, now is %d", d.Expires, l.Now)
	}
	made := l.Now
	d := l.ask(Extend, "x", requests(20))
	if d.Reason != RegionShareSpent || d.Blames != "b/{caller} [kim]" || d.State != StateReserved || l.account("a") != "0/10/0" {
		t.Errorf("answered %s of %q, state %s; a has %s", d.Reason, d.Blames, d.State, l.account("a"))
	}
	r = request(Extend, "x", requests(12))
	r.Lifetime = Hour
	if d := l.put(r); !d.Admitted() || d.Expires != made+120e6 || l.account("a") != "0/12/0" || l.account("b/{caller}") != "0/12/0" {
		t.Errorf("extended: %s, expires at %d; %s", d.Reason, d.Expires, l.account("a"))
	}
	r.Lifetime = Second
	if d := l.put(r); d.Expires != made+120e6 {
		t.Errorf("a shorter time brought the end forward to %d", d.Expires)
	}
	l.Now = made + 120e6 - 1
	if d := l.ask(Lapse, "x", nil); l.account("a") != "0/12/0" {
		t.Errorf("it lapsed before its time: %s", d.State)
	}
	l.Now++
	if d := l.ask(Lapse, "x", nil); d.State != StateLapsedSpent || l.account("a") != "12/0/0" {
		t.Errorf("its time is over, but it is %s, %s", d.State, l.account("a"))
	}
}

// A true cost must be told in every unit but requests. If this fails a settle without tokens would record none.
func TestSettleNamesEveryUnit(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 100}, granted{testBudget("b", "tokens", 5000), 3000})
	l.ask(Reserve, "x", map[string]int64{"tokens": 1000})
	if d := l.ask(Settle, "x", requests(1)); d.Reason != CostUnknown || l.account("b") != "0/1000/0" {
		t.Errorf("without tokens: %s, %s", d.Reason, l.account("b"))
	}
	d := l.ask(Settle, "x", map[string]int64{"tokens": 1200, "pages": 9})
	if !d.Admitted() || l.account("a") != "1/0/0" || l.account("b") != "1200/0/0" || d.Budgets[1].Remaining != 1800 {
		t.Errorf("%s: %s and %s, remaining %d", d.Reason, l.account("a"), l.account("b"), d.Budgets[1].Remaining)
	}
	if want := map[string]int64{"requests": 1, "tokens": 1200}; !maps.Equal(l.IDs[d.Key].Settled, want) {
		t.Errorf("remembered as %v", l.IDs[d.Key].Settled)
	}
}

// What speaks of an admission whose rows are not locked goes to the next batch and changes nothing. If this fails units
// are taken from a row that somebody else is changing.
func TestAdmissionsNeedTheirRows(t *testing.T) {
	for _, op := range []Op{Settle, Release, Extend, Lapse} {
		l := newOwner(granted{testBudget("a", "requests", 100), 50}, granted{testBudget("b", "requests", 100), 50})
		l.ask(Reserve, "x", requests(10))
		l.Now += 3600e6
		delete(l.Usage, UsageKey{Budget: "b", Period: firstMinute, Class: General})
		before := l.everything()
		if out := l.Decide(Plan{Request: request(op, "x", requests(20))}); !out.Again || l.everything() != before {
			t.Errorf("%s: %+v", op, out)
		}
	}
}

// What was done now is dated now, on today's evidence. An overdraft stays at the end of int64 rather than turn negative.
func TestSettleIsDatedNow(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 50})
	first := l.ask(Reserve, "x", requests(10))
	l.Now, l.Revision = l.Now+5e6, 9
	u := l.Usage[UsageKey{Budget: "a", Period: firstMinute, Class: General}]
	u.Overdraft = math.MaxInt64 - 5
	d := l.ask(Settle, "x", requests(MaxUnits))
	if d.At != first.At+5e6 || d.Evidence.LedgerRevision != 9 || d.Budgets[0].Remaining != 0 || d.Budgets[0].Share != 50 {
		t.Errorf("settled: %+v", d)
	}
	if u.Overdraft != math.MaxInt64 || d.Budgets[0].Overdraft != MaxUnits-50 || u.Overflowed() {
		t.Errorf("overdraft %d, of this admission %d", u.Overdraft, d.Budgets[0].Overdraft)
	}
}

// What is freed above a lowered target goes back at once (invariant 4). If this fails, a lowered limit never comes
// down where reservations end after it, or it is sold again here.
func TestFreedAboveTargetGoesBack(t *testing.T) {
	for _, c := range []struct {
		op       Op
		onLapse  string
		returned int64
	}{{Settle, "", 71}, {Release, "", 75}, {Lapse, OnLapseRelease, 75}, {Lapse, OnLapseSpend, 65}} {
		b := testBudget("a", "requests", 1000)
		b.OnLapse = c.onLapse
		l := newOwner(granted{b, 100})
		l.ask(Reserve, "x", requests(10))
		l.ask(Spend, "y", requests(25))
		u := l.Usage[UsageKey{Budget: "a", Period: firstMinute, Class: General}]
		u.Target = 20
		if u.giveBack(); u.Returned != 65 {
			t.Fatalf("returned %d of 100, of which 35 are in use", u.Returned)
		}
		l.Now += 3600e6
		if l.ask(c.op, "x", requests(4)); u.Returned != c.returned || u.Overflowed() {
			t.Errorf("%s: returned %d, want %d", c.op, u.Returned, c.returned)
		}
	}
}

// Without this a reservation whose time is over could be brought back, beyond its longest lifetime, until somebody swept it.
func TestExtendComesTooLate(t *testing.T) {
	for onLapse, want := range map[string]Reason{OnLapseSpend: AdmissionIDSettled, OnLapseRelease: AdmissionIDReleased} {
		b := testBudget("a", "requests", 1000)
		b.OnLapse = onLapse
		l := newOwner(granted{b, 1000})
		l.ask(Reserve, "x", requests(10))
		l.Now += 3600e6
		if d := l.ask(Extend, "x", requests(20)); d.Reason != want {
			t.Errorf("on_lapse %s: %s, want %s", onLapse, d.Reason, want)
		}
	}
}

// Without this a settle that leaves the requests out would charge the first estimate of a reservation that was extended.
func TestSettleDefaultsToWhatIsHeld(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 1000), 1000})
	l.ask(Reserve, "x", requests(10))
	l.ask(Extend, "x", requests(20))
	for range 2 {
		if d := l.ask(Settle, "x", nil); !d.Admitted() || l.account("a") != "20/0/0" {
			t.Errorf("%s: %s", d.Reason, l.account("a"))
		}
	}
}

// Without this a caller would be told to wait for the period's end while a reservation may be released any moment.
func TestReservedIsNotSpent(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 10), 10})
	l.ask(Reserve, "x", requests(10))
	if d := l.ask(Spend, "y", requests(1)); d.Reason != RegionShareSpent {
		t.Errorf("%s, want region_share_spent", d.Reason)
	}
	l.ask(Settle, "x", requests(10))
	if d := l.ask(Spend, "y", requests(1)); d.Reason != CeilingReached {
		t.Errorf("%s, want ceiling_reached", d.Reason)
	}
}
