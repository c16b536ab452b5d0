package regional

import (
	"time"

	"tranche/allocation"
)

// MaxFullest bounds the budgets that a NodeStatus lists.
const MaxFullest = 20

// NodeStatus is one look at a node and at its region's owner, for operators and for readiness.
type NodeStatus struct {
	Region      string `json:"region"`
	Node        string `json:"node"`
	Deployment  string `json:"deployment,omitempty"`
	Version     string `json:"version,omitempty"`
	Incarnation string `json:"incarnation,omitempty"` // empty: the coordinator has not given one yet

	// Ready is false while admissions fail to commit, or would; Reasons then say why, in words. They are shown to
	// callers without a token, so they name no address and no secret.
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"`
	// Warnings are, in such words too, what will end admissions if nobody sees to it.
	Warnings []string `json:"warnings,omitempty"`
	Shadow   bool     `json:"shadow,omitempty"` // it refuses nobody, and is ready to do so whatever is wrong

	Stopped       allocation.Reason `json:"stopped,omitempty"` // why the owner admits nothing
	StoppedDetail string            `json:"stopped_detail,omitempty"`

	LastCommitAt    time.Time `json:"last_commit_at,omitzero"`
	LastCommitError string    `json:"last_commit_error,omitempty"` // empty once a commit has succeeded again

	Sync         SyncStatus        `json:"sync"`
	Runway       *Runway           `json:"runway,omitempty"` // nil: no budget bounds it
	Config       int64             `json:"config"`           // the coordinator's configuration number
	Changes      int64             `json:"changes"`          // the owner's change number
	Budgets      int               `json:"budgets"`          // that the region knows, deleted ones aside
	Reservations ReservationStatus `json:"reservations"`
	// OldestSnapshotSeconds is for how long another transaction of the database, such as a dump, has kept dead rows from
	// being pruned; 0: none is seen.
	OldestSnapshotSeconds float64        `json:"oldest_snapshot_seconds"`
	Fullest               []BudgetStatus `json:"fullest,omitempty"` // of the running periods, fullest first, at most MaxFullest
}

// SyncStatus says how the region stands with its coordinator.
type SyncStatus struct {
	Coordinator string    `json:"coordinator,omitempty"` // the address that the node calls
	LastSuccess time.Time `json:"last_success,omitzero"`
	AgeSeconds  float64   `json:"age_seconds"` // since LastSuccess, or since the node's start
	LastError   string    `json:"last_error,omitempty"`
	// TokenUnknown says that the coordinator answers, and does not know the region's token.
	TokenUnknown bool  `json:"token_unknown,omitempty"`
	Draining     bool  `json:"draining,omitempty"`
	Revision     int64 `json:"revision"` // of the ledger, as last heard
	// EvidenceAgeSeconds is how long ago the coordinator read what the owner has stored; nil: never.
	EvidenceAgeSeconds *float64 `json:"evidence_age_seconds,omitempty"`
}

// Runway is how long the region can go on alone, and the budget that ends first.
type Runway struct {
	Seconds int64  `json:"seconds"`
	Budget  string `json:"budget"`
}

// ReservationStatus counts what is reserved and not yet settled, released or lapsed.
type ReservationStatus struct {
	Open   int64     `json:"open"`
	Oldest time.Time `json:"oldest,omitzero"` // when it was made
	// OldestSeconds is its age, by the database's clock: how far settlements lag.
	OldestSeconds float64 `json:"oldest_age_seconds,omitempty"`
}

// BudgetStatus is one budget, or one instance of a template, in its running period.
type BudgetStatus struct {
	Budget    string             `json:"budget"`
	Instance  string             `json:"instance,omitempty"`
	Class     allocation.Class   `json:"class"`
	Unit      string             `json:"unit"`
	Period    allocation.Instant `json:"period"`
	Until     allocation.Instant `json:"until"`
	Limit     int64              `json:"limit"` // of the whole budget
	Share     int64              `json:"share"` // of this region
	Spent     int64              `json:"spent"`
	Reserved  int64              `json:"reserved"`
	Protected int64              `json:"protected,omitempty"` // of the share: for essential traffic
	Spendable int64              `json:"spendable"`
}
