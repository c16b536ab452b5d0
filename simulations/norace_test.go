//go:build !race

package simulations

const raceEnabled = false
