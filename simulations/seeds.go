package simulations

import "time"

// Seed is a run that once showed something, and is made again in the tests. The seed draws the world, so a change of what
// is drawn makes another run of it; the reason is told by a test of its own, next to the code that was wrong.
type Seed struct {
	Seed   uint64
	Kind   string        // empty: KindFaults
	For    time.Duration // 0: DefaultFor
	Reason string
}

// Seeds are all of them.
func Seeds() []Seed {
	return []Seed{
		{Seed: 311, For: 40 * time.Second, Reason: "a contact heard by a replica whose clock was far ahead kept later ones from being written: terms stayed open"},
		{Seed: 325, For: 40 * time.Second, Reason: "as 311, with three replicas and four regions"},
		{Seed: 380, For: 40 * time.Second, Reason: "as 311: a wrong clock had opened terms of half an hour ahead, and none of them followed"},
		{Seed: 139, For: 40 * time.Second, Reason: "as 311, while a replica's database was away"},
		{Seed: 31, For: 40 * time.Second, Reason: "a late call is overtaken: the owner holds all marks and must not stop (the twin did)"},
		{Seed: 70, For: 40 * time.Second, Reason: "as 31, with a synchronous replica"},
		{Seed: 91, For: 40 * time.Second, Reason: "a node starts while its connection is silent: it serves once that is noticed"},
		{Seed: 576, For: 40 * time.Second, Reason: "word of a broken connection is lost, too: lanes must not wait for ever"},
		{Seed: 547, For: 40 * time.Second, Reason: "a probe races with a lapse"},
	}
}
