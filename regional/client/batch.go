package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// MostInBatch bounds a batch.
const MostInBatch = 1000

// Item is one admission of a batch.
type Item struct {
	Op string // spend, reserve or check; empty: spend
	Request
}

// Batch asks for many admissions at once, each by itself: some may be admitted and others refused. Decisions come in the
// order of the items; Request.Wait is not honoured. Items on which nobody decided are asked again, under the same ids,
// while the others stand; if some stay undecided the error is an *UndecidedError, and their decisions admit nothing (or
// FailOpen let them through, and there is no error).
func (c *Client) Batch(ctx context.Context, items []Item) ([]Decision, error) {
	if len(items) == 0 || len(items) > MostInBatch {
		return nil, fmt.Errorf("tranche: a batch of %d items; send 1 to %d", len(items), MostInBatch)
	}
	b := &batch{client: c, out: make([]Decision, len(items)), refs: make([]Ref, len(items)), bodies: make([]map[string]any, len(items))}
	for i, item := range items {
		if item.Op == "" {
			item.Op = "spend"
		}
		if item.ID == "" && item.Op != "check" {
			item.ID = NewID()
		}
		b.refs[i], b.bodies[i] = refOf(item.Request), admitBody(item.Op, item.Request)
		if item.ID != "" {
			b.bodies[i]["admission_id"] = item.ID
		}
		b.out[i] = Decision{AdmissionID: item.ID, Tenant: b.refs[i].Tenant, Op: item.Op, Outcome: "none"}
		b.open = append(b.open, i)
	}
	k := call{method: http.MethodPost, path: "/v1/admit/batch", body: map[string]any{"items": b.items()}, timed: true}
	err := c.try(ctx, k, b.refs[0], func(a answer) verdict {
		v := b.read(a)
		k.body["items"] = b.items() // the next try asks for what is left
		return v
	})
	var undecided *UndecidedError
	if errors.As(err, &undecided) && c.failsOpen(ctx) {
		for _, i := range b.open {
			e := *undecided
			e.Ref = b.refs[i]
			b.out[i] = c.letThrough(b.out[i].Op, &e)
		}
		return b.out, nil
	}
	return b.out, err
}

// batch is one batch on its way.
type batch struct {
	client *Client
	refs   []Ref
	bodies []map[string]any
	open   []int // the items that nobody decided yet
	out    []Decision
}

func (b *batch) items() []map[string]any {
	items := make([]map[string]any, len(b.open))
	for n, i := range b.open {
		items[n] = b.bodies[i]
	}
	return items
}

// read takes the decisions of one answer. It is final when no item is open.
func (b *batch) read(a answer) verdict {
	var body struct {
		Results []wire `json:"results"`
	}
	if a.status != http.StatusOK {
		return b.client.judge(a, b.refs[0])
	}
	if err := json.Unmarshal(a.body, &body); err != nil {
		return verdict{unknown: true, err: fmt.Errorf("read the answer of %s: %w", a.node, err)}
	}
	if len(body.Results) != len(b.open) {
		return verdict{unknown: true, err: fmt.Errorf("read the answer of %s: it has %d results for %d items", a.node, len(body.Results), len(b.open))}
	}
	var v verdict
	var left []int
	for n, i := range b.open {
		d := body.Results[n].decision(body.Results[n].Status, nil, b.refs[i])
		if err := b.client.sameRegion(d.Region); err != nil {
			return verdict{final: true, err: err}
		}
		b.out[i] = d
		if d.undecided() {
			left = append(left, i)
			v.decision, v.wait, v.unknown = d, max(v.wait, d.RetryAfter), v.unknown || d.Outcome != "none"
		}
	}
	b.open, v.final = left, len(left) == 0
	return v
}
