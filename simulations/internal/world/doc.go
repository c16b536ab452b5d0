// Package world runs ordinary blocking Go in simulated time, one task at a time, in an order that a seed decides.
//
//	World ── one clock of its own, one queue of timers, one seed
//	  └─ Process   "eu/node-1": a clock that may be wrong, a random source, a context that ends when it is stopped
//	       └─ Task  a function that was started with Go: a coroutine, which gives way at every call of this package that
//	                takes time (Sleep, Signal.Wait, Point, Await)
//
// # The order
//
// While some task can run, one of them is chosen by the seed and runs until it gives way. Only when none can run does time
// move on, to the next timer. Code between two such calls is one step that nobody interrupts and that takes no time. Now,
// Notify and Go do not give way, so they may be called with a mutex held; a mutex that is held across a call that takes
// time stops the world, and a watchdog then says which task it was.
//
// An example of two tasks, seed 7, with one node that is stopped for a while between two effects:
//
//	12.000000000  eu/node-1  lane-0  begin            2 rows
//	12.000000000  world      -       pause            eu/node-1
//	12.004211937  us/node-1  lane-0  begin            1 row
//	15.000000000  world      -       resume           eu/node-1
//	15.000913374  eu/node-1  lane-0  commit           the server ended this transaction long ago
//
// # The end of a process
//
// Stop ends its context; its tasks then return by themselves. Crash is the end in the middle of something: none of its
// tasks runs again. Go runs their deferred functions, so every call of this package panics in a dead task, with a value
// that only this package recovers: what a deferred function would have done outside is not done, and it does not loop.
//
// # The same seed, the same trace
//
// Nothing here reads the time or a random source of the machine, and nothing depends on the order of a map. That is a duty
// of the simulated code, too: it starts no goroutine, waits for no channel, and takes clock, waits, ids and random numbers
// from its Process. What was built from a context of this package with package context is fine, but for
// context.AfterFunc, which starts a goroutine.
//
// # Traces
//
// See Line.
package world
