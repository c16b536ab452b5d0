package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"tranche/allocation"
	"tranche/regional"
)

// refusalOptions say which refusals a node keeps in full, and how much of it.
type refusalOptions struct {
	keep string
	rows int64
	age  time.Duration

	sampling regional.Sampling // what they come to
}

func (o *refusalOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.keep, "keep-refusals", "all", "which refusals are kept in full: `all` (as many as a node writes a second), 1/N, or none")
	f.Int64Var(&o.rows, "keep-refusals-rows", regional.DefaultRecordRows, "how many refusals a region keeps; of a storm most go first, then the oldest")
	f.DurationVar(&o.age, "keep-refusals-for", regional.DefaultRecordAge.Std(), "how long refusals are kept")
}

func (o *refusalOptions) check() error {
	s := &o.sampling
	part, isPart := strings.CutPrefix(o.keep, "1/")
	n, bad := strconv.ParseInt(part, 10, 64)
	switch {
	case o.keep == "all":
		s.OneIn = 1
	case o.keep == "none":
		s.OneIn = -1
	case isPart && bad == nil && n > 0:
		s.OneIn = n
	default:
		return usagef("--keep-refusals %s: use all, none, or 1/N such as 1/100", o.keep)
	}
	switch {
	case o.rows < 1 || o.rows > regional.MaxRecordRows:
		return usagef("--keep-refusals-rows %d: use 1 to %d", o.rows, regional.MaxRecordRows)
	case o.age < time.Minute || o.age > 366*24*time.Hour:
		return usagef("--keep-refusals-for %s: use 1m to 8784h", o.age)
	}
	s.Rows, s.Age = o.rows, allocation.Duration(o.age/time.Second)
	return nil
}
