package drill

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// node is one node that is asked.
type node struct{ name, region, address string }

// key is one that the drill issued.
type key struct {
	name, text, fingerprint string
	number                  int64
	admitted                atomic.Int64
	first                   atomic.Pointer[asked] // an admission of it, to be replayed
	clients                 map[*node]*api.Client
}

// asked is one admission id at a node.
type asked struct {
	at       *node
	id       string
	priority string
}

// answer is what a caller with a key is told.
type answer struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Action   string `json:"action"`
	Route    string `json:"route"`
	Outcome  string `json:"outcome"`
	Detail   string `json:"detail"`
	status   int
}

func (a answer) admitted() bool {
	return a.status == http.StatusOK && a.Reason == string(allocation.Allow)
}

// refusedFor says whether it is a refusal for a reason.
func (a answer) refusedFor(r allocation.Reason) bool {
	return a.status != http.StatusOK && a.Reason == string(r)
}

func (a answer) words() string { return fmt.Sprintf("%d %s", a.status, a.Reason) }

// event is one answer to the burst or the surge.
type event struct {
	at       time.Time
	node     *node
	priority string
	answer
}

func newID() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

// issueKey issues a key for some capabilities. It is revoked at the end, also if its answer was lost.
func (d *drill) issueKey(ctx context.Context, role string, essential bool, capabilities ...string) (*key, error) {
	k := &key{name: "drill-" + d.id + "-" + role, clients: map[*node]*api.Client{}}
	d.later("revoke key "+k.name, "tranche keys revoke "+k.name+" --reason drill", func(ctx context.Context) error { return d.revokeKey(ctx, k.name) })
	q := coordinator.KeyRequest{
		Name: k.name, Tenant: d.Tenant, Capabilities: capabilities, Essential: essential, For: allocation.Duration(allocation.Day),
	}
	var a coordinator.KeyAnswer
	if _, err := d.Coordinator.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/keys", Body: q}, &a); err != nil {
		return nil, err
	}
	k.text, k.fingerprint, k.number = a.Key, a.Fingerprint, a.Number
	for _, n := range d.nodes {
		client, err := api.New("node", n.address, k.text, d.CA)
		if err != nil {
			return nil, err
		}
		k.clients[n] = client
	}
	d.record.Keys = append(d.record.Keys, KeyRecord{Name: k.name, Fingerprint: k.fingerprint, Role: role})
	return k, nil
}

func (d *drill) close(k *key) {
	if k == nil {
		return
	}
	for _, c := range k.clients {
		c.Close()
	}
}

var serial atomic.Int64

// ask makes one request with a key. While it is not decided, or that is not known, it asks again under the same id, as a caller does;
// the record counts that.
func (d *drill) ask(ctx context.Context, k *key, n *node, op, capability, priority, id string) (answer, error) {
	if id == "" {
		id = fmt.Sprintf("drill-%s-%d", d.id, serial.Add(1))
	}
	call := api.Call{Method: http.MethodPost, Path: "/v1/admit", Reads: op == string(allocation.Check), Body: map[string]any{
		"labels": map[string]string{"tenant": d.Tenant, "capability": capability}, "op": op, "priority": priority, "deadline_ms": 5000,
	}}
	if op != string(allocation.Check) {
		call.Header = http.Header{"Admission-Id": {id}}
	}
	for end := time.Now().Add(d.Patience); ; {
		status, _, body, err := k.clients[n].Send(ctx, call)
		var a answer
		if err == nil {
			err = json.Unmarshal(body, &a)
		}
		if err == nil && a.Reason == "" {
			err = fmt.Errorf("%s answers %d %.200q; is it a node?", n.address, status, body)
		}
		a.status = status
		undecided := err == nil && status == http.StatusServiceUnavailable
		if undecided {
			d.undecided.Add(1)
		}
		if err == nil && a.Outcome != "unknown" && (!undecided || time.Now().After(end)) {
			if a.admitted() && op != string(allocation.Check) {
				k.first.CompareAndSwap(nil, &asked{n, id, priority})
			}
			return a, nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return a, fmt.Errorf("ask %s: %w", n.name, orUnknown(err))
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return a, err
		}
	}
}

func orUnknown(err error) error {
	if err == nil {
		return api.ErrUnknown
	}
	return err
}

// pause waits a little.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spend asks for one permit of the expendable capability, and notes the answer.
func (d *drill) spend(ctx context.Context, k *key, n *node, priority string) (answer, error) {
	a, err := d.ask(ctx, k, n, string(allocation.Spend), d.Capability, priority, "")
	if err != nil {
		return a, err
	}
	if a.admitted() {
		k.admitted.Add(1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard = append(d.heard, event{time.Now(), n, priority, a})
	return a, nil
}

// untilEach asks every node until its answer is as wanted, and tells how long each took from an instant on. Who never gives it
// breaks the promise.
func (d *drill) untilEach(ctx context.Context, from time.Time, what string, ask func(context.Context, *node) (answer, error), wanted func(answer) bool) (took []NodeTime, broken []string) {
	took = make([]NodeTime, len(d.nodes))
	wrong := make([]string, len(d.nodes))
	together(len(d.nodes), func(i int) {
		n := d.nodes[i]
		took[i] = NodeTime{Node: n.name, Region: n.region}
		last := "it did not answer"
		for end := time.Now().Add(d.Patience); time.Now().Before(end) && ctx.Err() == nil; {
			a, err := ask(ctx, n)
			if err == nil && wanted(a) {
				after := max(0, time.Since(from).Milliseconds())
				took[i].AfterMS = &after
				return
			}
			if last = a.words(); err != nil {
				last = err.Error()
			}
			if pause(ctx, 5*time.Millisecond) != nil {
				return
			}
		}
		wrong[i] = fmt.Sprintf("%s (%s): %s, still not after %s; its last answer: %s", n.name, n.region, what, d.Patience, last)
	})
	for _, w := range wrong {
		if w != "" {
			broken = append(broken, w)
		}
	}
	return took, broken
}
