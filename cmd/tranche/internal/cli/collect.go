package cli

import (
	"os"
	"runtime/debug"
)

// collectPercent lets the heap of a node grow to five times what lives before it is collected. What lives is small, some
// megabytes of catalogue and what is under way, and a collection costs the scan of a stack for each request that waits: at
// Go's own 100 it took a third of a busy node's time. GOGC, if it is set, decides.
const collectPercent = 400

func collectSeldom() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectPercent)
	}
}
