package world

import (
	"time"
	"unsafe"
)

// Clock is the clock of a machine or of a database: what it shows may drift, jump, and go back. Like Go's own, its times
// carry a monotonic reading that jumps do not touch, so that the difference of two of them is the time that passed.
type Clock struct {
	world *World
	since int64 // the world's time at the last change of the rate
	wall  int64 // what the clock showed then, nanoseconds since 1970
	mono  int64 // its monotonic reading then
	drift int64 // parts per million, on top of 1
}

// NewClock makes a clock that is right.
func (w *World) NewClock() *Clock {
	return &Clock{world: w, since: w.now, wall: w.start.UnixNano() + w.now, mono: w.now + 1}
}

// Now is what the clock shows.
func (c *Clock) Now() time.Time {
	c.world.alive()
	wall, mono := c.read()
	return withMonotonic(wall, mono)
}

// Micros is what the clock shows, in Unix microseconds.
func (c *Clock) Micros() int64 {
	wall, _ := c.read()
	return wall / 1000
}

func (c *Clock) read() (wall, mono int64) {
	passed := c.world.now - c.since
	passed += ppm(passed, c.drift)
	return c.wall + passed, c.mono + passed
}

// Drift makes the clock go fast by so many parts per million, or slow below 0.
func (c *Clock) Drift(ppm int64) {
	c.wall, c.mono = c.read()
	c.since, c.drift = c.world.now, ppm
}

// Jump moves what the clock shows, forwards or back.
func (c *Clock) Jump(d time.Duration) { c.wall += int64(d) }

// Off is how far the clock is ahead of the world's time.
func (c *Clock) Off() time.Duration {
	wall, _ := c.read()
	return time.Duration(wall - c.world.start.UnixNano() - c.world.now)
}

// Right makes the clock right again.
func (c *Clock) Right() {
	_, mono := c.read()
	c.since, c.drift = c.world.now, 0
	c.wall, c.mono = c.world.start.UnixNano()+c.world.now, mono
}

// worldly is how long d by this clock takes by the world's, at least 1 ns.
func (c *Clock) worldly(d time.Duration) int64 {
	return max(1, int64(d)-ppm(int64(d), c.drift))
}

// ppm is so many parts of a million of n, without overflow.
func ppm(n, parts int64) int64 { return n/1_000_000*parts + n%1_000_000*parts/1_000_000 }

// The layout of time.Time since Go 1.9: seconds since 1885 and nanoseconds of the wall clock, then the monotonic reading.
// Package time makes such values only from the machine's own clock; init refuses to go on should the layout change. It
// holds the years 1885 to 2157.
type stamped struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasMonotonic     = 1 << 63
	from1885         = 2682288000 // seconds from 1885 to 1970
	nanosecondsShift = 30
)

func withMonotonic(wall, mono int64) time.Time {
	seconds, nanos := wall/1e9, wall%1e9
	s := stamped{wall: hasMonotonic | uint64(seconds+from1885)<<nanosecondsShift | uint64(nanos), ext: mono, loc: time.UTC}
	return *(*time.Time)(unsafe.Pointer(&s))
}

func init() {
	wall := DefaultStart.UnixNano() + 123456789
	a, b := withMonotonic(wall, 1), withMonotonic(wall-int64(time.Hour), 1+int64(time.Minute))
	plain := unsafe.Sizeof(stamped{}) == unsafe.Sizeof(time.Time{}) && a.UnixNano() == wall && a.Round(0).Equal(time.Unix(0, wall))
	if !plain || b.Sub(a) != time.Minute || b.Round(0).Sub(a.Round(0)) != -time.Hour || a.Add(time.Minute).Sub(b) != 0 {
		panic("world: this Go lays out time.Time in another way; teach withMonotonic the new one")
	}
}
