package allocation

import (
	"crypto/sha256"
	"maps"
)

// Op is what a request asks of its admission id.
type Op string

// The operations. Spend, Reserve and Check ask for an admission; the others speak of one that was made; Lapse is the
// owner's own, when a reservation's time is over.
const (
	Spend   Op = "spend"
	Reserve Op = "reserve"
	Check   Op = "check"
	Settle  Op = "settle"
	Release Op = "release"
	Extend  Op = "extend"
	Lapse   Op = "lapse"
)

// State is where an admission stands. See the table at Locked.Decide.
type State string

// The states. A reserved admission is the only one that is open.
const (
	StateSpent          State = "spent"
	StateReserved       State = "reserved"
	StateSettled        State = "settled"
	StateReleased       State = "released"
	StateLapsedSpent    State = "lapsed_spent"
	StateLapsedReleased State = "lapsed_released"
)

// IDKey names an admission in one region: the caller's admission id, for one credential's name and one tenant.
type IDKey struct {
	Credential string `json:"credential"`
	Tenant     string `json:"tenant"`
	ID         string `json:"id"`
}

// Compare orders keys for locking, bytewise as in Postgres' "C" collation.
func (k IDKey) Compare(o IDKey) int {
	if k.Credential != o.Credential {
		return compare(k.Credential, o.Credential)
	}
	if k.Tenant != o.Tenant {
		return compare(k.Tenant, o.Tenant)
	}
	return compare(k.ID, o.ID)
}

// Admission is what an owner remembers of an admission id. One without lines was released before it was ever reserved.
type Admission struct {
	IDKey
	Payload   string           `json:"-"`  // PayloadHash of the request that made it
	Op        Op               `json:"op"` // Spend, Reserve, or Release for one that never reserved
	State     State            `json:"state"`
	At        int64            `json:"at"`                   // Unix microseconds, by the owner's database
	ExpiresAt int64            `json:"expires_at,omitempty"` // of a reservation, Unix microseconds
	Latest    int64            `json:"latest,omitempty"`     // ExpiresAt may be extended up to here
	Lines     []AdmissionLine  `json:"lines,omitempty"`
	First     Evidence         `json:"first"`             // of the first answer
	Settled   map[string]int64 `json:"settled,omitempty"` // the true costs, when they were told
	Ladder    *LadderStep      `json:"ladder,omitempty"`  // of the first answer, if a ladder degraded it
}

// AdmissionLine is one budget that an admission was charged to.
type AdmissionLine struct {
	UsageKey
	Until      Instant `json:"until"`
	Unit       string  `json:"unit"`
	Version    int64   `json:"version"`
	Generation int64   `json:"generation"`
	Limit      int64   `json:"limit"`
	Share      int64   `json:"share"`     // of the region, when it was decided
	Requested  int64   `json:"requested"` // as first asked
	Remaining  int64   `json:"remaining"` // what the region could still spend after it
	Held       int64   `json:"held"`      // reserved now
	Spent      int64   `json:"spent"`     // charged for good
	Overdraft  int64   `json:"overdraft"`
	OnLapse    string  `json:"on_lapse"`

	Override    string `json:"override,omitempty"`    // the id of the override that Limit included
	Enforcement string `json:"enforcement,omitempty"` // Shadow or Meter, if the budget was not enforced; then it may be over its share
	Would       Reason `json:"would,omitempty"`       // see Uncharged: why nothing was charged; Allow where it was for another budget's sake
}

// Request is one request to an owner, complete but for what the owner decides.
type Request struct {
	Op          Op
	Key         IDKey
	Generated   bool // the id was made by the node, since the caller sent none
	Labels      Labels
	Costs       map[string]int64 // by unit
	Lifetime    Duration         // of a reservation; 0: the budgets' longest_reservation
	Priority    Priority         // empty: Interactive. Of an admission; the other operations go by the admission's own
	Correlation string
	Presented   Presented // the caller's own key; zero: a trusted gateway asks
	Fingerprint string    // of an external key, as a trusted gateway names it: for blocks and for evidence
}

// requestsOnly are the units of a request that names none: requests, which cost 1 where nothing is said. Saying so is no other
// request.
var requestsOnly = Labels{"requests": ""}

// PayloadHash tells whether a repeated admission id comes with the same request: the labels as sent, the operation, and
// the units of the costs. The amounts do not count, since an estimate may change between two tries. 16 bytes.
func (r Request) PayloadHash() string {
	var room [512]byte
	text := append(append(room[:0], r.Op...), '\n')
	if len(r.Costs) == 0 {
		text = appendCanonical(text, requestsOnly)
	} else {
		units := maps.Clone(requestsOnly)
		for unit := range r.Costs {
			units[unit] = ""
		}
		text = appendCanonical(text, units)
	}
	text = appendCanonical(append(text, '\n'), r.Labels)
	sum := sha256.Sum256(text)
	return string(sum[:16])
}

// Evidence says on what a decision rests.
type Evidence struct {
	Config         int64  `json:"config"`          // the owner's change number
	LedgerRevision int64  `json:"ledger_revision"` // that the region last heard of
	ObservedAt     int64  `json:"observed_at"`     // when the coordinator read it, Unix microseconds by the owner's clock; 0: never
	Incarnation    string `json:"incarnation"`
	Correlation    string `json:"correlation,omitempty"`
	Node           string `json:"node,omitempty"`
	// Capability is the request's label, completed from the routes table; empty: none.
	Capability string `json:"capability,omitempty"`
	// Priority is what the request counted as; empty: Interactive.
	Priority    Priority `json:"priority,omitempty"`
	Fingerprint string   `json:"fingerprint,omitempty"` // of the key that was shown or named
}
