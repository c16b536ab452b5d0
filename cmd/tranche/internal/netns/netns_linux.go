// Package netns puts the parts of a deployment into Linux network namespaces, so that the links between them are real and
// can be lost in one direction, silently, as links are: for tests. It needs root, and the program `ip`.
//
//	the test's namespace                                       links that the test can lose, each direction alone
//	  callers, Postgres ◀── forwarded ports ──▶ region ◀═══════════════════════════════════▶ global ◀── … ──▶ admin
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"tranche/cmd/tranche/internal/proxy"
)

// Global is the namespace of the coordinators.
const Global = "global"

// wrongAddress is an Ethernet address that nobody has: a frame to it is lost, and the sender hears nothing.
const wrongAddress = "02:00:00:00:00:01"

// Network is a namespace for each region and one for the global side, with a link from each region to that.
type Network struct {
	prefix  string
	regions []string
	right   map[string]string // by "from/to": the Ethernet address that the sender should use
}

// New makes the namespaces and links. The network is never nil, so that what was made can be removed.
func New(regions []string) (*Network, error) {
	n := &Network{prefix: fmt.Sprintf("tranche-%d-", os.Getpid()), regions: slices.Clone(regions), right: map[string]string{}}
	for _, name := range append([]string{Global}, regions...) {
		if err := n.add(name); err != nil {
			return n, err
		}
	}
	for i, region := range n.regions {
		if err := n.link(i, region); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (n *Network) add(name string) error {
	if err := ip("netns", "add", n.prefix+name); err != nil {
		return err
	}
	return ip("-n", n.prefix+name, "link", "set", "lo", "up")
}

// link joins a region with the global side. Neighbours are written down, so that nothing but our own change loses a frame.
func (n *Network) link(i int, region string) error {
	up, down := fmt.Sprintf("up%d", i), fmt.Sprintf("down%d", i)
	r, g := n.prefix+region, n.prefix+Global
	n.right[region+"/"+Global] = fmt.Sprintf("02:00:00:00:01:%02x", i)
	n.right[Global+"/"+region] = fmt.Sprintf("02:00:00:00:02:%02x", i)
	for _, command := range [][]string{
		{"link", "add", up, "netns", r, "address", n.right[Global+"/"+region], "type", "veth", "peer", "name", down, "netns", g, "address", n.right[region+"/"+Global]},
		{"-n", r, "addr", "add", n.host(region) + "/30", "dev", up},
		{"-n", g, "addr", "add", n.Meet(region) + "/30", "dev", down},
		{"-n", r, "link", "set", up, "up"},
		{"-n", g, "link", "set", down, "up"},
	} {
		if err := ip(command...); err != nil {
			return err
		}
	}
	return n.Heal(region)
}

func (n *Network) index(region string) int { return slices.Index(n.regions, region) }

func (n *Network) host(region string) string { return fmt.Sprintf("10.99.%d.2", n.index(region)) }

// Meet is the address at which a region reaches the global side.
func (n *Network) Meet(region string) string { return fmt.Sprintf("10.99.%d.1", n.index(region)) }

// LoseCalls loses all that the region sends to the global side.
func (n *Network) LoseCalls(region string) error { return n.send(region, false, wrongAddress) }

// LoseAnswers loses all that the global side sends to the region.
func (n *Network) LoseAnswers(region string) error { return n.send(region, true, wrongAddress) }

// Cut loses both directions.
func (n *Network) Cut(region string) error {
	return errors.Join(n.LoseCalls(region), n.LoseAnswers(region))
}

// Heal lets both directions through.
func (n *Network) Heal(region string) error {
	return errors.Join(n.send(region, false, n.right[region+"/"+Global]), n.send(region, true, n.right[Global+"/"+region]))
}

// send says to which Ethernet address one direction is sent.
func (n *Network) send(region string, down bool, address string) error {
	i := n.index(region)
	if down {
		return ip("-n", n.prefix+Global, "neigh", "replace", n.host(region), "lladdr", address, "dev", fmt.Sprintf("down%d", i), "nud", "permanent")
	}
	return ip("-n", n.prefix+region, "neigh", "replace", n.Meet(region), "lladdr", address, "dev", fmt.Sprintf("up%d", i), "nud", "permanent")
}

// Within runs f on a thread that is in the namespace of a region or of the global side: the sockets and the children that it
// makes belong there.
func (n *Network) Within(name string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine, and its namespace with it
		if err := n.Enter(name); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Enter moves the calling thread into a namespace, for good: its goroutine must have locked it.
func (n *Network) Enter(name string) error {
	file, err := os.Open("/run/netns/" + n.prefix + name)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace of %s: %w", name, err)
	}
	return nil
}

// Forward makes an address of 127.0.0.1 inside a namespace reachable at the same address of the test's own.
func (n *Network) Forward(name, address string) (*proxy.Link, error) {
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return nil, err
	}
	return proxy.Between(listener, address, func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = n.Within(name, func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}), nil
}

// Lend makes an address of 127.0.0.1 of the test's own reachable at the same address inside a namespace.
func (n *Network) Lend(name, address string) (link *proxy.Link, err error) {
	err = n.Within(name, func() error {
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		link = proxy.Between(listener, address, new(net.Dialer).DialContext)
		return nil
	})
	return link, err
}

// Close removes the namespaces, and the links with them.
func (n *Network) Close() error {
	var errs []error
	for _, name := range append([]string{Global}, n.regions...) {
		if _, err := os.Stat("/run/netns/" + n.prefix + name); err == nil {
			errs = append(errs, ip("netns", "del", n.prefix+name))
		}
	}
	return errors.Join(errs...)
}

func ip(arguments ...string) error {
	out, err := exec.Command("ip", arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
