package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"tranche/regional"
)

const (
	connections      = 256
	batchConnections = 16
	batchItems       = 100
)

var acmeBody = []byte(`{"labels":{"tenant":"acme"},"deadline_ms":5000}`)

// serveNode serves the API of the world's first node.
func (w *world) serveNode() (*server, error) {
	n := w.nodes[0]
	s, err := serve(regional.NewHandler(regional.HTTPConfig{Metrics: n.metrics}, n.Node))
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, s.close)
	return s, nil
}

// serveNoOp serves a handler that decides nothing, with answers as long as the one that the node gives now.
func (w *world) serveNoOp(node *server) (*server, error) {
	c, err := dial(node.address())
	if err != nil {
		return nil, err
	}
	defer c.close()
	status, answer, err := c.post("/v1/admit", "Admission-Id: the-length\r\n", acmeBody, patience)
	if err != nil {
		return nil, fmt.Errorf("ask for an admission: %w", err)
	}
	var t tally
	t.counts[oneAnswer(status, answer)]++
	w.counted(t)
	s, err := serve(noOp(bytes.Clone(answer)))
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, s.close)
	return s, nil
}

func (w *world) httpArm(b *bench, name string, s *server, books bool) arm {
	what := "256 connections, each with one request at a time"
	return arm{name, what, func(ctx context.Context, d time.Duration) (tally, error) {
		return w.withBatches(books, func() tally {
			return closed(ctx, d, connections, !b.Random, func(int) client {
				return overHTTP(s.address(), "/v1/admit", "", func(string) []byte { return acmeBody }, patience, oneAnswer)
			})
		}), nil
	}}
}

// withBatches adds to what was measured how large the node's transactions were, and enters it in the books.
func (w *world) withBatches(books bool, measure func() tally) tally {
	if !books {
		return measure()
	}
	requests, transactions := batches(w.nodes)
	t := measure()
	if after, afterTransactions := batches(w.nodes); afterTransactions > transactions {
		t.batch = (after - requests) / (afterTransactions - transactions)
	}
	return w.counted(t)
}

// overTheWire is admissions over HTTP, one by one and in batches, beside a handler that decides nothing.
func overTheWire(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	node, err := w.serveNode()
	if err != nil {
		return err
	}
	nothing, err := w.serveNoOp(node)
	if err != nil {
		return err
	}
	all, err := b.alternate(ctx, result,
		w.httpArm(b, "one by one", node, true), w.httpArm(b, "no-op handler", nothing, false),
		w.batchArm(b, node), w.closedArm(b, "in process", batchConnections*batchItems, w.nodes, one(spend(acme))),
	)
	if err != nil {
		return err
	}
	result.atLeast("one by one against the handler that decides nothing", ratio(all["one by one"].rates(), all["no-op handler"].rates()), 0.55)
	result.processor("the same, by the processor's time for each answer", all["no-op handler"], all["one by one"])
	result.atLeast("batches of 100 against as many callers in process", ratio(all["batches of 100"].rates(), all["in process"].rates()), 0.6)
	return w.settleBooks(ctx, result, "the node")
}

// batchArm sends 100 admissions in each request.
func (w *world) batchArm(b *bench, s *server) arm {
	return arm{"batches of 100", "16 connections, each with 100 admissions a request", func(ctx context.Context, d time.Duration) (tally, error) {
		var failure error
		t := callersOf(batchConnections, func(_ int, n note) {
			c, err := dial(s.address())
			if err != nil {
				failure = err
				return
			}
			defer c.close()
			names, body := newIDs(!b.Random), []byte(nil)
			for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
				from := time.Now()
				body = append(body[:0], `{"deadline_ms":5000,"items":[`...)
				for i := range batchItems {
					if i > 0 {
						body = append(body, ',')
					}
					body = append(append(append(body, `{"labels":{"tenant":"acme"},"admission_id":"`...), names.next()...), `"}`...)
				}
				status, answer, err := c.post("/v1/admit/batch", "", append(body, `]}`...), patience)
				if err != nil || status != 200 {
					failure = errors.Join(err, errors.New("a batch was answered "+strconv.Itoa(status)))
					return
				}
				took := time.Since(from)
				for _, o := range batchAnswer(answer) {
					n(o, took, took, true)
				}
			}
		})
		return w.counted(t), failure
	}}
}

var statusMark = []byte(`"status":`)

// batchAnswer is what the answer to a batch tells of each item, which begins with its status.
func batchAnswer(answer []byte) (list []outcome) {
	items := bytes.Split(answer, statusMark)
	for _, item := range items[1:] {
		status, err := strconv.Atoi(string(item[:min(3, len(item))]))
		if err != nil {
			continue
		}
		list = append(list, oneAnswer(status, item))
	}
	return list
}
