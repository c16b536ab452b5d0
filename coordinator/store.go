package coordinator

import (
	"context"
	"errors"
	"fmt"
)

// Bounds of one transaction. Etcd takes 128 compares, 128 operations and 1.5 MiB by default; a document that is read
// and written counts once as a document and twice in bytes.
const (
	MaxTxnDocuments = 61 // 60 documents and the writer's mark
	MaxTxnBytes     = 1 << 20
)

// Item is one key of the store as it was read. Revision is its mod revision; 0 says that the key does not exist.
type Item struct {
	Key      string
	Value    []byte
	Revision int64
}

// Txn puts and deletes all its keys at one revision, or none of them: only if every compared key still has the revision
// and the value that was read. Both are compared: after a restore a mod revision can come again, with another value.
// At most MaxTxnDocuments and MaxTxnBytes. A key is put or deleted at most once.
type Txn struct {
	Compares []Item
	Puts     []Item // Revision is not used
	Deletes  []string
}

// Check says whether the transaction is within its bounds; otherwise the error is ErrTooLarge or names the key that is
// written twice. Every Store refuses what Check refuses, before it sends anything.
func (t Txn) Check() error {
	documents, written, bytes := map[string]bool{}, map[string]bool{}, 0
	for _, c := range t.Compares {
		documents[c.Key] = true
		bytes += len(c.Key) + len(c.Value)
	}
	for _, p := range t.Puts {
		if written[p.Key] {
			return fmt.Errorf("transaction writes %s twice", p.Key)
		}
		documents[p.Key], written[p.Key] = true, true
		bytes += len(p.Key) + len(p.Value)
	}
	for _, key := range t.Deletes {
		if written[key] {
			return fmt.Errorf("transaction writes %s twice", key)
		}
		documents[key], written[key] = true, true
		bytes += len(key)
	}
	if len(documents) > MaxTxnDocuments {
		return fmt.Errorf("%w: %d documents, at most %d", ErrTooLarge, len(documents), MaxTxnDocuments)
	}
	if bytes > MaxTxnBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, bytes, MaxTxnBytes)
	}
	return nil
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
	// Range reads all keys that begin with the prefix, in key order, at one revision: the store's newest, which is not
	// older than anything committed before the call. It fails with ErrUnavailable while the store cannot be asked.
	Range(ctx context.Context, prefix string) (items []Item, revision int64, err error)

	// Commit runs one transaction. An error that is ErrUnknownOutcome leaves open whether it was, or may still be,
	// committed; any other error says that it was not and never will be, ErrUnavailable that it is worth another try.
	Commit(ctx context.Context, txn Txn) (TxnResult, error)

	// Watch delivers every change of the keys with the prefix after the given revision, in order, all changes of one
	// revision together, until ctx ends or the store fails. A call without events carries the progress only: all up to
	// that revision was delivered; it comes within a second or so, as long as the store has a quorum. Deliver is called
	// by one goroutine, and not after Watch returned. The revision is the last one that is delivered whole. ErrCompacted
	// says that the changes are no longer known: read again with Range.
	Watch(ctx context.Context, prefix string, after int64, deliver func(events []Event, revision int64)) error

	// Lead runs work for as long as this process holds the named leadership, again and again until ctx ends; then it
	// returns ctx's error. Work's context ends when the leadership may be lost; nothing's safety rests on that. Work that
	// returns on its own gives the leadership up, for others to take. Its error is logged here.
	Lead(ctx context.Context, name string, work func(ctx context.Context) error) error

	// Compact forgets all revisions before the given one. It is no error if that was done already.
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
	// ErrUnavailable: the store does not answer, or has no leader. Nothing was written; the same may be tried again.
	ErrUnavailable = errors.New("etcd does not answer, or has no leader")
	// ErrCompacted: the revision asked for is no longer kept.
	ErrCompacted = errors.New("the store has compacted that revision")
	// ErrTooLarge: a transaction is beyond its bounds; nothing was sent.
	ErrTooLarge = errors.New("the transaction is too large")
	// ErrConflict: a document was changed meanwhile; read it again and decide anew.
	ErrConflict = errors.New("a document was changed meanwhile")
	// ErrHistoryLost: this process's own last write is not there. The store was restored or is another one; this
	// process writes nothing more. What the process knew and wrote last is in Committer.LostDetail.
	ErrHistoryLost = errors.New("the coordinator's own last write is not in the store: etcd lost history or was replaced")
)

// Change is what one act wants to write: it rests on the documents in Reads as they were read (Revision 0 for one that
// must not exist yet), and all of Puts and Deletes happen or none.
type Change struct {
	Reads   []Item
	Puts    []Item
	Deletes []string

	aged bool // what it reads was read some time ago: a conflict says nothing of the picture as it is now
}

// Writer is how every part of the coordinator writes: see Committer.
type Writer interface {
	// Commit returns the revision at which the change stands, ErrConflict, ErrUnknownOutcome or ErrHistoryLost. After any
	// other error (ErrTooLarge, ctx's before the change was tried, the store's refusal) nothing was written or will be.
	Commit(ctx context.Context, change Change) (revision int64, err error)
}
