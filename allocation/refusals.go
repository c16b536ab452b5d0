package allocation

// RefusalReport is what one node refused since it started, for the stranded report: sums that only rise within a run, so
// a report may be lost, repeated or late. POST /v1/refusals, with the region's token. It moves no permit.
type RefusalReport struct {
	Format int            `json:"format"` // SyncFormat
	Node   string         `json:"node"`
	Run    string         `json:"run"` // a random name of this run of the node
	Counts []RefusalCount `json:"counts"`
	// Used is when keys were last admitted with since the report before, by fingerprint, Unix seconds; at most MaxUsedKeys.
	Used map[string]int64 `json:"used,omitempty"`
	// Estimates is how far true costs were from estimates since the node started, at most MaxEstimates; absent: as told before.
	Estimates []EstimateCount `json:"estimates,omitempty"`
}

// MaxUsedKeys bounds the keys of one report; the others follow in the next.
const MaxUsedKeys = 500

// RefusalCount is the refusals of one reason that one budget is blamed for.
type RefusalCount struct {
	Budget   string `json:"budget"`
	Reason   Reason `json:"reason"`
	Requests int64  `json:"requests"`
	Units    int64  `json:"units"` // that they asked of the budget
}
