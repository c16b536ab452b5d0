package cli

import (
	"github.com/spf13/pflag"

	"tranche/allocation"
	"tranche/coordinator"
)

// goOnOptions are the flags with which an empty etcd goes on as a deployment that was there before.
type goOnOptions struct {
	deployment string
	regions    []string
}

func (o *goOnOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.deployment, "deployment", "", "`ID` of the deployment that goes on, where etcd was lost and is empty; needs --regions")
	f.StringSliceVar(&o.regions, "regions", nil, "`NAMES` of all regions of --deployment: all is frozen until each has stated what it holds")
}

func (o *goOnOptions) check() error {
	switch {
	case (o.deployment == "") != (len(o.regions) == 0):
		return usagef("--deployment and --regions go together: name the deployment and all its regions, also those that are gone")
	case o.deployment != "" && !allocation.ValidRegion(o.deployment):
		return usagef("--deployment %q is no deployment's id; `tranche status` says it, and so does a region's token: tranche_region_ID_…", o.deployment)
	}
	for _, name := range o.regions {
		if !allocation.ValidRegion(name) {
			return usagef("--regions: %q is not a region's name; use 1 to 63 of a-z 0-9 -, with commas between them", name)
		}
	}
	return nil
}

func (o *goOnOptions) value() *coordinator.GoOn {
	if o.deployment == "" {
		return nil
	}
	return &coordinator.GoOn{Deployment: o.deployment, Regions: o.regions}
}
