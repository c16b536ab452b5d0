package bench

import (
	"bytes"
	"os"
	"strconv"
)

const ticks = 100 // of the kernel's accounts, a second

// processorTime is the seconds that this process, the postmaster and its children have had of the processor. Children that
// end meanwhile are missed: a server that is measured keeps its connections.
func processorTime(postmaster int) (seconds float64) {
	_, sum, _ := account("self")
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	for _, e := range entries {
		parent, used, ok := account(e.Name())
		if ok && (parent == postmaster || e.Name() == strconv.Itoa(postmaster)) {
			sum += used
		}
	}
	return sum / ticks
}

// account reads a process's parent and what it used, in ticks.
func account(process string) (parent int, used float64, ok bool) {
	text, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:]) // the name before it may hold anything
	if len(fields) < 13 {
		return 0, 0, false
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseFloat(string(f), 64)
		used += n
	}
	return parent, used, true
}
