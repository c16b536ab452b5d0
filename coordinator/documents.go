package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tranche/allocation"
)

// documentFormat is the format number of every document of this package. A document of another one is neither read nor
// written: reading it as ours would drop what a newer version wrote into it.
const documentFormat = 1

// Deployment is the one document of a whole deployment. Config rises with every change of a budget, Members with every
// change of the regions that ledgers grant to.
type Deployment struct {
	Format  int                `json:"format"`
	ID      string             `json:"id"` // random, bound into region tokens
	Made    time.Time          `json:"made"`
	History allocation.History `json:"history"` // that the deployment began with; StandingDocument has the present one
	Config  int64              `json:"config"`
	Members int64              `json:"members"`
}

// BudgetDocument is the newest version of a budget. A deleted one stays, with limit 0, so that its name's versions and
// terms go on where they ended if it is made again.
type BudgetDocument struct {
	Format  int               `json:"format"`
	Budget  allocation.Budget `json:"budget"`
	Version int64             `json:"version"`
	Number  int64             `json:"number"` // the configuration number of the change that made this version
	Deleted bool              `json:"deleted,omitempty"`
	Changed time.Time         `json:"changed"`
	// Under is the history under which this version was made; zero: the deployment's first.
	Under allocation.History `json:"under,omitzero"`
	// Before is the version that etcd had when that history began: later ones that regions know were made in what was lost.
	Before int64 `json:"before,omitempty"`
	// LostVersion is the latest version that a region knew, and etcd lost, until the budget is declared again.
	LostVersion int64 `json:"lost_version,omitempty"`
	// Lost: etcd lost the declaration, and knows only from a region that there is such a budget. Its ledgers stand as they
	// are until it is declared again; nobody is told of it, so the regions go on as it was declared to them.
	Lost          bool               `json:"lost,omitempty"`
	OpenedThrough allocation.Instant `json:"opened_through"` // end of the last opened term; only rises; 0: none was opened
}

// RegionDocument is one registered region.
type RegionDocument struct {
	Format      int             `json:"format"`
	Region      string          `json:"region"`
	Registered  time.Time       `json:"registered"`
	Draining    bool            `json:"draining,omitempty"`
	Incarnation string          `json:"incarnation,omitempty"`
	Home        allocation.Home `json:"home,omitzero"` // where the incarnation lives
	// Confirmed: a call has named the incarnation, so its owner has stored it. Nothing is granted before, so that an
	// incarnation whose first answer was lost can be given out once more.
	Confirmed bool     `json:"confirmed,omitempty"`
	Former    []string `json:"former,omitempty"`  // see allocation.Residence
	Sealing   string   `json:"sealing,omitempty"` // see allocation.Residence
	// GivenUnder is the history under which the incarnation was given out. One that was given out and not named yet may have
	// been named in a line that was lost since.
	GivenUnder allocation.History `json:"given_under,omitzero"`
	// AskedWith are the marks of the call that the incarnation was given out to: a call of the former one that shows no later
	// marks was made before, and one that does not hold them is another database's. Empty: they were too many to keep.
	AskedWith     []allocation.Mark `json:"asked_with,omitempty"`
	Contradiction *Contradiction    `json:"contradiction,omitempty"` // the owner or etcd lost history, or another database calls; nil: none known
	Contradicted  []Contradicted    `json:"contradicted,omitempty"`  // callers that were refused lately, at most maxContradicted
	Handover      *Handover         `json:"handover,omitempty"`      // to another database, that is under way
	// Left are the homes that were handed over for good, the last maxLeft of them: a call from there is late, and does not
	// make it the home again.
	Left []allocation.Home `json:"left,omitempty"`
	// Removed: there is no such region any more. The document stays, so that an old database which calls after the name was
	// registered again is known as a former one.
	Removed *Removal `json:"removed,omitempty"`
}

// Removal is who removed a region, and why.
type Removal struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// Contradiction is a refused call of a region whose word and the coordinator's do not fit together. See contradictions.go
// for how long it stands.
type Contradiction struct {
	At          time.Time       `json:"at"`   // the first such call
	Last        time.Time       `json:"last"` // the latest, up to contradictionRefresh before
	Kind        string          `json:"kind"`
	Incarnation string          `json:"incarnation,omitempty"` // that the caller has
	Home        allocation.Home `json:"home"`                  // of the caller; the region's own is the recorded one
	Other       bool            `json:"other_database"`        // it comes from another database than the recorded one, or from a copy of it
	Detail      string          `json:"detail"`
}

// Contradicted is a caller that was refused, for one reason: it is audited once.
type Contradicted struct {
	Kind        string          `json:"kind"`
	Incarnation string          `json:"incarnation,omitempty"`
	Home        allocation.Home `json:"home"`
	Last        time.Time       `json:"last"`
	Cleared     bool            `json:"cleared,omitempty"` // and audited so
}

// Contact is what is known from a region's calls.
type Contact struct {
	Format            int                `json:"format"`
	Region            string             `json:"region"`
	Incarnation       string             `json:"incarnation"`
	Heard             int64              `json:"heard"`                    // counts the calls: of two contacts the higher is newer, whatever clocks say
	At                time.Time          `json:"at"`                       // arrival of the latest call
	SkewMicros        int64              `json:"skew_us"`                  // the owner's database clock less the coordinator's, at arrival
	ClosedBefore      allocation.Instant `json:"closed_before"`            // only rises
	StatedThrough     allocation.Instant `json:"stated_through,omitempty"` // only rises: what was done before it stands in the statements
	StatedUnder       allocation.History `json:"stated_under,omitzero"`    // of etcd, in which these statements stand: another one may have lost them
	Config            int64              `json:"config"`                   // that the owner had stored
	Documents         int64              `json:"documents,omitempty"`      // the configuration number through which it had stored documents
	History           allocation.History `json:"history,omitzero"`         // of etcd, that the owner had stored
	Regions           []string           `json:"regions,omitempty"`        // that it knows of
	Marks             []allocation.Mark  `json:"marks,omitempty"`          // of the owner's writers, the newest of each
	Ended             []string           `json:"ended,omitempty"`          // writers that are forgotten; the latest maxEnded
	Nodes             []NodeSeen         `json:"nodes,omitempty"`
	Stopped           string             `json:"stopped,omitempty"`
	OpenReservations  int64              `json:"open_reservations"`
	OldestReservation int64              `json:"oldest_reservation,omitempty"` // Unix microseconds
}

// NodeSeen is a node that made a call.
type NodeSeen struct {
	Node    string    `json:"node"`
	URL     string    `json:"url,omitempty"`
	Version string    `json:"version,omitempty"`
	Shadow  bool      `json:"shadow,omitempty"` // it refuses nobody
	At      time.Time `json:"at"`
}

// StatementDocument is what an owner last stated of a shard.
type StatementDocument struct {
	Format      int                         `json:"format"`
	Region      string                      `json:"region"`
	Incarnation string                      `json:"incarnation"`
	Shard       int                         `json:"shard"`
	Number      int64                       `json:"number"`
	History     allocation.History          `json:"history,omitzero"`   // of etcd, under which it was stated
	At          time.Time                   `json:"at"`                 // arrival
	Trimmed     bool                        `json:"trimmed,omitempty"`  // something is left out for want of room: see Partial of a share
	LeftOut     bool                        `json:"left_out,omitempty"` // and so are whole shares
	Shares      []allocation.ShareStatement `json:"shares"`
}

// Rebalance is a manual move of permits. It is done once the giver holds no more than its target in any of its terms. It
// stands in these terms while the budget's version does and both regions take part; any change of the budget splits all
// opened terms anew.
type Rebalance struct {
	Format  int                  `json:"format"`
	ID      string               `json:"id"`
	Budget  string               `json:"budget"`
	Version int64                `json:"version,omitempty"` // of the budget, when it was made; 0: not recorded
	From    string               `json:"from"`
	To      string               `json:"to"`
	Units   int64                `json:"units"` // of each period
	Giver   string               `json:"giver"` // incarnation of From
	Taker   string               `json:"taker"` // incarnation of To
	Plan    string               `json:"plan,omitempty"`
	Terms   []allocation.Instant `json:"terms"`
	Since   allocation.Instant   `json:"since"` // the first period that it counts for
	Until   allocation.Instant   `json:"until"` // the end of the last
	State   string               `json:"state"`
	Made    time.Time            `json:"made"`
	By      string               `json:"by"`
	Ended   time.Time            `json:"ended,omitzero"`
	Why     string               `json:"why,omitempty"` // it is not done
	Moved                        // until it has ended, zero in the document
}

// The states of a Rebalance.
const (
	RebalanceMoving  = "moving"
	RebalanceDone    = "done"
	RebalanceUndone  = "undone"  // before it was done the budget was changed or deleted, or one of the regions drained or began anew
	RebalanceEnded   = "ended"   // it could not finish: one of the regions could not be asked
	RebalanceRefused = "refused" // of a plan: when its turn came it could not be made any more
)

// Closing is what remains of a ledger that is over everywhere.
type Closing struct {
	Format     int                   `json:"format"`
	Budget     string                `json:"budget"`
	Unit       string                `json:"unit"`
	Term       allocation.Instant    `json:"term"`
	Periods    allocation.Periods    `json:"periods"`
	Generation allocation.Generation `json:"generation"`
	Closed     time.Time             `json:"closed"`
	Regions    []ClosedRegion        `json:"regions"`
	// OpeningSpent was spent of the first period before the budget was declared, by none of the regions.
	OpeningSpent int64 `json:"opening_spent,omitempty"`
	// Limit is the sum of all periods' limits. What nobody spent of it is Unused, and Unrecovered if an incarnation held it
	// that was gone: it was stranded, and nobody got it back. Of a template all three are left out.
	Limit       int64 `json:"limit,omitempty"`
	Unused      int64 `json:"unused,omitempty"`
	Unrecovered int64 `json:"unrecovered,omitempty"`
	// Limits is the column of the periods' limits, where a term has several, of a template each instance's. PeriodsLeftOut: there
	// would be too many numbers; see closing_periods.go.
	Limits         []int64 `json:"limits,omitempty"`
	PeriodsLeftOut bool    `json:"periods_left_out,omitempty"`
}

// ClosedRegion is what one incarnation last stated of a closed term, summed over its periods.
type ClosedRegion struct {
	allocation.Holder
	Spent     int64 `json:"spent"`
	Reserved  int64 `json:"reserved"`
	Overdraft int64 `json:"overdraft"`
	// Unstated: etcd lost what this incarnation had stated, and its owner, which had been told in the history that was lost
	// that the term is closed, does not state it any more; or the document of its shard had no room for it. All that it held is
	// counted as spent.
	Unstated bool `json:"unstated,omitempty"`
	// Held is what was granted to it and not returned, over all periods. Of a former incarnation, which states nothing any
	// more, what it neither spent nor reserved is Unrecovered.
	Held        int64 `json:"held,omitempty"`
	Unrecovered int64 `json:"unrecovered,omitempty"`
	// Periods has the same for each period, where a term has several.
	Periods *ClosedColumns `json:"periods,omitempty"`
	// Late is what it stated after the record was made. Nothing else here changes by it.
	Late *LateStatement `json:"late,omitempty"`
}

// TokenDocument is a credential. Only the hash is stored: tokens carry 128 random bits, so nobody finds one by trying,
// and a plain SHA-256, without salt or stretching, is enough.
type TokenDocument struct {
	Format int    `json:"format"`
	Name   string `json:"name"` // unique; stands in every audit line
	Role   string `json:"role"` // admin, viewer, region
	Region string `json:"region,omitempty"`
	Hash   string `json:"hash"` // SHA-256 in hex
	// Old is the hash that a rotation replaced: it is taken until OldUntil.
	Old      string    `json:"old,omitempty"`
	OldUntil time.Time `json:"old_until,omitzero"`
	Made     time.Time `json:"made"`
	By       string    `json:"by"`
}

// AuditLine is one act: who did what to which object, and what it was before.
type AuditLine struct {
	Format int             `json:"format"`
	At     time.Time       `json:"at"`
	Who    string          `json:"who"`            // the name of the token
	From   string          `json:"from"`           // the caller's address; "-": there is none
	Node   string          `json:"node,omitempty"` // of an act that a region's call brought about: the name that its node gives itself
	Act    string          `json:"act"`
	Object string          `json:"object"`
	Old    json.RawMessage `json:"old,omitempty"`
	New    json.RawMessage `json:"new,omitempty"`
	Reason string          `json:"reason,omitempty"` // that the caller gave
}

// errFormat says that a document is of a format that this version does not know.
var errFormat = errors.New("the document is of a format that this version does not know")

// decode reads a document of the package's own format.
func decode[T any](value []byte) (T, error) {
	var out T
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return out, fmt.Errorf("read a document: %w", err)
	}
	if head.Format != documentFormat {
		return out, fmt.Errorf("format %d: %w", head.Format, errFormat)
	}
	err := json.Unmarshal(value, &out)
	return out, err
}

// encode writes a document. Our own documents hold nothing that JSON cannot.
func encode(document any) []byte {
	out, err := json.Marshal(document)
	if err != nil {
		panic("encode a document: " + err.Error())
	}
	return out
}

// doc is a document as it was read: what a write that rests on it compares. Its value is never changed in place, so it
// may be read without the lock that guards the pointer to it.
type doc[T any] struct {
	item  Item
	value T
}

// known is the item that a change compares; for a document that does not exist, the key with revision 0.
func (d *doc[T]) known(key string) Item {
	if d == nil {
		return Item{Key: key}
	}
	return d.item
}

// put is the item that replaces a document.
func put(key string, document any) Item { return Item{Key: key, Value: encode(document)} }
