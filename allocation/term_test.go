package allocation

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func drawWindow(t *rapid.T) Window {
	if rapid.Bool().Draw(t, "calendar") {
		return drawCalendar(t)
	}
	return drawEvery(t)
}

func drawRunsAlone(t *rapid.T) Duration {
	return Duration(rapid.OneOf(rapid.Int64Range(1, 600), rapid.Int64Range(1, int64(2*Day))).Draw(t, "runs alone"))
}

// The coverage promise: at every moment the opened terms reach the horizon, and
// less than a term beyond it. Less would stop a cut-off region too early, more
// would bind permits that a change can then not reach. And the terms tile: a gap
// refuses everybody, an overlap sells a period twice.
func TestTermsTileAndCover(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, alone, now := drawWindow(t), drawRunsAlone(t), drawInstant(t, "now")
		term, err := w.FirstTerm(now, alone, rapid.Uint64().Draw(t, "spread"))
		if err != nil {
			t.Fatal(err)
		}
		if i, ok := term.Find(now); !ok || i != 0 {
			t.Fatalf("%s lies in period %d of the first term, %v", now, i, ok)
		}
		horizon := Instant(w.Horizon(alone))
		for range 5 { // the clock goes on, and terms are opened as it does
			for term.End() < now+horizon {
				next, ok := w.NextTerm(term.End(), alone)
				if !ok || next.Start() != term.End() {
					t.Fatalf("%s: a term until %s is followed by one from %s, %v", w, term.End(), next.Start(), ok)
				}
				checkPeriods(t, w, next)
				term = next
			}
			// A term just opened began before the horizon, so it reaches less than its own length beyond.
			if term.End() < now+horizon || (term.Start() >= now+horizon && !term.At(0).Contains(now)) {
				t.Fatalf("%s at %s: horizon %s, last term %s to %s", w, now, now+horizon, term.Start(), term.End())
			}
			now += Instant(rapid.Int64Range(0, int64(horizon)).Draw(t, "later"))
		}
	})
}

// checkPeriods compares a full term with the window's own periods and length.
func checkPeriods(t *rapid.T, w Window, term Periods) {
	if err := term.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, term.Len() / 2, term.Len() - 1} {
		if p, ok := w.PeriodAt(term.At(i).Start); !ok || p != term.At(i) {
			t.Fatalf("%s: period %d of a term is %v, want %v", w, i, term.At(i), p)
		}
	}
}

// The numbers of the documentation: a quarter of six hours is 90 minutes.
func TestTermLengthAndHorizon(t *testing.T) {
	const alone = 6 * Hour
	for _, c := range []struct {
		window                 Window
		alone, length, horizon Duration
	}{
		{Window{Every: Minute}, alone, 90 * Minute, alone},
		{Window{Every: Second}, alone, 90 * Minute, alone},
		{Window{Every: 7 * Minute}, alone, 84 * Minute, alone},
		{Window{Every: 59 * Minute}, Hour, 59 * Minute, Hour},
		{Window{Every: Minute}, 2 * Minute, Minute, 2 * Minute},
		{Window{Every: Hour}, alone, Hour, alone},
		{Window{Every: Hour}, Minute, Hour, Hour},
		{Window{Every: 12 * Hour}, alone, 12 * Hour, 12 * Hour},
		{Window{Calendar: "day"}, alone, Day, Day},
		{Window{Calendar: "week"}, alone, 7 * Day, Day},
		{Window{Calendar: "month"}, 3 * Day, 31 * Day, 3 * Day},
		{Window{Calendar: "year"}, alone, 366 * Day, Day},
		{Window{Once: &Once{From: 5}}, alone, MaxDuration, alone},
		{Window{Once: &Once{From: 5, Until: 25}}, alone, 20, alone},
	} {
		if got := c.window.TermLength(c.alone); got != c.length {
			t.Errorf("%s: a term of %s, want %s", c.window, got, c.length)
		}
		if got := c.window.Horizon(c.alone); got != c.horizon {
			t.Errorf("%s: a horizon of %s, want %s", c.window, got, c.horizon)
		}
	}
}

// Without the spread a hundred thousand budgets that were applied together would
// all want their next term in the same second, for ever.
func TestFirstTermIsSpread(t *testing.T) {
	w := Window{Every: Minute}
	ends := map[Instant]int{}
	for spread := range uint64(900) {
		term, err := w.FirstTerm(1767225601, 6*Hour, spread)
		if err != nil || term.Len() < 1 || term.Len() > 90 {
			t.Fatalf("first term of %d periods, %v", term.Len(), err)
		}
		ends[term.End()]++
	}
	for end, n := range ends {
		if n != 10 {
			t.Errorf("%d of 900 end at %s, want 10", n, end)
		}
	}
	if len(ends) != 90 {
		t.Errorf("%d different ends, want 90", len(ends))
	}
}

// After a change of the window, or of the zone's data, the old terms end within
// a period. What follows must begin exactly there, and be back in step after one.
func TestNextTermInsideAPeriod(t *testing.T) {
	for _, c := range []struct {
		window       Window
		prevEnd, end Instant
	}{
		{Window{Every: Hour}, 90 * 60, 7200},
		{Window{Every: Minute}, 59, 60},
		{Window{Calendar: "day"}, 43200, 86400},
		{Window{Calendar: "day", Zone: "Europe/Berlin"}, 86400, 2*86400 - 3600}, // opened in UTC, changed to Berlin
	} {
		term, ok := c.window.NextTerm(c.prevEnd, 6*Hour)
		if !ok || term.Len() != 1 || term.At(0) != (Period{Start: c.prevEnd, End: c.end}) {
			t.Errorf("%s from %s: %+v, %v", c.window, c.prevEnd, term, ok)
		}
		next, _ := c.window.NextTerm(term.End(), 6*Hour)
		if p, _ := c.window.PeriodAt(c.end); next.At(0) != p {
			t.Errorf("%s: not back in step: %v, want %v", c.window, next.At(0), p)
		}
	}
}

// A single period is one term, known also before it begins; nothing follows it.
func TestOnceIsOneTerm(t *testing.T) {
	w := Window{Once: &Once{From: 1000, Until: 2000}}
	for _, now := range []Instant{0, 1000, 1999} {
		if term, err := w.FirstTerm(now, 6*Hour, 99); err != nil || term.Len() != 1 || term.At(0) != (Period{1000, 2000}) {
			t.Errorf("at %d: %+v, %v", now, term, err)
		}
	}
	if _, err := w.FirstTerm(2000, 6*Hour, 0); !errors.Is(err, ErrWindowOver) {
		t.Errorf("after its end: %v", err)
	}
	if _, ok := w.NextTerm(2000, 6*Hour); ok {
		t.Error("a term after the only one")
	}
	if _, ok := w.NextTerm(500, 6*Hour); ok {
		t.Error("a term that would leave a gap, or allow spending before the window begins")
	}
	if term, ok := w.NextTerm(1500, 6*Hour); !ok || term.At(0) != (Period{1500, 2000}) {
		t.Errorf("after a change to once: %+v, %v", term, ok)
	}
	endless := Window{Once: &Once{From: 1000}}
	if term, err := endless.FirstTerm(5000, 6*Hour, 0); err != nil || term.End() != Never || term.Validate() != nil {
		t.Errorf("without end: %+v, %v", term, err)
	}
	if _, ok := endless.NextTerm(Never, 6*Hour); ok {
		t.Error("a term after Never")
	}
}

// A broken clock or window opens nothing, rather than a term nobody will use.
func TestFirstTermRefuses(t *testing.T) {
	for _, now := range []Instant{earliest - 1, latest, Never} {
		if term, err := (Window{Every: 60}).FirstTerm(now, Hour, 0); err == nil {
			t.Errorf("at %s: %+v", now, term)
		}
	}
	if _, err := (Window{}).FirstTerm(0, Hour, 0); err == nil {
		t.Error("a term of no window")
	}
	if term, err := (Window{Every: 60}).FirstTerm(0, -Hour, 7); err != nil || term.Len() != 1 {
		t.Errorf("with a negative runsAlone: %+v, %v", term, err)
	}
	if _, ok := (Window{Calendar: "day"}).NextTerm(latest, Hour); ok {
		t.Error("a term after the year 8999")
	}
}
