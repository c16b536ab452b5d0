package allocation

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Rounding towards zero would put the second before 1970 into the one after, and
// a fraction before a boundary into the next period.
func TestAtFloors(t *testing.T) {
	for _, c := range []struct {
		sec, nsec int64
		want      Instant
	}{{0, 0, 0}, {0, 999_999_999, 0}, {-1, 0, -1}, {-1, 500_000_000, -1}, {-2, 1, -2}, {1767225600, 1, 1767225600}} {
		if got := At(time.Unix(c.sec, c.nsec)); got != c.want {
			t.Errorf("At(%d s %d ns) = %d, want %d", c.sec, c.nsec, got, c.want)
		}
	}
}

// A stored instant that reads back as another one would move a period.
func TestInstantText(t *testing.T) {
	for _, c := range []struct {
		instant Instant
		text    string
	}{
		{0, "1970-01-01T00:00:00Z"},
		{-1, "1969-12-31T23:59:59Z"},
		{Never, "never"},
		{minInstant, "0000-01-01T00:00:00Z"},
		{maxInstant, "9999-12-31T23:59:59Z"},
	} {
		text, err := c.instant.MarshalText()
		if err != nil || string(text) != c.text {
			t.Errorf("%d is written as %q, %v; want %q", c.instant, text, err, c.text)
		}
		var back Instant
		if err := back.UnmarshalText([]byte(c.text)); err != nil || back != c.instant {
			t.Errorf("%q is read as %d, %v; want %d", c.text, back, err, c.instant)
		}
	}
}

// A second form of one instant would make two documents of one term differ.
func TestInstantTextIsStrict(t *testing.T) {
	for _, text := range []string{
		"", "Never", "2026-01-31", "2026-01-31T00:00:00", "2026-01-31T00:00:00+00:00", "2026-01-31T02:00:00+02:00",
		"2026-01-31T00:00:00.0Z", "2026-01-31T00:00:00.5Z", "2026-01-31T00:00:00,5Z", "2026-01-31T0:00:00Z", "2026-01-31t00:00:00z",
		"2026-02-30T00:00:00Z", "2026-01-31T24:00:00Z", "2026-12-31T23:59:60Z", "10000-01-01T00:00:00Z", " 2026-01-31T00:00:00Z", "0",
	} {
		i := Instant(7)
		if err := i.UnmarshalText([]byte(text)); err == nil || i != 7 {
			t.Errorf("%q was read as %s, %v", text, i, err)
		}
	}
	for _, i := range []Instant{minInstant - 1, maxInstant + 1, math.MinInt64, Never - 1} {
		if text, err := i.MarshalText(); err == nil {
			t.Errorf("%d was written as %s, which cannot be read", int64(i), text)
		}
		if i.String() == "" || i.Time().Year() < 0 || i.Time().Year() > 9999 {
			t.Errorf("%d has no words or a time outside the years 0 to 9999", int64(i))
		}
	}
}

// An end that is exclusive on one side and inclusive on the other would charge a
// request at the boundary to both periods or to none.
func TestPeriodContains(t *testing.T) {
	p := Period{Start: 60, End: 120}
	for i, want := range map[Instant]bool{59: false, 60: true, 119: true, 120: false} {
		if p.Contains(i) != want {
			t.Errorf("contains %d: %v", i, !want)
		}
	}
	if !(Period{Start: 60, End: Never}).Contains(Never-1) || (Period{}).Contains(0) {
		t.Error("a period without end ends, or an empty one holds an instant")
	}
}

// A period without end whose arithmetic overflowed would be over long ago.
func TestInstantPlusSaturates(t *testing.T) {
	for _, c := range []struct {
		from Instant
		by   int64
		want Instant
	}{{Never, -1, Never}, {Never - 1, 2, Never}, {math.MinInt64 + 1, -2, math.MinInt64}, {5, -7, -2}, {5, 7, 12}} {
		if got := c.from.plus(c.by); got != c.want {
			t.Errorf("%d plus %d = %d, want %d", int64(c.from), c.by, int64(got), int64(c.want))
		}
	}
}

// A duration that is read as another would shorten how long a region runs alone.
func TestDurationText(t *testing.T) {
	for _, c := range []struct {
		text, canonical string
		want            Duration
	}{
		{"0s", "0s", 0},
		{"0", "0s", 0},
		{"90s", "1m30s", 90},
		{"1m30s", "1m30s", 90},
		{"1.5m", "1m30s", 90},
		{"60000ms", "1m", 60},
		{"6h", "6h", 6 * Hour},
		{"30d", "720h", 30 * Day},
		{"1d12h", "36h", 36 * Hour},
		{"2h0m5s", "2h5s", 2*Hour + 5},
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(c.text)); err != nil || d != c.want {
			t.Errorf("%q is %d, %v; want %d", c.text, d, err, c.want)
		}
		if d.String() != c.canonical {
			t.Errorf("%q is written as %s, want %s", c.text, d, c.canonical)
		}
	}
	for _, text := range []string{
		"", "6", "-1s", "+1s", "1d-1h", "1d+1h", "1500ms", "1.5s", "1.5d", "d", "1h1d", "-1d", "1dd", "1e9h", "999999999999h",
		"106752d", "106751d24h", "six hours", " 6h",
	} {
		d := Duration(7)
		if err := d.UnmarshalText([]byte(text)); err == nil || d != 7 {
			t.Errorf("%q was read as %s, %v", text, d, err)
		}
	}
	for _, d := range []Duration{-1, MaxDuration + 1, math.MaxInt64, math.MinInt64} {
		if text, err := d.MarshalText(); err == nil {
			t.Errorf("%d was written as %s, which cannot be read", int64(d), text)
		}
	}
	if Duration(math.MaxInt64).Std() <= 0 {
		t.Error("an endless duration overflowed to a past one")
	}
}

// Terms and budgets are stored as JSON: what is written must be what is read.
func TestTimesSurviveJSON(t *testing.T) {
	type both struct {
		I Instant
		D Duration
	}
	rapid.Check(t, func(t *rapid.T) {
		in := both{
			Instant(rapid.Int64Range(int64(minInstant), int64(maxInstant)).Draw(t, "instant")),
			Duration(rapid.Int64Range(0, int64(MaxDuration)).Draw(t, "duration")),
		}
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var out both
		if err := json.Unmarshal(data, &out); err != nil || in != out {
			t.Fatalf("%+v became %s and then %+v, %v", in, data, out, err)
		}
	})
}

// Text that is taken must have one meaning and one canonical form.
func FuzzInstant(f *testing.F) {
	for _, s := range []string{"never", "1970-01-01T00:00:00Z", "2026-01-31T00:00:00+02:00", "0000-01-01T00:00:00Z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var i Instant
		if i.UnmarshalText([]byte(s)) != nil {
			return
		}
		if text, err := i.MarshalText(); err != nil || string(text) != s {
			t.Fatalf("%q was taken, but is written as %q, %v", s, text, err)
		}
	})
}

// Text that is taken is not negative, and its canonical form means the same.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"6h", "1d12h", "90s", "1.5m", "1d-1h", "0", "106751d23h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var d, again Duration
		if d.UnmarshalText([]byte(s)) != nil {
			return
		}
		text, err := d.MarshalText()
		if err != nil || again.UnmarshalText(text) != nil || d != again || d < 0 {
			t.Fatalf("%q is %d, written as %q, %v, and read as %d", s, d, text, err, again)
		}
		if std, err := time.ParseDuration(string(text)); err != nil || std != d.Std() {
			t.Fatalf("others read %q as %s, %v", text, std, err)
		}
	})
}
