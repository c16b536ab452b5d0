//go:build race

package walk

// A walk is one goroutine: the race detector finds nothing in it and makes it ten times slower, so that it only begins it.
const statesAtMost = 3000
