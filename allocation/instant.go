package allocation

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Instant is a moment: whole Unix seconds, UTC. Periods begin and end at
// instants; whatever lies within a second belongs to that second.
type Instant int64

// Never is the end of a period without end. It lies after every other instant.
const Never Instant = math.MaxInt64

// Text can name the instants of the years 0000 to 9999, and Never.
const (
	minInstant Instant = -62167219200 // 0000-01-01T00:00:00Z
	maxInstant Instant = 253402300799 // 9999-12-31T23:59:59Z
)

const neverText = "never"

// At returns the second that t lies in, also before 1970.
func At(t time.Time) Instant { return Instant(t.Unix()) }

// Time returns the instant as a UTC time. What text cannot name is moved to the
// nearest that it can: Never becomes the last second of the year 9999.
func (i Instant) Time() time.Time {
	return time.Unix(int64(min(max(i, minInstant), maxInstant)), 0).UTC()
}

// String returns RFC 3339 in UTC, "never", or "instant(n)" for what neither can name.
func (i Instant) String() string {
	switch {
	case i == Never:
		return neverText
	case i < minInstant || i > maxInstant:
		return "instant(" + strconv.FormatInt(int64(i), 10) + ")"
	}
	return i.Time().Format(time.RFC3339)
}

// MarshalText returns what String does. It fails outside the years 0000 to 9999.
func (i Instant) MarshalText() ([]byte, error) {
	if i != Never && (i < minInstant || i > maxInstant) {
		return nil, fmt.Errorf("instant %d lies outside the years 0000 to 9999", int64(i))
	}
	return []byte(i.String()), nil
}

// UnmarshalText reads the one form that MarshalText writes: whole seconds, UTC,
// a capital T and Z, or "never". Anything else is an error that shows the form.
func (i *Instant) UnmarshalText(text []byte) error {
	s := string(text)
	if s == neverText {
		*i = Never
		return nil
	}
	t, err := time.Parse(time.RFC3339, s)
	// time.Parse also takes offsets, fractions and one-digit hours; only the
	// canonical form survives being written again.
	if err != nil || At(t).String() != s {
		return fmt.Errorf("%.40q is not an instant in UTC and whole seconds, like 2026-01-31T00:00:00Z", s)
	}
	*i = At(t)
	return nil
}

// plus adds seconds and saturates: at Never above, at the least instant below.
func (i Instant) plus(seconds int64) Instant {
	sum := int64(i) + seconds
	switch {
	case i == Never || (seconds > 0 && sum < int64(i)):
		return Never
	case seconds < 0 && sum > int64(i):
		return math.MinInt64
	}
	return Instant(sum)
}

// Period is one instance of a window, from Start up to, but not including, End.
// It is named by its start. End may be Never.
type Period struct {
	Start Instant `json:"start"`
	End   Instant `json:"end"`
}

// Contains says whether i lies in the period. An empty period contains nothing.
func (p Period) Contains(i Instant) bool { return p.Start <= i && i < p.End }

// Duration is a length of time in whole seconds, not negative.
type Duration int64

// The units in which durations are commonly given.
const (
	Second Duration = 1
	Minute          = 60 * Second
	Hour            = 60 * Minute
	Day             = 24 * Hour
)

// MaxDuration is the longest duration that text can name: time.Duration's, about 292 years.
const MaxDuration Duration = math.MaxInt64 / Duration(time.Second)

// Std returns the duration as a time.Duration, at most MaxDuration.
func (d Duration) Std() time.Duration { return time.Duration(min(d, MaxDuration)) * time.Second }

// String returns hours, minutes and seconds without the parts that are zero:
// "6h", "1m30s", "0s". time.ParseDuration reads it.
func (d Duration) String() string {
	if d <= 0 {
		return strconv.FormatInt(int64(d), 10) + "s"
	}
	var b strings.Builder
	for _, part := range []struct {
		size Duration
		unit byte
	}{{Hour, 'h'}, {Minute, 'm'}, {Second, 's'}} {
		if n := d / part.size; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteByte(part.unit)
		}
		d %= part.size
	}
	return b.String()
}

// MarshalText returns what String does. It fails if d is negative or over MaxDuration.
func (d Duration) MarshalText() ([]byte, error) {
	if d < 0 || d > MaxDuration {
		return nil, fmt.Errorf("duration of %d seconds is not between 0 and %d", int64(d), int64(MaxDuration))
	}
	return []byte(d.String()), nil
}

var errDuration = errors.New("is not a duration in whole seconds, like 90s, 1m30s, 6h or 30d")

// UnmarshalText reads what time.ParseDuration does, and whole days before it
// ("30d", "1d12h"). No sign, no fraction of a second, at most MaxDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q %w", text, err)
	}
	*d = parsed
	return nil
}

func parseDuration(s string) (Duration, error) {
	if s == "" || s[0] == '+' || s[0] == '-' {
		return 0, errDuration
	}
	var days Duration
	if head, rest, found := strings.Cut(s, "d"); found {
		n, err := strconv.ParseUint(head, 10, 32)
		if err != nil || Duration(n) > MaxDuration/Day {
			return 0, errDuration
		}
		days = Duration(n) * Day
		if s = rest; s == "" {
			return days, nil
		}
	}
	rest, err := time.ParseDuration(s)
	// Another sign may stand behind the days.
	if err != nil || rest < 0 || s[0] == '+' || s[0] == '-' || rest%time.Second != 0 {
		return 0, errDuration
	}
	whole := Duration(rest / time.Second)
	if whole > MaxDuration-days {
		return 0, errDuration
	}
	return days + whole, nil
}
