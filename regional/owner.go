package regional

import (
	"context"
	"errors"
	"time"

	"tranche/allocation"
)

// Bounds of one batch.
const (
	MaxBatchRequests = 1000
	MaxBatchKeys     = 2000
	MaxChanges       = 100 // budgets, terms and documents that one batch reads; a node further behind loads them first
)

// Errors of an Owner. What is none of them, and wraps none, was not committed and never will be.
var (
	// ErrRaced: what the transaction was decided on had changed by the time it was written, such as an id that another
	// node had just inserted. Nothing was committed; decide again.
	ErrRaced = errors.New("another transaction was faster")
	// ErrUnknownOutcome: the answer of a commit was lost, or came with a warning. Resolve tells.
	ErrUnknownOutcome = errors.New("the answer to a commit was lost")
	// ErrHistoryLost: this writer's own last mark is not in the database: it was restored, or is another one.
	ErrHistoryLost = errors.New("the node's own last write is not in the database: it lost history")
	// ErrNotReady: the database has no owner of this region yet, or one that another format made.
	ErrNotReady = errors.New("the database is not set up for this region")
)

// Owner is what a node needs of the region's one Postgres database. Every method is one transaction (Begin and its Commit
// together are one). Whoever writes does so through a Writer, whose mark is compared and replaced in that transaction.
//
// Lock order, for everybody: the id-switch lock (shared; exclusive to switch id tables and to close periods), share rows,
// usage rows by key, admission ids by key, the owner row, the writer's row.
type Owner interface {
	// NewWriter registers a writer without memory: one slot of this process, with a random id that is never used again.
	NewWriter(ctx context.Context, name string) (Writer, error)

	// ResumeWriter goes on with a writer whose mark was kept from a clean stop: it has memory. It must be resolved before it
	// is used: that fails with ErrHistoryLost if the database holds another mark.
	ResumeWriter(mark allocation.Mark) Writer

	// Look leaves a mark and sees those of all other writers, in one transaction: how a writer that nobody vouches for finds
	// out whether the others go on.
	Look(ctx context.Context, w Writer) (Look, error)

	// Load reads the owner's row, and the budgets, terms and documents that changed after the change number `after` (0: all).
	Load(ctx context.Context, after int64) (Loaded, error)

	// Begin is the first of the two round trips of a batch: it locks and reads what the batch wants.
	Begin(ctx context.Context, w Writer, want Want) (Batch, error)

	// Peek reads what a batch would, with neither locks nor writes: for checks.
	Peek(ctx context.Context, want Want) (Seen, error)

	// Turn says whether the named node may do for the next while what one node does for its region: sync, sweep, tidy. It
	// takes a turn that is free or renews its own. A habit that saves calls; nothing rests on it, so it leaves no mark.
	Turn(ctx context.Context, node string, lasts time.Duration) (bool, error)

	// Fullest lists the usage of running periods that are the most used up, fullest first, instances of templates aside.
	Fullest(ctx context.Context, limit int) ([]allocation.Usage, error)

	// Statements makes the numbered statements of the shards that changed since the acknowledged numbers, from one
	// snapshot taken after the numbers were raised, and what else a call says of the owner.
	// It also names, in Low, the budgets whose running period has less than a tenth of its share left: the coordinator
	// then says what is elsewhere, so that a refusal can tell whether the whole budget is spent. Lineage is that of this transaction.
	Statements(ctx context.Context, w Writer, acknowledged map[int]int64) (allocation.SyncCall, error)

	// StateHeld states whole shards, from the given one on, each share with Held, as a frozen coordinator asks for. Next is
	// the shard to go on with, allocation.Shards when no share is left.
	StateHeld(ctx context.Context, w Writer, from int) (call allocation.SyncCall, next int, err error)

	// Apply stores an answer of the coordinator: incarnation, configuration, grants (what they leave above a target is
	// returned in the same commit), the evidence, the regions that there are, acknowledged ends of writers. observedAt is
	// by the database's clock, Unix microseconds.
	//
	// A newer history is stored, and nothing else of that answer (allocation.History.Heed); what was acknowledged under the
	// one before is forgotten, so that it is stated again, and so is through which number configuration is stored, so that
	// all of it is told again. A refusal says that the owner
	// lost history if it misses marks, or if another incarnation is the region's: see Lose. Any other refusal, such as that
	// the incarnation lives in another home, stops the owner, durably, until Lift; see StopReason. To an owner that is lost
	// or sealed no answer does anything but that.
	Apply(ctx context.Context, w Writer, answer allocation.SyncAnswer, observedAt int64) error

	// Lift ends a stop by a refusal, of the reason that the owner showed when an answer without a refusal was asked for. It
	// never lifts that history was lost, nor a seal.
	Lift(ctx context.Context, w Writer, was allocation.Reason) error

	// Lose records that the owner lost history, on the word of a writer (by its id) that does not find its mark; from then on
	// nothing is admitted until StartOver. Once it returns, no batch that began before it commits any more. It answers false,
	// and does nothing, if the writer's marks were of an incarnation before this one, or if the database has none: then
	// nothing is lost, and the writer is to be registered anew.
	Lose(ctx context.Context, writer, detail string) (bool, error)

	// StartOver makes an owner that lost history, or is sealed, the new incarnation that the answer to its call gives: one
	// transaction, after which it holds nothing. Ids stay and are answered; open reservations count as spent; all writers are
	// of the former incarnation, and must be registered anew. An answer of a newer history is heeded, no more. One to a call
	// of another incarnation than the present one changes nothing.
	StartOver(ctx context.Context, call allocation.SyncCall, answer allocation.SyncAnswer) (StartedOver, error)

	// Seal ends the incarnation for good, all its shares and usage at once, and reads what it proves, marks included. No spend
	// commits after it and no grant is taken; settle, release and lapse are. Sealing again reads again. An incarnation that
	// is named must be the present one. It fails with ErrHistoryLost on an owner that is known to have lost history: what
	// such a database says is no proof.
	Seal(ctx context.Context, incarnation string) (allocation.Seal, error)

	// HandOver does one step of a handover, in the database whose recorded home is given, and answers how that stands then; see
	// Handover. Once Stop has returned, no transaction that began before it commits any more, and no other does: they fail
	// with ErrHandedOver, statements, answers, seals and new writers too.
	HandOver(ctx context.Context, step HandoverStep, asked Handover, recorded allocation.Home) (Handover, error)

	// Close raises closed_before to at most `upTo` and the database's clock less the grace, under the exclusive
	// id-switch lock, and answers where it stands.
	Close(ctx context.Context, w Writer, upTo allocation.Instant, grace allocation.Duration) (allocation.Instant, error)

	// Tidy switches to the next id table when the open one is old enough, empties those whose retention is over by the
	// database's clock and by monotonic (how long this node has known the table to be closed) and in which nothing is
	// reserved, and removes the usage and shares of terms that are closed, stated, past the retention and that no id
	// can speak of. It says what it did.
	Tidy(ctx context.Context, w Writer, retention allocation.Duration, monotonic func(table int) allocation.Duration) (string, error)

	// Lapsed lists open reservations whose time is over by the database's clock, at most limit.
	Lapsed(ctx context.Context, limit int) ([]allocation.IDKey, error)

	// Reservations lists open reservations in the order of their keys, after the given one.
	Reservations(ctx context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error)

	// Charged sums up what the chosen admissions were charged, all tables of ids together, in one snapshot, and only for as
	// long as keeps batches from harm: then it fails with ErrTooLong, and nothing is known.
	Charged(ctx context.Context, q ChargedQuery) (Charged, error)

	// PutDocument stores a document that was made in this region, and is stated from the next call on until the coordinator
	// tells it. It changes nothing, and answers false, if what is stored is not to be replaced by it. It needs no writer: made
	// again it does nothing. Once it returns, every batch that begins reads it.
	PutDocument(ctx context.Context, d allocation.Document) (bool, error)

	// Export reads the whole account of the owner at one snapshot, shares and usage by budget, after the named budget,
	// at most limit budgets: for verify.
	Export(ctx context.Context, after string, limit int) (Account, error)
}

// StopReason is why an owner is stopped by a refusal that does not tell of a loss: it waits to be the one that counts.
func StopReason(refusal string) allocation.Reason {
	if refusal == string(allocation.HistoryLost) {
		return allocation.Starting
	}
	return allocation.Reason(refusal)
}

// Writer is one slot of one process that writes to the owner's database. It serves one transaction at a time, and keeps
// in memory what it last wrote or tried to write: any other mark in its row is lost history, whatever else looks right.
type Writer interface {
	Mark() allocation.Mark
	// Resolve settles an unknown outcome: it waits until the lost transaction has ended, and says whether it was
	// committed. While it fails, the outcome stays unknown.
	Resolve(ctx context.Context) (committed bool, err error)
	// Vouch lets the writer's next marks say that it is vouched for, as long as the database's lineage is this one; empty
	// ends that.
	Vouch(lineage string)
	// End marks the writer as ended: its row is removed once the coordinator has acknowledged that.
	End(ctx context.Context) error
}

// Look is what a writer sees of the others, in the transaction that leaves its own mark.
type Look struct {
	Lineage string
	Home    allocation.Home
	Marks   []WriterMark // of all writers but those of former incarnations, as they were before this transaction
}

// WriterMark is a mark, and what its writer said with it.
type WriterMark struct {
	allocation.Mark
	Name    string // as it was registered by
	Ended   bool
	Vouched bool // its last transaction was that of a writer that is vouched for, in the lineage of then
}

// StartedOver says what became of StartOver.
type StartedOver struct {
	Incarnation string // the new one; empty: it did not start over
	Stranded    int64  // permits of running periods that the old one held, neither spent nor reserved, templates aside
	Open        int64  // reservations that count as spent
}

// Want is what a batch needs locked and read. Requests of the same row or id name it once.
type Want struct {
	Usage   []WantedUsage      // sorted by key, at most MaxBatchKeys
	IDs     []allocation.IDKey // to look up, sorted, at most MaxBatchRequests
	OfIDs   []allocation.IDKey // those of IDs whose own usage rows are to be locked too (settle, release, extend, lapse)
	Changes int64              // the change number of the node's catalogue
}

// WantedUsage is a usage row to be locked; Make says that the node has never seen it, so it is made first, under the lock
// of its share row. At most MaxInstances rows are made for a template's period (0: no bound).
type WantedUsage struct {
	allocation.UsageKey
	Until        allocation.Instant
	Term         allocation.Instant
	Make         bool
	MaxInstances int64
}

// Seen is the state that a transaction found. Usage and IDs are fresh copies that the caller may change.
type Seen struct {
	Loaded
	Now    int64 // the database's clock, read after the locks, Unix microseconds
	Usage  map[allocation.UsageKey]*allocation.Usage
	Full   map[allocation.UsageKey]bool
	IDs    map[allocation.IDKey]*allocation.Admission
	Unsafe string // the setting with which a commit would not survive a crash, or empty
	Behind bool   // more than MaxChanges changes: Load, then try again; Loaded holds no changes
}

// Loaded is the owner's row, and what changed of budgets and terms.
type Loaded struct {
	Region      string
	Deployment  string
	Incarnation string
	History     allocation.History
	Home        allocation.Home // as last read by Load
	// Lineage names one unbroken life of one incarnation in one database: while it is the same, the database cannot have gone
	// back. It changes with a start of the server, with another database or server behind the address, with tables that
	// were made anew, and with the incarnation.
	Lineage      string
	Lost         bool  // it lost history, and is to become a new incarnation
	Changes      int64 // the owner's change number: rises whenever budgets, terms or documents change
	Config       int64 // the coordinator's configuration number
	ClosedBefore allocation.Instant
	Stopped      allocation.Reason
	Detail       string
	Handover     Handover // while it is being handed over, and after it was
	Revision     int64
	ObservedAt   int64

	// Of Load only; a batch does not read them.
	Elsewhere         []allocation.Elsewhere // as the coordinator last said, stored by Apply
	OpenReservations  int64
	OldestReservation int64         // when it was made, Unix microseconds; 0: none
	OldestSnapshot    time.Duration // for how long the oldest other transaction has kept dead rows from being pruned; 0: none is seen

	Budgets []allocation.ConfiguredBudget
	Terms   []allocation.Term
	Gone    []allocation.ShareRef

	Documents        []allocation.Document
	DocumentsThrough int64 // the coordinator's configuration number through which documents are stored
}

// Writes is what a batch writes. The commit fails with ErrRaced unless exactly these usage rows and ids were there to be
// changed, and none of the inserted ids existed.
type Writes struct {
	Usage    []*allocation.Usage     // locked rows with their new counters
	Inserted []*allocation.Admission // sorted by key
	Updated  []*allocation.Admission // sorted by key
}

// Batch is a transaction between its two round trips.
type Batch interface {
	Seen() *Seen
	// Commit writes and commits, in one round trip. It is never cancelled: ctx bounds the wait for the answer, not the
	// transaction; when it ends first the outcome is unknown.
	Commit(ctx context.Context, writes Writes) error
	// Abandon ends the transaction without writing anything.
	Abandon()
}

// Account is one page of an owner's whole account.
type Account struct {
	Region      string             `json:"region"`
	Incarnation string             `json:"incarnation"`
	Now         int64              `json:"now"`
	Shares      []allocation.Share `json:"shares"`
	Usage       []allocation.Usage `json:"usage"`
	More        bool               `json:"more,omitempty"`
}
