//go:build race

package simulations

const raceEnabled = true
