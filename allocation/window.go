package allocation

import (
	"fmt"
)

// The bounds of Window.Every.
const (
	MinEvery = Second
	MaxEvery = 12 * Hour
)

const everyBounds = "use 1s to 12h; longer periods are {calendar: day|week|month|year}"

// Instants outside these have no period, so that arithmetic on dates never
// leaves what text can name. A clock that shows such a time is broken.
const (
	earliest Instant = -2208988800  // 1900-01-01T00:00:00Z
	latest   Instant = 221845392000 // 9000-01-01T00:00:00Z
)

// Window is the rule that cuts time into periods. Exactly one form is used:
//
//	{every: 1m}                              1 s to 12 h, aligned to multiples from 1970-01-01T00:00Z
//	{calendar: month, zone: Europe/Berlin}   day, week (from Monday), month, year; zone defaults to UTC
//	{once: {from: …, until: …}}              a single period; without until it never ends
type Window struct {
	Every    Duration `json:"every,omitempty" yaml:"every,omitempty"`
	Calendar string   `json:"calendar,omitempty" yaml:"calendar,omitempty"`
	Zone     string   `json:"zone,omitempty" yaml:"zone,omitempty"`
	Once     *Once    `json:"once,omitempty" yaml:"once,omitempty"`

	zones Zones // see With
}

// Once is a single period. From lies after 1970. Until zero or Never means that it has no end.
type Once struct {
	From  Instant `json:"from" yaml:"from"`
	Until Instant `json:"until,omitempty" yaml:"until,omitempty"`
}

func (o Once) period() Period {
	if o.Until == 0 {
		return Period{Start: o.From, End: Never}
	}
	return Period{Start: o.From, End: o.Until}
}

// Validate returns Problems that name the field and the fix, or nil. It looks
// the zone up in the time-zone data of the process.
func (w Window) Validate() error {
	var found Problems
	forms := 0
	for _, used := range []bool{w.Every != 0, w.Calendar != "", w.Once != nil} {
		if used {
			forms++
		}
	}
	if forms != 1 {
		found.add("window", fmt.Sprintf("has %d of every, calendar and once", forms),
			"give exactly one, like {every: 1m} or {calendar: month, zone: Europe/Berlin}")
	}
	if w.Every != 0 && (w.Every < MinEvery || w.Every > MaxEvery) {
		found.add("window.every", fmt.Sprintf("is %s", w.Every),
			everyBounds)
	}
	if w.Calendar != "" {
		if _, ok := calendarUnits[w.Calendar]; !ok {
			found.add("window.calendar", fmt.Sprintf("is %.40q", w.Calendar), "use day, week, month or year")
		}
	}
	if w.Zone != "" && w.Calendar == "" {
		found.add("window.zone", "counts only for calendar periods", "leave it out")
	} else if _, err := w.location(); err != nil {
		found.add("window.zone", fmt.Sprintf("%.64q is not a time zone", w.Zone),
			"use a name of the IANA database, like Europe/Berlin or UTC")
	}
	if w.Once != nil {
		found = append(found, w.Once.problems()...)
	}
	return found.err()
}

func (o Once) problems() Problems {
	var found Problems
	if o.From <= 0 || o.From > maxInstant {
		found.add("window.once.from", "is missing or not after 1970", "give an instant like 2026-01-31T00:00:00Z")
	}
	end := o.period().End
	if end <= o.From {
		found.add("window.once.until", "is not after from", "give a later instant, or leave it out for a period without end")
	} else if end > maxInstant && end != Never {
		found.add("window.once.until", "lies after the year 9999", "leave it out for a period without end")
	}
	return found
}

// Equal says whether both windows cut time alike by their rule: "" is UTC, and
// an absent until is Never.
func (w Window) Equal(o Window) bool {
	if w.Every != o.Every || w.Calendar != o.Calendar || w.zoneName() != o.zoneName() {
		return false
	}
	if w.Once == nil || o.Once == nil {
		return w.Once == o.Once
	}
	return w.Once.period() == o.Once.period()
}

// String returns the window in words, like "every 1m" or "calendar month Europe/Berlin".
func (w Window) String() string {
	switch {
	case w.Once != nil:
		p := w.Once.period()
		return "once " + p.Start.String() + " to " + p.End.String()
	case w.Calendar != "":
		return "calendar " + w.Calendar + " " + w.zoneName()
	}
	return "every " + w.Every.String()
}

// PeriodAt returns the period that contains now. For {every} and {calendar}
// every instant of the years 1900 to 8999 lies in exactly one. It is false
// outside those, outside {once}, and for a window that is not valid.
func (w Window) PeriodAt(now Instant) (Period, bool) {
	switch {
	case now < earliest || now >= latest:
		return Period{}, false
	case w.Once != nil:
		p := w.Once.period()
		return p, p.Contains(now)
	case w.Calendar != "":
		return w.calendarPeriodAt(now)
	case w.Every < MinEvery || w.Every > MaxEvery:
		return Period{}, false
	}
	step := Instant(w.Every)
	start := now - now%step
	if start > now { // the remainder of a negative instant is negative
		start -= step
	}
	return Period{Start: start, End: start + step}, true
}

// Next returns the period after p: it starts exactly where p ends and reaches to
// the window's next boundary. It is shorter than usual if p did not end at a
// boundary, as after a change of the window or of the time-zone data. It is
// false when p never ends, and for {once}.
func (w Window) Next(p Period) (Period, bool) {
	if w.Once != nil || p.End == Never {
		return Period{}, false
	}
	next, ok := w.PeriodAt(p.End)
	if !ok {
		return Period{}, false
	}
	return Period{Start: p.End, End: next.End}, true
}
