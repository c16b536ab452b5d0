package etcd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/coordinator"
)

// memberTimeout is how long an operator waits for a member that does not answer.
const memberTimeout = 2 * time.Second

// Members implements coordinator.Store. It asks the endpoints that were given, and the members that none of them is.
// Without a quorum it still says what the reachable ones say, so it never fails for the members' sake.
func (s *Store) Members(ctx context.Context) ([]coordinator.Member, error) {
	listCtx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	var known []*etcdserverpb.Member
	// Serializable: what one member remembers of the others is enough here, and needs no quorum.
	if list, err := s.client.MemberList(listCtx, clientv3.WithSerializable()); err == nil {
		known = list.Members
	}
	members, seen := s.ask(ctx, s.endpoints, known)
	var rest []string
	for _, m := range known {
		if !seen[m.ID] && len(m.ClientURLs) > 0 {
			rest = append(rest, m.ClientURLs[0])
		}
	}
	others, _ := s.ask(ctx, rest, known)
	members = append(members, others...)
	slices.SortStableFunc(members, func(a, b coordinator.Member) int { return strings.Compare(a.Name, b.Name) })
	return members, ctx.Err()
}

// ask reads the status at all endpoints at the same time, and says which members they turned out to be.
func (s *Store) ask(ctx context.Context, endpoints []string, known []*etcdserverpb.Member) ([]coordinator.Member, map[uint64]bool) {
	members, ids := make([]coordinator.Member, len(endpoints)), make([]uint64, len(endpoints))
	var wait sync.WaitGroup
	for i, endpoint := range endpoints {
		wait.Go(func() { members[i], ids[i] = s.status(ctx, endpoint) })
	}
	wait.Wait()
	seen := map[uint64]bool{}
	for i, endpoint := range endpoints {
		for _, m := range known {
			// One that does not answer is known by its address only.
			if m.ID == ids[i] || ids[i] == 0 && slices.Contains(m.ClientURLs, endpoint) {
				members[i].Name, seen[m.ID] = nameOf(m), true
			}
		}
	}
	return members, seen
}

// nameOf is a member's name, or its id: one that was added and never started has none yet.
func nameOf(m *etcdserverpb.Member) string { return cmp.Or(m.Name, fmt.Sprintf("%x", m.ID)) }

func (s *Store) status(ctx context.Context, endpoint string) (coordinator.Member, uint64) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	answer, err := s.client.Status(ctx, endpoint)
	if err != nil {
		return coordinator.Member{Endpoint: endpoint, Problem: err.Error()}, 0
	}
	id := answer.Header.MemberId
	problem := strings.Join(answer.Errors, "; ")
	if problem == "" && answer.Leader == 0 {
		problem = "it knows no leader"
	}
	return coordinator.Member{
		Endpoint: endpoint, Version: answer.Version, DBBytes: answer.DbSize,
		Leader: answer.Leader == id, Healthy: problem == "", Problem: problem,
	}, id
}
