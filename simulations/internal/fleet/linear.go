package fleet

import (
	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// linear gathers the history of each owner's share of the steady budget, period by period.
type linear struct{ checks *checks }

func newLinear(c *checks) *linear { return &linear{checks: c} }

func (l *linear) limits(allocation.ShareRef, allocation.Ledger) {}

func (l *linear) commit(*region, *ownertwin.Commit) {}
