//go:build !race

package walk

const statesAtMost = 0 // no bound
