package allocation

import "hash/fnv"

// SyncFormat is the format number of a SyncCall and of its answer.
const SyncFormat = 1

// Shards is into how many parts an owner's statements are divided, by a hash of the budget's name that is fixed for ever.
const Shards = 256

// Bounds of one sync call and its answer.
const (
	MaxSharesPerCall    = 2000 // statements of shares; the rest follows in the next call
	MaxSharesPerAnswer  = 1000 // grants; More is set when there are others
	MaxBudgetsPerAnswer = 500  // budget changes; More is set when there are others
	MaxDemands          = 100  // budgets whose demand one call states
)

// ShardOf is the shard of a budget.
func ShardOf(budget string) int {
	h := fnv.New64a()
	h.Write([]byte(budget))
	return int(h.Sum64() % Shards)
}

// Home is the database in which an incarnation lives: what Postgres says of itself.
type Home struct {
	System   string `json:"system"`   // system identifier
	Database uint32 `json:"database"` // oid
	Timeline int64  `json:"timeline"`
}

// Mark is what a writer leaves in each of its transactions: a count that rises by one and a random value.
type Mark struct {
	Writer string `json:"writer"`
	Count  int64  `json:"count"`
	Value  string `json:"value"`
}

// Holds says whether a store that shows `now` for a writer still holds what the writer left before: a higher count, or
// the same count and value.
func (m Mark) Holds(now Mark) bool {
	return now.Writer == m.Writer && (now.Count > m.Count || now == m)
}

// SyncCall is what a region tells the coordinator: who it is, where it lives, and what changed since the statements that
// were acknowledged. POST /v1/sync, with the region's token.
type SyncCall struct {
	Format            int         `json:"format"`
	Deployment        string      `json:"deployment"` // that the region's token belongs to
	Region            string      `json:"region"`
	Node              string      `json:"node"`               // the caller, for logs and reports
	NodeURL           string      `json:"node_url,omitempty"` // where operators reach it, if it says so
	Version           string      `json:"version,omitempty"`  // of the program
	Shadow            bool        `json:"shadow,omitempty"`   // the node refuses nobody
	History           History     `json:"history"`            // the newest one that the owner has stored; zero at first
	Incarnation       string      `json:"incarnation"`        // empty asks for one
	Home              Home        `json:"home"`
	Clock             int64       `json:"clock"` // the owner's database clock, Unix microseconds
	ClosedBefore      Instant     `json:"closed_before"`
	Config            int64       `json:"config"`          // the configuration number that the owner has stored
	Marks             []Mark      `json:"marks"`           // of all writers of the owner
	Ended             []string    `json:"ended,omitempty"` // writers that ended cleanly: their rows stay until an answer acknowledges them
	Statements        []Statement `json:"statements,omitempty"`
	Known             []ShareAck  `json:"known,omitempty"`   // see SyncAnswer.Whole
	Low               []string    `json:"low,omitempty"`     // budgets of which the region wants to know what is elsewhere; at most 100
	Stopped           string      `json:"stopped,omitempty"` // the reason, when the owner admits nothing
	OpenReservations  int64       `json:"open_reservations"`
	OldestReservation int64       `json:"oldest_reservation,omitempty"` // when it was made, Unix microseconds
	WaitMillis        int64       `json:"wait_ms"`                      // how long the coordinator may hold the call while it has nothing to say
	// CompleteThrough is a ClosedBefore of which this call, with what was acknowledged before, states all: what was spent or
	// is reserved in the periods that end at or before it. 0: the call had no room for all that changed.
	CompleteThrough Instant `json:"complete_through,omitempty"`
	// Lost: the owner's database lost history and asks for a new incarnation. Incarnation is then the one that it had.
	Lost bool `json:"lost,omitempty"`
	// Starting: nobody vouches for the caller's database yet. It may be a copy of the one in which the incarnation lives, or lack
	// what was committed last: what it states to be returned may have been spent there. Its marks count, and what it states
	// is compared with what is known, and no more; it is told of no share, and states all again once it is vouched for. A freeze
	// hears it all the same.
	Starting bool `json:"starting,omitempty"`
	// Lineage is that of the owner's database, read in the transaction that made the statements; it is not sent.
	Lineage string `json:"-"`
	// All: the owner holds no shares but those that were stated, with Held, in this call and in those before it under this
	// History. It ends a freeze for this region.
	All bool `json:"all,omitempty"`
	// Demand is by budget, at most MaxDemands: those that lack most.
	Demand []Demand `json:"demand,omitempty"`
	// Ask makes this a word about Demand alone, from a region that runs low: no contact, no statement, and nothing of it
	// counts but the hint. What is granted comes with the answer to the call that is held meanwhile.
	Ask bool `json:"ask,omitempty"`
	// Regions are those that the coordinator ever named as registered: a freeze waits for all that anybody knows of.
	Regions []string `json:"regions,omitempty"`
	// Documents are those that the coordinator has not told the owner under this History, at most MaxDocumentsPerCall.
	Documents []Document `json:"documents,omitempty"`
	// DocumentsThrough is the configuration number through which the owner has stored documents. It is apart from Config: a
	// program that knew of no documents raised that one.
	DocumentsThrough int64 `json:"documents_through,omitempty"`
}

// Demand is how a region used a budget of policy demand lately, as one of its nodes saw it. It is a hint: what it says
// decides who is offered permits, and never who may spend them.
type Demand struct {
	Budget string  `json:"budget"`
	Period Instant `json:"period"`
	Used   int64   `json:"used"`  // spent and reserved in the period, by the region
	Rate   int64   `json:"rate"`  // units a minute that the region admits of late
	Unmet  int64   `json:"unmet"` // units that this node refused, or that wait at it, since its last call
}

// ShareAck says which generation of a share the owner has stored.
type ShareAck struct {
	Budget     string     `json:"budget"`
	Term       Instant    `json:"term"`
	Generation Generation `json:"generation"`
}

// Statement is an owner's account of one shard of budgets. Numbers rise; the highest number wins whole, and older ones are
// ignored. It holds the shares that changed since the statement of number Base, or all of them when Base is 0.
type Statement struct {
	Shard  int              `json:"shard"`
	Number int64            `json:"number"`
	Base   int64            `json:"base"`
	Shares []ShareStatement `json:"shares"`
}

// ShareStatement is the account of one budget over one term. It is whole in itself: it replaces the one before it.
type ShareStatement struct {
	Budget     string              `json:"budget"`
	Term       Instant             `json:"term"`       // its first period's start
	Generation Generation          `json:"generation"` // that the owner has stored
	Returned   []ReturnedStatement `json:"returned,omitempty"`
	Usage      []UsageStatement    `json:"usage,omitempty"` // of the periods that were used
	// Partial says that usage was left out, for want of room: in what a coordinator has kept. An owner states all of it.
	Partial bool   `json:"partial,omitempty"`
	Held    *Share `json:"held,omitempty"` // the share as stored, from the same snapshot; while Frozen asks for it
}

// ReturnedStatement says what the owner has returned of each period that starts in [From, Until): a run of periods, or
// one whose own usage made it differ. Cumulative. Those of one share and class never overlap.
type ReturnedStatement struct {
	From     Instant `json:"from"`
	Until    Instant `json:"until"`
	Class    Class   `json:"class"`
	Returned int64   `json:"returned"`
}

// UsageStatement is what was done with the permits of one period; for a template the sums over its instances.
type UsageStatement struct {
	Period    Instant `json:"period"`
	Class     Class   `json:"class"`
	Spent     int64   `json:"spent"`
	Reserved  int64   `json:"reserved"`
	Overdraft int64   `json:"overdraft,omitempty"`
	Instances int64   `json:"instances,omitempty"`
}

// SyncAnswer is what the coordinator says back. Nothing in it rests on time or on order: grants are cumulative and
// stamped, so an answer that is lost, repeated or late does no harm (invariant 8).
type SyncAnswer struct {
	Format            int        `json:"format"`
	Deployment        string     `json:"deployment"`
	History           History    `json:"history"`
	Incarnation       string     `json:"incarnation"`       // the region's current one; the owner stores it if it has none
	Refusal           string     `json:"refusal,omitempty"` // a Reason; the owner stops admitting, durably, and says so
	Detail            string     `json:"detail,omitempty"`  // of the refusal, for a person
	Now               int64      `json:"now"`               // the coordinator's clock, Unix microseconds
	Revision          int64      `json:"revision"`          // of the ledger, that this answer shows
	EvidenceAgeMillis int64      `json:"evidence_age_ms"`   // since the coordinator's last linearizable read, when it answered
	Acknowledged      []ShardAck `json:"acknowledged,omitempty"`
	EndedAcknowledged []string   `json:"ended_acknowledged,omitempty"` // the coordinator forgot these writers, durably: their rows may go
	// Contradicted comes with a refusal: the marks that the coordinator was told before and that this call no longer
	// shows. An owner that still holds each of them made this call before a later one that overtook it: it calls again.
	Contradicted []Mark             `json:"contradicted,omitempty"`
	Shares       []ShareGrant       `json:"shares,omitempty"`
	Closed       []ShareRef         `json:"closed,omitempty"` // terms that are closed everywhere: the owner may forget them
	Config       int64              `json:"config"`           // the configuration number that Budgets leads to
	Budgets      []ConfiguredBudget `json:"budgets,omitempty"`
	Elsewhere    []Elsewhere        `json:"elsewhere,omitempty"`
	Draining     bool               `json:"draining,omitempty"`
	More         bool               `json:"more,omitempty"` // there is more to say: call again at once
	// Frozen asks for all shares that the owner holds, each with Held, under History: see Freeze.
	Frozen bool `json:"frozen,omitempty"`
	// Restated: all that the call states with Held is in the ledgers. An answer without it, as of a replica that only heard of the
	// freeze meanwhile, says nothing of what was stated: it is to be stated again, before the region says All.
	Restated bool     `json:"restated,omitempty"`
	Regions  []string `json:"regions,omitempty"` // all that are registered; the owner remembers them for SyncCall.Regions
	// Removed were registered once. The owner forgets them: a freeze would wait for them for ever. That Regions does not name
	// one is no reason to: an etcd that went back may not know it yet.
	Removed []string `json:"removed,omitempty"`
	// Documents are those that changed since SyncCall.DocumentsThrough, and the present ones of those that the call states.
	Documents        []Document `json:"documents,omitempty"`
	DocumentsThrough int64      `json:"documents_through,omitempty"` // the configuration number that Documents leads to
	TakesDocuments   bool       `json:"takes_documents,omitempty"`   // the coordinator enters those that a call states
}

// ShardAck says which statement of a shard the coordinator has; Whole asks for the whole shard.
type ShardAck struct {
	Shard  int   `json:"shard"`
	Number int64 `json:"number"`
	Whole  bool  `json:"whole,omitempty"`
}

// ShareRef names a budget and a term.
type ShareRef struct {
	Budget string  `json:"budget"`
	Term   Instant `json:"term"`
}

// ShareGrant is the ledger's current state of one incarnation's share of a budget over one term.
type ShareGrant struct {
	Budget     string       `json:"budget"`
	Version    int64        `json:"version"`
	Template   bool         `json:"template,omitempty"`
	Policy     Policy       `json:"policy"`
	Regions    []string     `json:"regions"`
	Periods    Periods      `json:"periods"`
	Generation Generation   `json:"generation"`
	Entries    []GrantEntry `json:"entries"`
	// OpeningSpent was spent of the term's first period before the budget was declared: see Entry. No owner may spend it, and
	// each remembers it, so that a ledger can be made anew from what any of them holds.
	OpeningSpent int64 `json:"opening_spent,omitempty"`
}

// GrantEntry is what the ledger granted of each period that starts in [From, Until). Granted and Returned are cumulative.
type GrantEntry struct {
	From     Instant `json:"from"`
	Until    Instant `json:"until"`
	Class    Class   `json:"class"`
	Limit    int64   `json:"limit"`
	Granted  int64   `json:"granted"`
	Returned int64   `json:"returned"` // that the ledger has counted
	Target   int64   `json:"target"`
	// Protected is how much of Target only essential traffic may spend.
	Protected int64 `json:"protected,omitempty"`
}

// ConfiguredBudget is one version of a budget. Number is the configuration number of the change that made it.
type ConfiguredBudget struct {
	Budget  Budget `json:"budget"`
	Version int64  `json:"version"`
	Number  int64  `json:"number"`
	Deleted bool   `json:"deleted,omitempty"`
}

// Elsewhere is what the coordinator knows of the permits of a period outside the region that asks.
type Elsewhere struct {
	Budget string  `json:"budget"`
	Period Instant `json:"period"`
	// Limit and Generation are the ledger's, under which all of this was counted. Under others it says nothing of what is
	// left: a limit was raised since, or permits that this region gave back are on their way to somebody.
	Limit       int64 `json:"limit"`
	Generation  int64 `json:"generation"`
	Unallocated int64 `json:"unallocated"`
	Kept        int64 `json:"kept,omitempty"`     // of Unallocated, for a region that begins anew: none that is there gets it
	Returned    int64 `json:"returned,omitempty"` // by the region that asks, as the ledger has counted it
	Spendable   int64 `json:"spendable"`          // held by regions in contact, as last stated
	Reserved    int64 `json:"reserved"`           // by requests under way in any of these regions
	Stranded    int64 `json:"stranded"`           // held by regions that cannot be asked
}
