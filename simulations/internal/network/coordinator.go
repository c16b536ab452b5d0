package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tranche/allocation"
	"tranche/simulations/internal/world"
)

// Replica is one coordinator that a region may call: the process, and the method that answers.
type Replica struct {
	Process *world.Process
	Sync    func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error)
}

// Coordinator is how one node reaches the coordinator: it implements regional.Coordinator. After a failure the next call
// goes to the next replica. Calls and answers travel as JSON, as they really do, so nothing is shared by accident.
type Coordinator struct {
	Replicas []Replica
	Balanced bool // each call goes to the next replica, as behind a load balancer

	net  *Net
	from *world.Process
	next int
}

// NewCoordinator makes a node's way to the coordinator's replicas.
func NewCoordinator(n *Net, from *world.Process, replicas ...Replica) *Coordinator {
	return &Coordinator{Replicas: replicas, net: n, from: from}
}

type syncReply struct {
	body []byte
	err  string
}

// Sync makes one call to one replica.
func (c *Coordinator) Sync(ctx context.Context, call allocation.SyncCall) (answer allocation.SyncAnswer, err error) {
	if len(c.Replicas) == 0 {
		return answer, errors.New("there is no coordinator")
	}
	body, err := json.Marshal(call)
	if err != nil {
		return answer, fmt.Errorf("encode the call: %w", err)
	}
	at := c.next % len(c.Replicas)
	r := c.Replicas[at]
	reply, err := Call(ctx, c.net, c.from, r.Process, Exchange, "sync", func(ctx context.Context) syncReply {
		return serveSync(ctx, r, body)
	})
	if err == nil && reply.err != "" {
		err = errors.New(reply.err)
	}
	if err == nil {
		err = json.Unmarshal(reply.body, &answer)
	}
	if err != nil || c.Balanced {
		c.next = at + 1
	}
	if err != nil {
		return allocation.SyncAnswer{}, fmt.Errorf("%s: %w", r.Process.Name(), err)
	}
	return answer, nil
}

func serveSync(ctx context.Context, r Replica, body []byte) syncReply {
	var call allocation.SyncCall
	if err := json.Unmarshal(body, &call); err != nil {
		return syncReply{err: err.Error()}
	}
	answer, err := r.Sync(ctx, call)
	if err != nil {
		return syncReply{err: err.Error()}
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return syncReply{err: err.Error()}
	}
	return syncReply{body: out}
}
