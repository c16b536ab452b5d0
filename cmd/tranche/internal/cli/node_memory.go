package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"tranche/regional"
)

// memoryOptions are the flags of what a node remembers from a clean stop to the next start.
type memoryOptions struct{ stateDir string }

func (o *memoryOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.stateDir, "state-dir", "", "`FOLDER` of this node alone, for what it remembers from a clean stop to the next start")
}

// check makes the folder, before anything is served.
func (o *memoryOptions) check() error {
	if o.stateDir == "" {
		return nil
	}
	if err := os.MkdirAll(o.stateDir, 0o700); err != nil {
		return usagef("--state-dir %s: %w; name a folder that this node may write to", o.stateDir, err)
	}
	return nil
}

// open is where the node's marks outlive a clean stop; nil without --state-dir.
func (o *memoryOptions) open() regional.Memory {
	if o.stateDir == "" {
		return nil
	}
	return regional.FileMemory{Path: filepath.Join(o.stateDir, "marks.json")}
}
