package allocation

import (
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func drawEvery(t *rapid.T) Window {
	return Window{Every: Duration(rapid.OneOf(
		rapid.SampledFrom([]int64{1, 10, 60, 3599, 3600, 43200}),
		rapid.Int64Range(int64(MinEvery), int64(MaxEvery))).Draw(t, "every"))}
}

// Alignment from 1970: two coordinators that start counting elsewhere would name
// different periods, also before 1970, where remainders are negative.
func TestEveryIsAligned(t *testing.T) {
	for _, c := range []struct{ every, now, start Instant }{
		{60, 0, 0}, {60, 59, 0}, {60, 60, 60}, {60, -1, -60}, {60, -60, -60}, {7, 6, 0}, {43200, 43199, 0}, {1, 5, 5},
	} {
		p, ok := Window{Every: Duration(c.every)}.PeriodAt(c.now)
		if want := (Period{Start: c.start, End: c.start + c.every}); !ok || p != want {
			t.Errorf("every %d: %d lies in %v, want %v", c.every, c.now, p, want)
		}
	}
}

// As for calendars: exactly one period for every instant.
func TestEveryPartitionsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, now := drawEvery(t), drawInstant(t, "now")
		p, ok := w.PeriodAt(now)
		if !ok || !p.Contains(now) || p.Start%Instant(w.Every) != 0 || p.End-p.Start != Instant(w.Every) {
			t.Fatalf("%s: %d lies in %v, %v", w, now, p, ok)
		}
		next, ok := w.Next(p)
		if after, _ := w.PeriodAt(p.End); !ok || next != after {
			t.Fatalf("%s: %v is followed by %v, or %v", w, p, next, after)
		}
	})
}

// A single period holds what lies within it and has no successor; without until it never ends.
func TestOnce(t *testing.T) {
	w := Window{Once: &Once{From: 1000, Until: 2000}}
	for now, want := range map[Instant]bool{999: false, 1000: true, 1999: true, 2000: false} {
		if _, ok := w.PeriodAt(now); ok != want {
			t.Errorf("at %d: %v", now, ok)
		}
	}
	if _, ok := w.Next(Period{Start: 1000, End: 2000}); ok {
		t.Error("once has a second period")
	}
	for _, until := range []Instant{0, Never} {
		endless := Window{Once: &Once{From: 1000, Until: until}}
		p, ok := endless.PeriodAt(latest - 1)
		if !ok || p != (Period{Start: 1000, End: Never}) || endless.Validate() != nil {
			t.Errorf("until %d: %v, %v, %v", until, p, ok, endless.Validate())
		}
	}
}

// A clock that shows the year 1 or 20000 gets no period, rather than one that arithmetic made up.
func TestNoPeriodForABrokenClock(t *testing.T) {
	for _, w := range []Window{{Every: 60}, {Calendar: "day"}, {Once: &Once{From: 1}}, {}, {Every: -5}, {Calendar: "eon"}, {Calendar: "day", Zone: "Local"}} {
		for _, now := range []Instant{earliest - 1, latest, Never, -Never, minInstant, maxInstant} {
			if p, ok := w.PeriodAt(now); ok {
				t.Errorf("%s: %s lies in %v", w, now, p)
			}
		}
		if _, ok := w.Next(Period{End: Never}); ok {
			t.Errorf("%s: something follows what never ends", w)
		}
	}
	for _, w := range []Window{{}, {Every: -5}, {Calendar: "eon"}, {Calendar: "day", Zone: "Nowhere/Land"}} {
		if p, ok := w.PeriodAt(1767225600); ok {
			t.Errorf("%s is not valid but has period %v", w, p)
		}
	}
}

// Every fault of a window names its field; a zone that means another thing on another machine is one.
func TestWindowValidateNamesTheField(t *testing.T) {
	for _, c := range []struct {
		window Window
		field  string
	}{
		{Window{}, "window"},
		{Window{Every: 60, Calendar: "day"}, "window"},
		{Window{Every: 12*Hour + 1}, "window.every"},
		{Window{Every: -1}, "window.every"},
		{Window{Calendar: "fortnight"}, "window.calendar"},
		{Window{Every: 60, Zone: "UTC"}, "window.zone"},
		{Window{Calendar: "day", Zone: "Europe/Atlantis"}, "window.zone"},
		{Window{Calendar: "day", Zone: "Local"}, "window.zone"},
		{Window{Calendar: "day", Zone: "localtime"}, "window.zone"},
		{Window{Calendar: "day", Zone: "../etc/passwd"}, "window.zone"},
		{Window{Once: &Once{}}, "window.once.from"},
		{Window{Once: &Once{From: Never}}, "window.once.from"},
		{Window{Once: &Once{From: 5, Until: 5}}, "window.once.until"},
		{Window{Once: &Once{From: 5, Until: maxInstant + 1}}, "window.once.until"},
	} {
		fault, ok := errors.AsType[*FieldError](c.window.Validate())
		if !ok || fault.Field != c.field || fault.Fix == "" {
			t.Errorf("%+v: %v, want a fault of %s", c.window, fault, c.field)
		}
	}
}

// The stored form must not change a window, and equal windows must not look like a change.
func TestWindowJSONAndEqual(t *testing.T) {
	for text, want := range map[string]Window{
		`{"every":"1m"}`: {Every: 60},
		`{"calendar":"month","zone":"Europe/Berlin"}`:              {Calendar: "month", Zone: "Europe/Berlin"},
		`{"calendar":"day"}`:                                       {Calendar: "day", Zone: "UTC"},
		`{"once":{"from":"1970-01-01T00:00:05Z"}}`:                 {Once: &Once{From: 5, Until: Never}},
		`{"once":{"from":"1970-01-01T00:00:05Z","until":"never"}}`: {Once: &Once{From: 5}},
	} {
		var w Window
		if err := json.Unmarshal([]byte(text), &w); err != nil || !w.Equal(want) || !want.Equal(w) {
			t.Errorf("%s is %s, %v; want %s", text, w, err, want)
		}
		if data, err := json.Marshal(w); err != nil || string(data) != text {
			t.Errorf("%s is written as %s, %v", text, data, err)
		}
	}
	different := []Window{{}, {Every: 60}, {Every: 61}, {Calendar: "day"}, {Calendar: "week"}, {Calendar: "day", Zone: "Europe/Berlin"}, {Once: &Once{From: 5}}, {Once: &Once{From: 5, Until: 6}}}
	for i, a := range different {
		for j, b := range different {
			if a.Equal(b) != (i == j) || (a.String() == b.String()) != (i == j) {
				t.Errorf("%s and %s", a, b)
			}
		}
	}
}
