// Package settings finds out where the coordinator and the nodes are, and with which token to speak to them:
//
//	a flag  ▶  an environment variable (TRANCHE_…)  ▶  the configuration file  ▶  this machine
//
// The file is $XDG_CONFIG_HOME/tranche/config.yaml (else ~/.config/tranche/config.yaml) when it exists, or the one that is
// named. It is read strictly: a field that is not known is an error that shows its line. It holds a token only if nobody
// but its owner may read it.
package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// What holds when nothing else is said: everything runs on this machine.
const (
	DefaultCoordinator = "http://127.0.0.1:7070"
	DefaultNode        = "http://127.0.0.1:7080"
)

// maxFile bounds the configuration file.
const maxFile = 64 << 10

// Settings are the addresses and tokens that the commands use.
type Settings struct {
	Coordinator string            `yaml:"coordinator"` // several replicas with commas between them
	Token       string            `yaml:"token"`
	CA          string            `yaml:"ca"` // a file with the certificates to trust, in PEM; empty: the system's
	Node        string            `yaml:"node"`
	NodeToken   string            `yaml:"node_token"`
	Nodes       map[string]string `yaml:"nodes"` // by region, for verify; else as the regions announce them
}

// Variables are the environment variables, by the name of their flag.
var Variables = []struct{ Flag, Name string }{
	{"config", "TRANCHE_CONFIG"},
	{"coordinator", "TRANCHE_COORDINATOR"},
	{"token", "TRANCHE_TOKEN"},
	{"ca", "TRANCHE_CA"},
	{"node", "TRANCHE_NODE"},
	{"node-token", "TRANCHE_NODE_TOKEN"},
}

// Load joins the flags, the environment and the file. flags holds those that were given, by name.
func Load(flags map[string]string, environment func(string) string) (Settings, error) {
	given := map[string]string{}
	for _, v := range Variables {
		if value := environment(v.Name); value != "" {
			given[v.Flag] = value
		}
	}
	for name, value := range flags {
		given[name] = value
	}
	s, err := fromFile(given["config"], environment)
	if err != nil {
		return Settings{}, err
	}
	for name, to := range map[string]*string{
		"coordinator": &s.Coordinator, "token": &s.Token, "ca": &s.CA, "node": &s.Node, "node-token": &s.NodeToken,
	} {
		if value, ok := given[name]; ok {
			*to = value
		}
	}
	if s.Coordinator == "" {
		s.Coordinator = DefaultCoordinator
	}
	if s.Node == "" {
		s.Node = DefaultNode
	}
	for name, addresses := range map[string]string{"coordinator": s.Coordinator, "node": s.Node} {
		for address := range strings.SplitSeq(addresses, ",") {
			if err := CheckURL(address); err != nil {
				return Settings{}, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return s, nil
}

// CheckURL refuses what is no address of a service, and plain http to another machine: a token travels with every call.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("%.200q is not an address; write it like https://coordinator.example:7070", address)
	}
	if u.Scheme == "http" && !IsLoopback(u.Hostname()) {
		return fmt.Errorf("%s would get the token in the clear; use https beyond this machine", address)
	}
	return nil
}

// IsLoopback says whether a host is known to be this machine.
func IsLoopback(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// fromFile reads the named file, or the default one if it exists.
func fromFile(name string, environment func(string) string) (Settings, error) {
	path := name
	if name == "" {
		path = defaultFile(environment)
	}
	if path == "" {
		return Settings{}, nil
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && name == "" {
		return Settings{}, nil
	}
	if err != nil {
		return Settings{}, fmt.Errorf("read the configuration: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return Settings{}, fmt.Errorf("read the configuration: %w", err)
	}
	if info.Size() > maxFile {
		return Settings{}, fmt.Errorf("%s: has %d bytes; a configuration has at most %d", path, info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Settings{}, fmt.Errorf("read the configuration: %w", err)
	}
	return parse(path, text, info.Mode())
}

func defaultFile(environment func(string) string) string {
	folder := environment("XDG_CONFIG_HOME")
	if folder == "" {
		home := environment("HOME")
		if home == "" {
			return ""
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "tranche", "config.yaml")
}

func parse(path string, text []byte, mode fs.FileMode) (Settings, error) {
	var s Settings
	if len(bytes.TrimSpace(text)) == 0 {
		return s, nil
	}
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&s); err != nil {
		return Settings{}, fmt.Errorf("%s:\n%s\nknown fields are coordinator, token, ca, node, node_token and nodes", path, yaml.FormatError(err, false, true))
	}
	if (s.Token != "" || s.NodeToken != "") && mode.Perm()&0o077 != 0 {
		return Settings{}, fmt.Errorf("%s holds a token and others may read it (mode %04o); run: chmod 600 %s", path, mode.Perm(), path)
	}
	for region, address := range s.Nodes {
		if err := CheckURL(address); err != nil {
			return Settings{}, fmt.Errorf("%s: nodes.%s: %w", path, region, err)
		}
	}
	if strings.ContainsAny(s.Token+s.NodeToken, " \t\r\n") {
		return Settings{}, fmt.Errorf("%s: a token holds a space or a line break; copy it again", path)
	}
	return s, nil
}
