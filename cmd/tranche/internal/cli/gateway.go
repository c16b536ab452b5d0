package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/gateways"
)

func (a *App) gatewayConfigCommand() *cobra.Command {
	o := gateways.Options{}
	var part string
	var labels, costs []string
	c := &cobra.Command{
		Use: "gateway-config GATEWAY", Short: "Print a configuration for envoy, nginx, haproxy, caddy or traefik that asks a node",
		Long: `Print a complete configuration with which a gateway asks a node before it lets a request through.

It fails closed: a node that is down, slow or unsure is a refusal. Each line says what it is for. The node's address,
its token and the certificates to trust are those that the other commands use.`,
		Example: `  tranche gateway-config nginx --label tenant=X-Tenant --upstream 127.0.0.1:9000 >/etc/nginx/conf.d/tranche.conf
  tranche gateway-config haproxy --part lua >tranche.lua
  tranche gateway-config envoy --part mapping >mapping.yaml`,
		Args: exactly("GATEWAY"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.settings(c)
			if err != nil {
				return err
			}
			gateway := args[0]
			if !slices.Contains(gateways.Names, gateway) {
				return usagef("there is no gateway %q; use %s", gateway, strings.Join(gateways.Names, ", "))
			}
			if part == "" {
				part = gateways.Parts[gateway][0]
			}
			o.Node, o.Token, o.CA = s.Node, s.NodeToken, s.CA
			if o.Labels, err = gatewayPairs("--label", labels); err != nil {
				return err
			}
			if o.Costs, err = gatewayPairs("--cost", costs); err != nil {
				return err
			}
			text, err := gateways.Write(gateway, part, o)
			if err != nil {
				return usageError{err}
			}
			a.printf("%s", text)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&part, "part", "", "of haproxy: config or lua; of envoy: config or mapping")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "`ADDRESS` of the gateway")
	f.StringVar(&o.Upstream, "upstream", "127.0.0.1:9000", "`ADDRESS` of what is behind it")
	f.StringVar(&o.Envoy, "envoy", defaultEnvoyListen, "`ADDRESS` of the node's service for Envoy")
	f.StringVar(&o.Domain, "domain", "edge", "`NAME` of Envoy's domain")
	f.StringArrayVar(&labels, "label", []string{"tenant=X-Tenant"}, "`NAME=HEADER`: the label NAME is what the request's HEADER says")
	f.StringArrayVar(&costs, "cost", nil, "`UNIT=N`: what every request costs; requests is 1 unless given")
	f.StringVar(&o.Legacy, "legacy", "", "`HEADER` in which the limiter that is still in force says allow or deny; for tranche shadow report")
	f.DurationVar(&o.Deadline, "deadline", 100*time.Millisecond, "how long the node may take")
	a.withNode(c)
	return c
}

// gatewayPairs are in their order.
func gatewayPairs(what string, texts []string) (out []gateways.Pair, err error) {
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usagef("%s %q: write it with a = between its parts", what, text)
		}
		out = append(out, gateways.Pair{Name: name, Value: value})
	}
	return out, nil
}
