package cli

import (
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"tranche/coordinator"
	"tranche/coordinator/archive"
)

// closingOptions say how long and where the records of closed terms are kept.
type closingOptions struct {
	retention time.Duration // in etcd
	file      string
}

func (o *closingOptions) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.retention, "closing-retention", coordinator.DefaultClosingRetention, "how long etcd keeps the record of a closed term; see `tranche budgets closings`")
	f.StringVar(&o.file, "closing-archive", "", "`FILE`, of this replica only, to which records of closed terms move after that (default closings.jsonl in --state-dir)")
}

// open opens the archive; nil: there is none.
func (o closingOptions) open(state *stateDir, log hclog.Logger) (*archive.File, error) {
	if o.file == "" && state != nil {
		o.file = filepath.Join(filepath.Dir(state.lock.Name()), "closings.jsonl")
	}
	if o.file == "" {
		log.Warn("no --closing-archive and no --state-dir: when this replica leads, records of closed terms are deleted after --closing-retention", "closing_retention", o.retention.String())
		return nil, nil
	}
	f, err := archive.Open(o.file, lockFile)
	if err != nil {
		return nil, err
	}
	if n := f.Damaged(); n > 0 {
		log.Warn("archive of closings has lines that cannot be read; they are passed over", "file", o.file, "lines", n)
	}
	return f, nil
}

// asArchive keeps a nil pointer from looking like an archive.
func asArchive(f *archive.File) coordinator.ClosingArchive {
	if f == nil {
		return nil
	}
	return f
}
