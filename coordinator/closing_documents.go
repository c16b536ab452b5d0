package coordinator

import (
	"time"

	"tranche/allocation"
)

// Closing is what remains of a ledger that is over everywhere: its record. It stays in etcd for a while, and then in the
// archive. Nothing in it changes but Late: what an owner stated after it was made.
type Closing struct {
	Format     int                       `json:"format"`
	Budget     string                    `json:"budget"`
	Unit       string                    `json:"unit"`
	Template   bool                      `json:"template,omitempty"`
	Term       allocation.Instant        `json:"term"`
	Until      allocation.Instant        `json:"until"` // the end of its last period
	Periods    allocation.Periods        `json:"periods"`
	Version    int64                     `json:"version"` // of the budget, that the ledger followed last
	Generation allocation.Generation     `json:"generation"`
	Closed     time.Time                 `json:"closed"`
	Total      allocation.PeriodRecord   `json:"total"`
	Regions    []ClosedRegion            `json:"regions"` // by incarnation; a share's `holder` is its place here
	Detail     []allocation.PeriodRecord `json:"detail"`  // by period
	Joined     bool                      `json:"joined,omitempty"`
}

// ClosedRegion is what one incarnation did in a closed term, summed over its periods.
type ClosedRegion struct {
	allocation.Holder
	Granted  int64 `json:"granted"`
	Returned int64 `json:"returned"`
	allocation.RecordSums
	NeverStated bool         `json:"never_stated,omitempty"` // it ended before it stated the end of the term
	InSum       bool         `json:"in_sum,omitempty"`       // the detail does not hold what it used, only the sums do
	Unknown     bool         `json:"unknown,omitempty"`      // its account had no room in etcd: what it used stands nowhere here
	Late        *LateAccount `json:"late,omitempty"`
}

// LateAccount is what an owner stated of a term after it was closed: reservations that were open then were settled,
// released or have lapsed. It counts in place of what was recorded before; the latest one holds.
type LateAccount struct {
	First time.Time `json:"first"`
	At    time.Time `json:"at"`
	Times int       `json:"times"`
	allocation.RecordSums
	Usage []allocation.UsageStatement `json:"usage,omitempty"` // of the periods, if there was room
}

// Amendment is a late account of a term whose record is archived already. It goes to the archive as well.
type Amendment struct {
	Format int                `json:"format"`
	Budget string             `json:"budget"`
	Unit   string             `json:"unit,omitempty"`
	Term   allocation.Instant `json:"term"`
	allocation.Holder
	Late LateAccount `json:"late"`
}

// Final is what counts of a region: what came late, if anything did.
func (r ClosedRegion) Final() allocation.RecordSums {
	if r.Late == nil {
		return r.RecordSums
	}
	return r.Late.RecordSums
}
