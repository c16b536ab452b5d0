package etcd

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tranche/coordinator"
)

// An error that is taken for "certainly not" and is not one makes the committer try again what may have been written.
func TestCertainlyNot(t *testing.T) {
	for _, err := range []error{
		rpctypes.ErrGRPCRequestTooLarge, rpctypes.ErrRequestTooLarge, rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCDuplicateKey,
		rpctypes.ErrGRPCNoLeader, rpctypes.ErrNoLeader, rpctypes.ErrGRPCRequestTooManyRequests,
		rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCAuthOldRevision,
	} {
		if !certainlyNot(err) {
			t.Errorf("taken for unknown: %v", err)
		}
	}
	for _, err := range []error{
		context.DeadlineExceeded, context.Canceled, status.Error(codes.Unavailable, "error reading from server: EOF"),
		status.Error(codes.Unknown, "raft proposal dropped"), status.Error(codes.InvalidArgument, "not etcd's"),
		rpctypes.ErrGRPCNoSpace, // given also after the write took effect
		rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCTimeoutDueToLeaderFail, rpctypes.ErrGRPCTimeoutDueToConnectionLost,
		rpctypes.ErrGRPCStopped, rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCCorrupt, rpctypes.ErrGRPCDeadlineExceeded,
	} {
		if certainlyNot(err) {
			t.Errorf("taken for certain: %v", err)
		}
	}
}

// An administrator who changes a budget while etcd has no quorum must be told to try again, and not to read our log; one
// whose credentials are wrong must not try for ever.
func TestUnavailable(t *testing.T) {
	for _, err := range []error{
		rpctypes.ErrGRPCNoLeader, rpctypes.ErrNoLeader, rpctypes.ErrGRPCRequestTooManyRequests, context.DeadlineExceeded,
		status.Error(codes.Unavailable, "connection refused"), rpctypes.ErrGRPCTimeout,
	} {
		if !errors.Is(available(err), coordinator.ErrUnavailable) {
			t.Errorf("not worth another try: %v", err)
		}
	}
	for _, err := range []error{rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCInvalidAuthToken, rpctypes.ErrGRPCTooManyOps} {
		if errors.Is(available(err), coordinator.ErrUnavailable) {
			t.Errorf("to be tried again: %v", err)
		}
	}
}
