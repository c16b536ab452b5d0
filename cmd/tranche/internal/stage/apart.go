package stage

import (
	"net"
	"net/url"
	"strings"

	"tranche/cmd/tranche/internal/proxy"
)

// Apart is networks of which each has 127.0.0.1 for itself.
type Apart interface {
	// Enter moves the calling thread into a network.
	Enter(name string) error
	// Meet is the address at which a region reaches the global side.
	Meet(region string) string
	// Forward makes an address inside a network reachable from ours, Lend one of ours from inside it.
	Forward(name, address string) (*proxy.Link, error)
	Lend(name, address string) (*proxy.Link, error)
}

// global is the name of the network of the coordinators.
const global = "global"

// place puts a server that will listen at an address of 127.0.0.1 into a network, and lets us reach it there.
func (s *Stage) place(network, address string, server *Server) error {
	server.enter = func() error { return nil }
	if s.options.Apart == nil {
		return nil
	}
	server.enter = func() error { return s.options.Apart.Enter(network) }
	return s.forward(s.options.Apart.Forward(network, address))
}

// placeCoordinator says where a coordinator is to listen, and with which flags: regions that are apart reach it from
// elsewhere, and so over TLS.
func (s *Stage) placeCoordinator(server *Server, address string) (listen string, flags []string, err error) {
	if s.options.Apart == nil {
		return address, nil, s.place(global, address, server)
	}
	server.Address, server.ca = "https://"+address, s.options.Certificate
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	flags = []string{"--tls-cert", s.options.Certificate, "--tls-key", s.options.Key}
	return net.JoinHostPort("0.0.0.0", port), flags, s.place(global, address, server)
}

// connect makes the region's links to the coordinators. Those of a region that is apart are its network's; its database
// stays with us, and is lent to it.
func (s *Stage) connect(r *Region) error {
	if s.options.Apart != nil {
		database, err := url.Parse(r.Database)
		if err != nil {
			return err
		}
		return s.forward(s.options.Apart.Lend(r.Name, database.Host))
	}
	for _, c := range s.Coordinators {
		link, err := proxy.Listen(strings.TrimPrefix(c.Address, "http://"))
		if err != nil {
			return err
		}
		r.Links = append(r.Links, link)
	}
	return nil
}

// coordinatorsOf are the addresses at which the region's nodes reach the coordinators.
func (s *Stage) coordinatorsOf(r *Region) (addresses []string) {
	for _, l := range r.Links {
		addresses = append(addresses, "http://"+l.Addr())
	}
	if s.options.Apart == nil {
		return addresses
	}
	for _, c := range s.Coordinators {
		address, err := url.Parse(c.Address)
		if err == nil { // it is our own
			addresses = append(addresses, "https://"+net.JoinHostPort(s.options.Apart.Meet(r.Name), address.Port()))
		}
	}
	return addresses
}

// forward keeps a link until Stop.
func (s *Stage) forward(l *proxy.Link, err error) error {
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forwarded = append(s.forwarded, l)
	}
	return err
}
