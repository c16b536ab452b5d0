package allocation

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

// MaxInstants bounds the list of a term whose periods are not even.
const MaxInstants = 400

// Periods are the consecutive periods of one term, without gap or overlap.
// They are written once, in the term's document; nobody computes them again,
// since two versions of the time-zone data would name two different ones.
//
// Even periods are First, Step (seconds) and Count. Others are Instants: n+1
// boundaries of n periods, strictly increasing, at most MaxInstants of them;
// the last may be Never. Exactly one of the forms is used. The zero value
// holds no period and is not valid.
//
// All methods are safe on values that were not validated: where a sum would
// overflow, the instant is Never.
type Periods struct {
	First    Instant   `json:"first,omitempty"`
	Step     int64     `json:"step,omitempty"`
	Count    int       `json:"count,omitempty"`
	Instants []Instant `json:"instants,omitempty"`
}

// Validate returns what is wrong with the form, or nil.
func (p Periods) Validate() error {
	if len(p.Instants) > 0 {
		if p.First != 0 || p.Step != 0 || p.Count != 0 {
			return errors.New("periods are given both as even and as a list of instants; use one")
		}
		return validInstants(p.Instants)
	}
	if p.Step < 1 || p.Count < 1 {
		return fmt.Errorf("periods need a step and a count of at least 1, not %d and %d", p.Step, p.Count)
	}
	if p.First < minInstant || p.End() > maxInstant {
		return errors.New("periods reach outside the years 0000 to 9999")
	}
	return nil
}

func validInstants(list []Instant) error {
	if len(list) < 2 || len(list) > MaxInstants {
		return fmt.Errorf("a list of periods has 2 to %d instants, not %d", MaxInstants, len(list))
	}
	last := len(list) - 1
	if list[0] < minInstant || (list[last] > maxInstant && list[last] != Never) {
		return errors.New("periods reach outside the years 0000 to 9999")
	}
	for i := 1; i < len(list); i++ {
		if list[i-1] >= list[i] {
			return fmt.Errorf("instants must increase: %s is followed by %s", list[i-1], list[i])
		}
	}
	return nil
}

// even says whether the periods are given by first, step and count.
func (p Periods) even() bool { return len(p.Instants) == 0 }

// Len returns how many periods there are; 0 if the form is broken.
func (p Periods) Len() int {
	switch {
	case !p.even():
		return len(p.Instants) - 1
	case p.Step < 1 || p.Count < 1:
		return 0
	}
	return p.Count
}

// boundary returns the start of period i, or the end of the last for i == Len().
func (p Periods) boundary(i int) Instant {
	if !p.even() {
		return p.Instants[i]
	}
	hi, lo := bits.Mul64(uint64(p.Step), uint64(i))
	if hi != 0 || lo > uint64(Never) {
		return Never
	}
	return p.First.plus(int64(lo))
}

// At returns period i, counted from 0; an empty Period if there is none.
func (p Periods) At(i int) Period {
	if i < 0 || i >= p.Len() {
		return Period{}
	}
	return Period{Start: p.boundary(i), End: p.boundary(i + 1)}
}

// Index returns which period starts exactly at start.
func (p Periods) Index(start Instant) (int, bool) {
	i, ok := p.Find(start)
	if !ok || p.boundary(i) != start {
		return 0, false
	}
	return i, true
}

// Find returns which period contains now; false before the first and after the last.
func (p Periods) Find(now Instant) (int, bool) {
	n := p.Len()
	if n == 0 || now < p.boundary(0) || now >= p.boundary(n) {
		return 0, false
	}
	if p.even() {
		// As unsigned, the difference of two int64 in order never overflows.
		return int((uint64(now) - uint64(p.First)) / uint64(p.Step)), true
	}
	i, found := slices.BinarySearch(p.Instants, now)
	if !found {
		i--
	}
	return i, true
}

// Start returns where the first period begins; 0 if there is none.
func (p Periods) Start() Instant {
	if p.Len() == 0 {
		return 0
	}
	return p.boundary(0)
}

// End returns where the last period ends, which may be Never; 0 if there is none.
func (p Periods) End() Instant {
	if p.Len() == 0 {
		return 0
	}
	return p.boundary(p.Len())
}
