package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A member that never started has no name; a blank in the operator's list would not say which it is.
func TestNamelessMember(t *testing.T) {
	if name := nameOf(&etcdserverpb.Member{ID: 0x8e9e05c52164694d}); name != "8e9e05c52164694d" {
		t.Error(name)
	}
}
