package cli

import (
	"github.com/spf13/pflag"

	"tranche/regional"
)

// forwardOptions say where requests go that are at home in another region.
type forwardOptions struct {
	nodes map[string]string
	ca    string
}

func (o *forwardOptions) flags(f *pflag.FlagSet) {
	f.StringToStringVar(&o.nodes, "forward", nil, "`REGION=URL` of another region's nodes, for budgets with forward: true; repeat it for each region")
	f.StringVar(&o.ca, "forward-ca", "", "`FILE` of the authority that signed their certificates")
}

// open is what sends them there; nil: nothing is forwarded.
func (o *forwardOptions) open() (*regional.Forwarder, error) {
	if len(o.nodes) == 0 {
		if o.ca != "" {
			return nil, usagef("--forward-ca is for --forward REGION=URL; give both, or leave it out")
		}
		return nil, nil
	}
	trusted, err := trust(o.ca)
	if err != nil {
		return nil, err
	}
	f, err := regional.NewForwarder(o.nodes, trusted)
	if err != nil {
		return nil, usageError{err}
	}
	return f, nil
}
