package coordinator

import (
	"context"
	"errors"
)

// Item is one key of the store as it was read. Revision is its mod revision; 0 says that the key does not exist.
type Item struct {
	Key      string
	Value    []byte
	Revision int64
}

// Txn puts and deletes all its keys at one revision, or none of them: only if every compared key still has the revision
// and the value that was read. Both are compared: after a restore a mod revision can come again, with another value.
// At most 60 documents and 1 MiB (etcd takes 128 compares, 128 operations and 1.5 MiB).
type Txn struct {
	Compares []Item
	Puts     []Item // Revision is not used
	Deletes  []string
}

// TxnResult says whether the comparisons held; if not, Current holds the compared keys as they are.
type TxnResult struct {
	Committed bool
	Revision  int64
	Current   []Item
}

// Event is one change that a watch saw; Deleted keys have no value.
type Event struct {
	Item
	Deleted bool
}

// Store is what the coordinator needs of etcd. Every read and every transaction is linearizable.
type Store interface {
	// Range reads all keys that begin with the prefix, in key order, at one revision.
	Range(ctx context.Context, prefix string) (items []Item, revision int64, err error)

	// Commit runs one transaction. An error that is ErrUnknownOutcome leaves open whether it was, or may still be,
	// committed; any other error says that it was not and never will be.
	Commit(ctx context.Context, txn Txn) (TxnResult, error)

	// Watch delivers every change of the keys with the prefix after the given revision, in order, all changes of one
	// revision together, until ctx ends or the store fails. A call without events carries the progress only: all up to
	// that revision was delivered. ErrCompacted says that the changes are no longer known: read again with Range.
	Watch(ctx context.Context, prefix string, after int64, deliver func(events []Event, revision int64)) error

	// Lead runs work for as long as this process holds the named leadership, again and again until ctx ends. Work's
	// context ends when the leadership may be lost; nothing's safety rests on that.
	Lead(ctx context.Context, name string, work func(ctx context.Context) error) error

	// Compact forgets all revisions before the given one.
	Compact(ctx context.Context, revision int64) error

	// Members describes the etcd members for operators.
	Members(ctx context.Context) ([]Member, error)
}

// Member is one etcd member as it answers now.
type Member struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	Healthy  bool   `json:"healthy"`
	Leader   bool   `json:"leader"`
	Version  string `json:"version,omitempty"`
	DBBytes  int64  `json:"db_bytes,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

// Errors of a Store and of a Committer.
var (
	// ErrUnknownOutcome: the answer was lost around a commit.
	ErrUnknownOutcome = errors.New("the answer to a write was lost: it may have been committed")
	// ErrCompacted: the revision asked for is no longer kept.
	ErrCompacted = errors.New("the store has compacted that revision")
	// ErrConflict: a document was changed meanwhile; read it again and decide anew.
	ErrConflict = errors.New("a document was changed meanwhile")
	// ErrHistoryLost: this process's own last write is not there. The store was restored or is another one; this
	// process writes nothing more.
	ErrHistoryLost = errors.New("the coordinator's own last write is not in the store: etcd lost history or was replaced")
)

// Change is what one act wants to write: it rests on the documents in Reads as they were read (Revision 0 for one that
// must not exist yet), and all of Puts and Deletes happen or none.
type Change struct {
	Reads   []Item
	Puts    []Item
	Deletes []string
}

// Writer is how every part of the coordinator writes: see Committer.
type Writer interface {
	// Commit returns the revision at which the change stands, ErrConflict, ErrUnknownOutcome or ErrHistoryLost.
	Commit(ctx context.Context, change Change) (revision int64, err error)
}
