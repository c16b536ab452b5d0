package regional

import (
	"cmp"
	"context"
	"time"

	"tranche/allocation"
)

// Records is where a region keeps what people look up afterwards: refusals in full, a bounded sample of them, and how many
// requests were refused over time. It stands beside the owner, in the same database, so that it outlives every node; nothing
// is decided by it, no transaction of the owner touches it, and no request waits for it.
//
// Bounds are held by deleting: Prune is to be called now and then.
type Records interface {
	// KeepRecords stores records and adds up counts, all in one transaction. ErrUnknownOutcome: perhaps it was stored, and
	// to store it again would count twice.
	KeepRecords(ctx context.Context, records []*allocation.Record, counts []RefusedCount) error
	// PruneRecords deletes what is above the bounds: records of which their minute has many first, then the oldest.
	PruneRecords(ctx context.Context, bounds RecordBounds) error
	// FindRecords lists records, the newest first. Next is what to go on before; 0: there is nothing more.
	FindRecords(ctx context.Context, q RecordQuery) (list []allocation.Record, next int64, err error)
	// RefusedOver adds up counts, in the order of time and then of what they are of.
	RefusedOver(ctx context.Context, q RefusedQuery) ([]RefusedCount, error)
	// KeepTenant stores that all refusals of a tenant are kept for a while; a later one replaces the one before. It is
	// refused, as false, where so many tenants are kept already.
	KeepTenant(ctx context.Context, k KeptTenant) (bool, error)
	// KeptTenants lists those whose time is not over.
	KeptTenants(ctx context.Context) ([]KeptTenant, error)
}

// Bounds of records.
const (
	MaxRecordPage     = 100
	MaxRefusedRows    = 5000
	MaxKeptTenants    = 32
	MaxKeepFor        = 7 * allocation.Day
	DefaultRecordRows = 20_000
	DefaultRecordAge  = 7 * allocation.Day
	MaxRecordRows     = 1_000_000
	SparedOfTenant    = 5  // records of one minute that go last, of each tenant
	SparedOfMinute    = 20 // and of all tenants
	refusedRowsFor    = 25 // rows of counts for each row of records
	refusedEvery      = 60 // seconds of one count
)

// RecordBounds is how much is kept in a region.
type RecordBounds struct {
	Rows  int64
	Age   allocation.Duration
	Count int64 // rows of counts
}

// RecordQuery says what to find. Empty fields are not asked for.
type RecordQuery struct {
	Decision, Correlation, AdmissionID, Fingerprint, Tenant, Reason string

	From, Until int64 // Unix microseconds; Until 0: no end
	Before      int64 // a record's number, as a page before said in next; 0: from the newest
	Limit       int
}

// RefusedQuery says which counts, and what to tell apart in them.
type RefusedQuery struct {
	From, Until int64 // Unix seconds; Until 0: no end
	Every       int64 // seconds of one sum, a multiple of a minute; 0: all in one
	Tenant      string
	By          RefusedBy
}

// RefusedBy are the columns to tell apart; of the others the counts are sums.
type RefusedBy struct{ Capability, Tenant, Priority, Reason bool }

// RefusedCount is what was refused in one stretch of time. The unit is always told apart: units of two kinds are no sum.
type RefusedCount struct {
	At         int64               `json:"-"` // Unix seconds, when the stretch begins
	Capability string              `json:"capability,omitempty"`
	Tenant     string              `json:"tenant,omitempty"`
	Priority   allocation.Priority `json:"priority,omitempty"`
	Reason     allocation.Reason   `json:"reason,omitempty"`
	Unit       string              `json:"unit,omitempty"` // of the budget that refused; empty: none did
	Requests   int64               `json:"requests"`
	Units      int64               `json:"units"`
}

// compare orders counts by time, and then by what they are of.
func (c RefusedCount) compare(o RefusedCount) int {
	return cmp.Or(cmp.Compare(c.At, o.At), cmp.Compare(c.Capability, o.Capability), cmp.Compare(c.Tenant, o.Tenant),
		cmp.Compare(c.Priority, o.Priority), cmp.Compare(c.Reason, o.Reason), cmp.Compare(c.Unit, o.Unit))
}

// KeptTenant is a tenant all of whose refusals are kept until a time.
type KeptTenant struct {
	Tenant string    `json:"tenant"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	By     string    `json:"by"`
}

// Sampling says which refusals a node keeps in full. The zero value keeps all, within the default bounds.
type Sampling struct {
	OneIn int64 // keep one of so many; 0: all; below 0: none but those of a tenant that is kept
	Rows  int64 // of the region; 0: DefaultRecordRows
	Age   allocation.Duration
}

func (s Sampling) bounds() RecordBounds {
	b := RecordBounds{Rows: s.Rows, Age: s.Age}
	if b.Rows == 0 {
		b.Rows = DefaultRecordRows
	}
	if b.Age == 0 {
		b.Age = DefaultRecordAge
	}
	b.Count = b.Rows * refusedRowsFor
	return b
}
