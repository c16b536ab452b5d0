package gateways

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/settings"
)

//go:embed blocks
var files embed.FS

// Names are the gateways, and Parts the files that each needs; the first is what is printed unless another is asked for.
var (
	Names = []string{"envoy", "nginx", "haproxy", "caddy", "traefik"}
	Parts = map[string][]string{
		"envoy": {"config", "mapping"}, "nginx": {"config"}, "haproxy": {"config", "lua"}, "caddy": {"config"}, "traefik": {"config"},
	}
)

// Slowest is how long a gateway waits for a node beyond the node's own deadline.
const Slowest = 300 * time.Millisecond

// Pair is a name and a value.
type Pair struct{ Name, Value string }

// Options are what a block is written for.
type Options struct {
	Node     string // URL of the node's API
	Envoy    string // host:port of the node's service for Envoy
	Token    string // gateway's; empty: a node on this machine that asks for none
	CA       string // file of the node's authority; empty: the system's
	Listen   string // host:port of the gateway
	Upstream string // host:port of what is behind it
	Labels   []Pair // a label, and the request header that it is taken from
	Costs    []Pair // a unit, and its number
	Legacy   string // request header with the verdict of the limiter that is still in force; empty: none
	Deadline time.Duration
	Domain   string // of Envoy's filter
}

// Write is a part of a gateway's configuration.
func Write(gateway, part string, o Options) (string, error) {
	if err := o.check(); err != nil {
		return "", err
	}
	if gateway == "traefik" && o.Legacy != "" && o.Legacy != "Tranche-Legacy" {
		return "", fmt.Errorf("legacy: Traefik cannot copy %s to another header; let the limiter say it in Tranche-Legacy, and give that", o.Legacy)
	}
	text, err := files.ReadFile("blocks/" + gateway + "-" + part)
	if err != nil {
		return "", fmt.Errorf("there is no part %q of %s; parts are %s", part, gateway, strings.Join(Parts[gateway], ", "))
	}
	t, err := template.New(gateway).Funcs(functions).Parse(string(text))
	if err != nil {
		return "", fmt.Errorf("read the block of %s: %w", gateway, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, view{o}); err != nil {
		return "", fmt.Errorf("write the block of %s: %w", gateway, err)
	}
	return out.String(), nil
}

// check refuses what a gateway would read as something else: a quote in a value would end it.
func (o *Options) check() error {
	if err := settings.CheckURL(o.Node); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	for name, address := range map[string]string{"envoy": o.Envoy, "listen": o.Listen, "upstream": o.Upstream} {
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || !plain(host, ".-:%_") {
			return fmt.Errorf("%s: %q is not an address; write host:port, like 127.0.0.1:8080", name, address)
		}
	}
	if len(o.Labels) == 0 {
		return errors.New("label: there is none, and no budget would apply; give at least one, like tenant=X-Tenant")
	}
	for i, l := range o.Labels {
		if (allocation.Labels{l.Name: "x"}).Validate() != nil || !plain(l.Value, "-_") || l.Value == "" {
			return fmt.Errorf("label %s=%s: write a label's name and the header that holds its value, like tenant=X-Tenant", l.Name, l.Value)
		}
		if slices.ContainsFunc(o.Labels[:i], func(p Pair) bool { return p.Name == l.Name }) {
			return fmt.Errorf("label %s is given twice; give it once", l.Name)
		}
	}
	for _, c := range o.Costs {
		if n, err := strconv.ParseInt(c.Value, 10, 64); err != nil || n < 1 || n > allocation.MaxUnits || !plain(c.Name, "_") || c.Name == "" {
			return fmt.Errorf("cost %s=%s: write a unit and a whole number from 1, like tokens=500", c.Name, c.Value)
		}
	}
	switch {
	case !plain(o.Legacy, "-_"):
		return fmt.Errorf("legacy: %q is not a header's name; give that which holds allow or deny, like X-Old-Limiter", o.Legacy)
	case !plain(o.Token, "._-~+/="):
		return errors.New("node-token: holds a character that a configuration could read as its own; make one with: openssl rand -hex 32")
	case !plain(o.CA, "._-/"):
		return fmt.Errorf("ca: %q holds a character that a configuration could read as its own; give a plain path", o.CA)
	case !plain(o.Domain, "._-") || o.Domain == "":
		return fmt.Errorf("domain: %q; use letters, digits . _ -", o.Domain)
	case o.Deadline < time.Millisecond || o.Deadline > 30*time.Second:
		return fmt.Errorf("deadline %s: use 1ms to 30s", o.Deadline)
	}
	return nil
}

// plain says whether a text is of letters, digits and some others.
func plain(text, others string) bool {
	for _, c := range text {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune(others, c)) {
			return false
		}
	}
	return true
}

// view is what the templates ask.
type view struct{ Options }

func (v view) url() *url.URL {
	u, _ := url.Parse(v.Node) // checked before
	return u
}

// TLS says whether the node's API is https.
func (v view) TLS() bool { return v.url().Scheme == "https" }

// NodeHost is the node's host, NodeAddress its host and port.
func (v view) NodeHost() string { return v.url().Hostname() }

func (v view) NodeAddress() string {
	port := v.url().Port()
	if port == "" {
		port = "80"
		if v.TLS() {
			port = "443"
		}
	}
	return net.JoinHostPort(v.NodeHost(), port)
}

// EnvoyTLS says whether the node's service for Envoy has TLS, which is where its API has it.
func (v view) EnvoyTLS() bool { return v.TLS() }

// Millis is the node's deadline; Patience is how long a gateway waits for it.
func (v view) Millis() int64 { return v.Deadline.Milliseconds() }

func (v view) Patience() int64 { return (v.Deadline + Slowest).Milliseconds() }

// LabelsFrom is the node's parameter for the labels.
func (v view) LabelsFrom() string {
	var pairs []string
	for _, l := range v.Labels {
		pairs = append(pairs, l.Name+":"+l.Value)
	}
	return strings.Join(pairs, ",")
}

var functions = template.FuncMap{
	"host":  func(address string) string { host, _, _ := net.SplitHostPort(address); return host },
	"port":  func(address string) string { _, port, _ := net.SplitHostPort(address); return port },
	"lower": strings.ToLower,
	// variable is nginx's name of a request header.
	"variable": func(header string) string { return "$http_" + strings.ReplaceAll(strings.ToLower(header), "-", "_") },
	"seconds":  func(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + "s" },
}
