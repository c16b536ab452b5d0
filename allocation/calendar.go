package allocation

import (
	"errors"
	"sort"
	"strings"
	"time"
)

// A date is a calendar date without zone, held as midnight UTC of that date.
type date = time.Time

// calendarUnits say, for each calendar window, which date a period that holds a
// given date begins with, and the beginning of the one after (n = 1) or before (-1).
var calendarUnits = map[string]struct {
	first func(d date) date
	step  func(d date, n int) date
}{
	"day": {
		first: func(d date) date { return d },
		step:  func(d date, n int) date { return d.AddDate(0, 0, n) },
	},
	"week": {
		first: func(d date) date { return d.AddDate(0, 0, -(int(d.Weekday())+6)%7) },
		step:  func(d date, n int) date { return d.AddDate(0, 0, 7*n) },
	},
	"month": {
		first: func(d date) date { return dateOf(d.Year(), d.Month(), 1) },
		step:  func(d date, n int) date { return d.AddDate(0, n, 0) },
	},
	"year": {
		first: func(d date) date { return dateOf(d.Year(), time.January, 1) },
		step:  func(d date, n int) date { return d.AddDate(n, 0, 0) },
	},
}

func dateOf(year int, month time.Month, day int) date {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

func (w Window) zoneName() string {
	if w.Zone == "" && w.Calendar != "" {
		return "UTC"
	}
	return w.Zone
}

var errZone = errors.New("zone is this machine's own")

// location returns the zone of a calendar window. Names that mean another zone
// on another machine are refused: two coordinators would name different periods.
func (w Window) location() (*time.Location, error) {
	switch strings.ToLower(w.Zone) {
	case "local", "localtime", "posixrules", "factory":
		return nil, errZone
	}
	if w.zones != nil {
		return w.zones(w.zoneName())
	}
	return time.LoadLocation(w.zoneName())
}

// Zones finds the rules of a time zone by its name in the IANA database. It never changes its mind about one name within
// one call of a method of Window.
type Zones func(name string) (*time.Location, error)

// With is the same window under other time-zone data than the process's own, for whoever has to try what two versions of
// it do. nil is the process's own.
func (w Window) With(zones Zones) Window {
	w.zones = zones
	return w
}

// calendarPeriodAt finds the period by the local date, then corrects: where the
// clock was set back over midnight, the date shown is that of a period already over.
func (w Window) calendarPeriodAt(now Instant) (Period, bool) {
	unit, ok := calendarUnits[w.Calendar]
	if !ok {
		return Period{}, false
	}
	zone, err := w.location()
	if err != nil {
		return Period{}, false
	}
	year, month, day := now.Time().In(zone).Date()
	first := unit.first(dateOf(year, month, day))
	start, next := firstInstant(first, zone), firstInstant(unit.step(first, 1), zone)
	// At most two rounds: no zone has set its clock back by more than a day.
	for next <= now {
		first = unit.step(first, 1)
		start, next = next, firstInstant(unit.step(first, 1), zone)
	}
	return Period{Start: start, End: next}, true
}

// firstInstant returns the first instant whose local date is d, or later where
// the zone skipped d altogether (Apia has no 2011-12-30).
//
// time.Date cannot be asked: at a midnight that does not exist it answers 23:00
// of the day before or 01:00, depending on the zone, and at one that exists
// twice it may answer the second. So this walks the stretches of equal
// offset around d. It rises with d, so that periods never overlap.
func firstInstant(d date, zone *time.Location) Instant {
	midnight := At(d)
	// No offset reaches 36 h, so nothing before this shows d or later.
	for at := midnight.plus(-36 * int64(Hour)); ; {
		candidate := midnight - offsetAt(at, zone)
		if candidate <= at {
			return at // the stretch begins with d, or after it
		}
		end := stretchEnd(at, zone)
		if candidate < end {
			return candidate
		}
		at = end
	}
}

// stretchEnd returns the first instant after at with another offset, or one hour
// after at if that comes first. No zone has changed twice within an hour.
//
// time.Time.ZoneBounds would say it, but on the last day of a leap year it
// answers an end that is not after the instant asked for (Go 1.26), and a walk
// along it never ends.
func stretchEnd(at Instant, zone *time.Location) Instant {
	const step = Instant(Hour)
	offset := offsetAt(at, zone)
	if offsetAt(at+step, zone) == offset {
		return at + step
	}
	after := sort.Search(int(step), func(i int) bool { return offsetAt(at+Instant(i), zone) != offset })
	return at + Instant(after)
}

// offsetAt returns how many seconds the zone's clocks are ahead of UTC.
func offsetAt(at Instant, zone *time.Location) Instant {
	_, offset := at.Time().In(zone).Zone()
	return Instant(offset)
}
