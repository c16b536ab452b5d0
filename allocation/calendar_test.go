package allocation

import (
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no zones of their own

	"pgregory.net/rapid"
)

func instantOf(t *testing.T, text string) Instant {
	t.Helper()
	var i Instant
	if err := i.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return i
}

// Known dates. A start that is off by an hour at a change of the clock gives two
// regions with different data two different, overlapping periods.
func TestCalendarKnownDates(t *testing.T) {
	for _, c := range []struct{ why, unit, zone, start, end string }{
		{"plain", "day", "", "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"leap day", "month", "UTC", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"no leap day in 2100", "month", "UTC", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"},
		{"year", "year", "Europe/Berlin", "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z"},
		{"month with a change", "month", "Europe/Berlin", "2026-02-28T23:00:00Z", "2026-03-31T22:00:00Z"},
		{"23 hours", "day", "Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"25 hours", "day", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"week from Monday", "week", "Europe/Berlin", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"week over the year's end", "week", "UTC", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z"},
		{"no midnight", "day", "America/Santiago", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z"},
		{"the day before it", "day", "America/Santiago", "2026-09-05T04:00:00Z", "2026-09-06T04:00:00Z"},
		{"midnight twice, 24:00 back to 23:00", "day", "America/Santiago", "2026-04-04T03:00:00Z", "2026-04-05T04:00:00Z"},
		{"no midnight", "day", "America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"midnight twice", "day", "America/Sao_Paulo", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"},
		{"no midnight", "day", "Africa/Cairo", "2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"},
		{"no midnight", "day", "Asia/Beirut", "2026-03-28T22:00:00Z", "2026-03-29T21:00:00Z"},
		{"before the missing day", "day", "Pacific/Apia", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"after the missing day", "day", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"week with a missing day", "week", "Pacific/Apia", "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z"},
		{"a year short of its last day", "year", "Pacific/Kiritimati", "1994-01-01T10:00:00Z", "1994-12-31T10:00:00Z"},
		{"47 hours, 23 of them twice", "day", "Pacific/Kwajalein", "1969-09-29T13:00:00Z", "1969-10-01T12:00:00Z"},
		{"26 hours", "day", "Antarctica/Troll", "2026-10-24T22:00:00Z", "2026-10-26T00:00:00Z"},
		{"24.5 hours", "day", "Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-05T13:30:00Z"},
		{"23.5 hours", "day", "Australia/Lord_Howe", "2026-10-03T13:30:00Z", "2026-10-04T13:00:00Z"},
		{"no midnight", "day", "America/Havana", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"00:00 to 00:59 twice", "day", "America/Havana", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"00:01 back to 23:01", "day", "America/St_Johns", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z"},
		{"offset of 45 minutes", "month", "Asia/Kathmandu", "2026-04-30T18:15:00Z", "2026-05-31T18:15:00Z"},
	} {
		w := Window{Calendar: c.unit, Zone: c.zone}
		want := Period{Start: instantOf(t, c.start), End: instantOf(t, c.end)}
		for now := want.Start; now < want.End; now += (want.End-want.Start)/7 + 1 {
			if p, ok := w.PeriodAt(now); !ok || p != want {
				t.Errorf("%s, %s: %s lies in %s to %s, want %s to %s", w, c.why, now, p.Start, p.End, want.Start, want.End)
			}
		}
		if p, _ := w.PeriodAt(want.End - 1); p != want {
			t.Errorf("%s, %s: the last second lies in %s to %s", w, c.why, p.Start, p.End)
		}
		if p, _ := w.PeriodAt(want.End); p.Start != want.End {
			t.Errorf("%s, %s: the next period starts at %s, want %s", w, c.why, p.Start, want.End)
		}
	}
}

// At 02:45Z the clocks of St John's show the day before, which is over: the date
// shown must not bring a closed period back.
func TestCalendarClockSetBackOverMidnight(t *testing.T) {
	w := Window{Calendar: "day", Zone: "America/St_Johns"}
	p, _ := w.PeriodAt(instantOf(t, "2006-10-29T02:45:00Z"))
	if want := instantOf(t, "2006-10-29T02:30:00Z"); p.Start != want {
		t.Errorf("23:15 for the second time lies in the period of %s, want %s", p.Start, want)
	}
}

// On the last day of a leap year Go's ZoneBounds answers an end that has passed;
// walking along it hung for ever, in a year when nobody remembers why.
func TestCalendarLastDayOfLeapYears(t *testing.T) {
	for _, zone := range testedZones {
		for year := 1904; year < 2200; year += 4 {
			now := At(time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC))
			for range 3 {
				w := Window{Calendar: "day", Zone: zone}
				if p, ok := w.PeriodAt(now); !ok || !p.Contains(now) {
					t.Errorf("%s: %s lies in %v, %v", w, now, p, ok)
				}
				now += Instant(12 * Hour)
			}
		}
	}
}

var testedZones = []string{
	"", "UTC", "Europe/Berlin", "Europe/Dublin", "Europe/Lisbon", "America/New_York", "America/Santiago", "America/Sao_Paulo", "Africa/Cairo",
	"Asia/Beirut", "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein", "Australia/Lord_Howe", "America/Havana", "America/St_Johns",
	"Asia/Kathmandu", "Asia/Tehran", "Asia/Gaza", "Africa/Casablanca", "Africa/Monrovia", "Antarctica/Troll", "Asia/Manila", "America/Asuncion",
	"Etc/GMT+12", "Etc/GMT-14",
}

func drawCalendar(t *rapid.T) Window {
	return Window{
		Calendar: rapid.SampledFrom([]string{"day", "week", "month", "year"}).Draw(t, "unit"),
		Zone:     rapid.SampledFrom(testedZones).Draw(t, "zone"),
	}
}

func drawInstant(t *rapid.T, label string) Instant {
	from, until := At(time.Date(1901, 1, 1, 0, 0, 0, 0, time.UTC)), At(time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC))
	return Instant(rapid.Int64Range(int64(from), int64(until)).Draw(t, label))
}

// Every instant belongs to exactly one period, in every zone; anything else
// sells an instant twice or leaves it without a budget.
func TestCalendarPartitionsTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, now := drawCalendar(t), drawInstant(t, "now")
		p, ok := w.PeriodAt(now)
		if !ok || !p.Contains(now) {
			t.Fatalf("%s: %s lies in %s to %s, %v", w, now, p.Start, p.End, ok)
		}
		for _, same := range []Instant{p.Start, p.End - 1} {
			if other, _ := w.PeriodAt(same); other != p {
				t.Fatalf("%s: %s lies in %v as well as %v", w, same, other, p)
			}
		}
		next, ok := w.Next(p)
		if after, _ := w.PeriodAt(p.End); !ok || next.Start != p.End || next != after {
			t.Fatalf("%s: %v is followed by %v, or %v", w, p, next, after)
		}
		if length := Duration(p.End - p.Start); length > w.nominal()+Day || 2*length < w.nominal() && w.Calendar != "day" {
			t.Fatalf("%s: a period of %s", w, length)
		}
	})
}

// firstInstant against looking at every minute: it jumps over stretches of equal
// offset, and a wrong jump shows only at rare dates.
func TestFirstInstantIsTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(testedZones[1:]).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		// From 1973 on every offset of these zones is in whole minutes. Half of the draws lie at a change.
		at := time.Date(1973, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(rapid.IntRange(0, 365*60*24).Draw(t, "hours")) * time.Hour).In(zone)
		if _, end := at.ZoneBounds(); rapid.Bool().Draw(t, "change") && !end.IsZero() {
			at = end
		}
		year, month, day := at.Date()
		d := dateOf(year, month, day+rapid.IntRange(0, 1).Draw(t, "tomorrow"))
		want := At(d) - Instant(50*Hour)
		for shown := d.AddDate(0, 0, -2); shown.Before(d); want += 60 {
			year, month, day := (want + 60).Time().In(zone).Date()
			shown = dateOf(year, month, day)
		}
		if got := firstInstant(d, zone); got != want {
			t.Fatalf("%s in %s starts at %s, want %s", d.Format(time.DateOnly), zone, got, want)
		}
	})
}
