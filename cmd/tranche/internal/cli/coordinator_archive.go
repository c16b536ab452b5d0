package cli

import (
	"fmt"
	"path/filepath"
	"time"

	"tranche/coordinator"
	"tranche/coordinator/ndjson"
)

// noArchive is the folder of a coordinator that keeps no closing records.
const noArchive = "none"

// openArchive opens the folder of closing records; nil without one.
func (o coordinatorOptions) openArchive(now func() time.Time) (coordinator.Archive, error) {
	folder := o.archive
	switch {
	case folder == noArchive:
		return nil, nil
	case folder == "" && o.stateDir != "":
		folder = filepath.Join(o.stateDir, "closings")
	case folder == "" && o.dev:
		folder = filepath.Join(o.dataDir, "state", "closings")
	case folder == "":
		return nil, nil
	}
	a, err := ndjson.Open(folder, now)
	if err != nil {
		return nil, fmt.Errorf("%w; choose another --closing-archive, or see to its rights", err)
	}
	return a, nil
}
