package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"tranche/coordinator"
)

// Commit implements coordinator.Store.
func (s *Store) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	if err := txn.Check(); err != nil {
		return coordinator.TxnResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return coordinator.TxnResult{}, fmt.Errorf("commit, before it was sent: %w", err)
	}
	// Without require-leader a member that is cut off holds the write until it times out, which leaves it unknown.
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), callTimeout)
	defer cancel()
	answer, err := s.client.Txn(ctx).If(comparisons(txn)...).Then(writes(txn)...).Else(reads(txn)...).Commit()
	if err != nil {
		if certainlyNot(err) {
			return coordinator.TxnResult{}, fmt.Errorf("commit, refused by etcd: %w", available(err))
		}
		return coordinator.TxnResult{}, fmt.Errorf("%w: %w", coordinator.ErrUnknownOutcome, err)
	}
	result := coordinator.TxnResult{Committed: answer.Succeeded, Revision: answer.Header.Revision}
	if !answer.Succeeded {
		result.Current = current(txn, answer)
	}
	return result, nil
}

// comparisons asks for revision and value of each key: after a restore a revision can come again, with another value.
func comparisons(txn coordinator.Txn) []clientv3.Cmp {
	compares := make([]clientv3.Cmp, 0, 2*len(txn.Compares))
	for _, c := range txn.Compares {
		if c.Revision == 0 {
			compares = append(compares, clientv3.Compare(clientv3.CreateRevision(c.Key), "=", 0))
			continue
		}
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(c.Key), "=", c.Revision),
			clientv3.Compare(clientv3.Value(c.Key), "=", string(c.Value)))
	}
	return compares
}

func writes(txn coordinator.Txn) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(txn.Puts)+len(txn.Deletes))
	for _, p := range txn.Puts {
		ops = append(ops, clientv3.OpPut(p.Key, string(p.Value)))
	}
	for _, key := range txn.Deletes {
		ops = append(ops, clientv3.OpDelete(key))
	}
	return ops
}

func reads(txn coordinator.Txn) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(txn.Compares))
	for _, c := range txn.Compares {
		ops = append(ops, clientv3.OpGet(c.Key))
	}
	return ops
}

// current is what the compared keys hold, in the order of the comparisons; a key that is absent has revision 0.
func current(txn coordinator.Txn, answer *clientv3.TxnResponse) []coordinator.Item {
	items := make([]coordinator.Item, len(txn.Compares))
	for i, c := range txn.Compares {
		items[i].Key = c.Key
		if kvs := answer.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			items[i].Value, items[i].Revision = kvs[0].Value, kvs[0].ModRevision
		}
	}
	return items
}

// available marks an error that says nothing of the request itself: the same may be tried again when etcd answers.
func available(err error) error {
	var etcd rpctypes.EtcdError
	if errors.As(rpctypes.Error(err), &etcd) {
		switch etcd.Code() {
		case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated:
			return err
		}
	}
	return fmt.Errorf("%w: %w", coordinator.ErrUnavailable, err)
}

// certainlyNot says whether etcd gave this answer without proposing the write, or instead of applying it. The list is
// closed: an answer that is not in it leaves the outcome unknown. See the package comment.
func certainlyNot(err error) bool {
	var etcd rpctypes.EtcdError
	if !errors.As(rpctypes.Error(err), &etcd) {
		return false
	}
	switch {
	case etcd.Code() == codes.InvalidArgument, // checked when the request arrives
		etcd.Code() == codes.PermissionDenied,
		errors.Is(etcd, rpctypes.ErrTooManyRequests),
		errors.Is(etcd, rpctypes.ErrNoLeader),
		errors.Is(etcd, rpctypes.ErrInvalidAuthToken),
		errors.Is(etcd, rpctypes.ErrAuthOldRevision):
		return true
	}
	return false
}
