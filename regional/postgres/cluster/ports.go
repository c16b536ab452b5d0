package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Ports are chosen below the range that Linux gives to outgoing connections:
// while a cluster is down, no connection of anybody can take its port.
const (
	lowestPort, highestPort = 15000, 25000
	portAttempts            = 100
)

var ports atomic.Uint32

func init() { ports.Store(rand.Uint32N(highestPort - lowestPort)) }

// FreePort is a port of 127.0.0.1 that nobody listens on. One process is given each only once in a long time, also while a server
// that had it is down; where it begins is by chance, so that processes side by side are seldom given the same.
func FreePort() (int, error) {
	var last error
	for range portAttempts {
		port := lowestPort + int(ports.Add(1)%(highestPort-lowestPort))
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, listener.Close()
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
