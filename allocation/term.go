package allocation

import (
	"errors"
	"fmt"
)

// ErrWindowOver says that a window has no period now or later.
var ErrWindowOver = errors.New("the window is over")

// TermLength returns how long a full term is: a quarter of runsAlone in whole
// periods, at least one. A window of an hour or more has one period per term;
// for a calendar that is its longest (366 days for a year, clock changes aside),
// and a period without end has MaxDuration.
func (w Window) TermLength(runsAlone Duration) Duration {
	switch {
	case w.Once != nil:
		p := w.Once.period()
		if p.End == Never || p.End <= p.Start {
			return MaxDuration
		}
		return min(Duration(p.End-p.Start), MaxDuration)
	case w.Calendar != "":
		return w.nominal()
	}
	return w.Every * Duration(w.periodsPerTerm(runsAlone))
}

// nominal returns the longest period of a calendar window, clock changes aside.
func (w Window) nominal() Duration {
	switch w.Calendar {
	case "week":
		return 7 * Day
	case "month":
		return 31 * Day
	case "year":
		return 366 * Day
	}
	return Day
}

// short says whether many periods share a term.
func (w Window) short() bool { return w.Once == nil && w.Calendar == "" && w.Every < Hour }

func (w Window) periodsPerTerm(runsAlone Duration) int64 {
	if !w.short() || w.Every < MinEvery {
		return 1
	}
	return max(1, int64(runsAlone/4/w.Every))
}

// Horizon returns how far ahead of now terms must be open at every moment:
// runsAlone, and for windows of an hour or more at least 24 h or one period,
// whichever is less, so that a month is known a day before it begins.
//
// Opening terms while the last end lies before now+Horizon gives a coverage of
// at least Horizon and less than Horizon plus one term.
func (w Window) Horizon(runsAlone Duration) Duration {
	runsAlone = max(0, runsAlone)
	switch {
	case w.Calendar != "":
		return max(runsAlone, Day) // no calendar period is nominally shorter
	case w.Once != nil || w.short():
		return runsAlone
	}
	return max(runsAlone, min(Day, w.Every))
}

// FirstTerm returns the term of a new budget: it starts with the period that
// contains now. spread, a hash of the budget's name, shortens the first term of
// a short window by some periods, so that the terms of many budgets do not all
// end, and want a successor, in the same second. The period of {once} is its
// only term, also when it has not begun.
//
// It fails with ErrWindowOver after {once}, and when the window is not valid or
// now lies outside the years 1900 to 8999.
func (w Window) FirstTerm(now Instant, runsAlone Duration, spread uint64) (Periods, error) {
	if err := w.Validate(); err != nil {
		return Periods{}, err
	}
	if now < earliest || now >= latest {
		return Periods{}, fmt.Errorf("no period holds %s: the clock is wrong", now)
	}
	if w.Once != nil {
		p := w.Once.period()
		if now >= p.End {
			return Periods{}, fmt.Errorf("%w: it ended at %s", ErrWindowOver, p.End)
		}
		return singlePeriod(p), nil
	}
	p, ok := w.PeriodAt(now)
	if !ok {
		return Periods{}, fmt.Errorf("no period of %s holds %s", w, now)
	}
	if w.Calendar != "" {
		return singlePeriod(p), nil
	}
	count := 1 + spread%uint64(w.periodsPerTerm(runsAlone))
	return Periods{First: p.Start, Step: int64(w.Every), Count: int(count)}, nil
}

// NextTerm returns the term after the one that ended at prevEnd; it begins
// exactly there. Where prevEnd is no boundary of the window, because the window
// or the time-zone data changed, it is one shorter period up to the next
// boundary; the full terms follow.
//
// It is false when nothing follows: prevEnd is Never or after the year 8999, or
// the window is {once} and prevEnd lies outside it. A change to a {once} that
// begins after the opened terms would thus never open: refuse such a change.
func (w Window) NextTerm(prevEnd Instant, runsAlone Duration) (Periods, bool) {
	if prevEnd == Never {
		return Periods{}, false
	}
	p, ok := w.PeriodAt(prevEnd)
	switch {
	case !ok:
		return Periods{}, false
	case w.Once != nil || w.Calendar != "" || p.Start != prevEnd:
		return singlePeriod(Period{Start: prevEnd, End: p.End}), true
	}
	return Periods{First: prevEnd, Step: int64(w.Every), Count: int(w.periodsPerTerm(runsAlone))}, true
}

func singlePeriod(p Period) Periods { return Periods{Instants: []Instant{p.Start, p.End}} }
