package fleet

// The kinds of runs in which everything must hold.
const (
	KindFaults = "faults" // everything that a service must survive
	KindCalm   = "calm"   // nothing goes wrong
)
