//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// perWriter lets single writers of a node stand still, between two transactions, as one does whose connection hangs.
type perWriter struct {
	regional.Owner
	mu    sync.Mutex
	gates map[string]*sync.RWMutex
	began string // the writer of the last batch
}

func (p *perWriter) gate(writer string) *sync.RWMutex {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[writer] == nil {
		p.gates[writer] = &sync.RWMutex{}
	}
	return p.gates[writer]
}

func (p *perWriter) pass(w regional.Writer) func() {
	g := p.gate(w.Mark().Writer)
	g.RLock()
	return g.RUnlock
}

// hang returns once nothing of the writer is open.
func (p *perWriter) hang(t *testing.T, writer string) (goOn func()) {
	g := p.gate(writer)
	g.Lock()
	goOn = sync.OnceFunc(g.Unlock)
	t.Cleanup(goOn)
	return goOn
}

// all are the writers that did something, and the one of the last batch.
func (p *perWriter) all() (writers []string, last string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for writer := range p.gates {
		writers = append(writers, writer)
	}
	return writers, p.began
}

func (p *perWriter) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	done := p.pass(w)
	b, err := p.Owner.Begin(ctx, w, want)
	if err != nil {
		done()
		return nil, err
	}
	p.mu.Lock()
	p.began = w.Mark().Writer
	p.mu.Unlock()
	return standingBatch{b, done}, nil
}

func (p *perWriter) Look(ctx context.Context, w regional.Writer) (regional.Look, error) {
	defer p.pass(w)()
	return p.Owner.Look(ctx, w)
}

func (p *perWriter) Statements(ctx context.Context, w regional.Writer, acknowledged map[int]int64) (allocation.SyncCall, error) {
	defer p.pass(w)()
	return p.Owner.Statements(ctx, w, acknowledged)
}

func (p *perWriter) Apply(ctx context.Context, w regional.Writer, a allocation.SyncAnswer, observedAt int64) error {
	defer p.pass(w)()
	return p.Owner.Apply(ctx, w, a, observedAt)
}

func (p *perWriter) Lift(ctx context.Context, w regional.Writer, was allocation.Reason) error {
	defer p.pass(w)()
	return p.Owner.Lift(ctx, w, was)
}

func (p *perWriter) Close(ctx context.Context, w regional.Writer, upTo allocation.Instant, grace allocation.Duration) (allocation.Instant, error) {
	defer p.pass(w)()
	return p.Owner.Close(ctx, w, upTo, grace)
}

func (p *perWriter) Tidy(ctx context.Context, w regional.Writer, retention allocation.Duration, monotonic func(table int) allocation.Duration) (string, error) {
	defer p.pass(w)()
	return p.Owner.Tidy(ctx, w, retention, monotonic)
}

// One connection of the only node hangs, and what was written over that alone the database has lost. The coordinator was not told
// of it, and vouches for the rest of the process: it sold the same permits again, until the connection was given up.
func TestOneSlotHangsThatAloneWroteWhatIsLost(t *testing.T) {
	j, c := newJudging(), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	j.declare(t, fmt.Sprintf(shared, 40), forEver())
	owner := &perWriter{gates: map[string]*sync.RWMutex{}}
	n, _ := startNodeOver(t, j, "n1", url, nil, func(o regional.Owner) regional.Owner { owner.Owner = o; return owner })
	ready(t, n, 1)
	mustAdmit(t, n, "first")
	j.setCut(true)
	all, last := owner.all()
	var goOn []func()
	for _, writer := range all {
		if writer != last {
			goOn = append(goOn, owner.hang(t, writer))
		}
	}
	dump := filepath.Join(t.TempDir(), "owner.dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, url)
	for i := range 10 {
		mustAdmit(t, n, fmt.Sprint("lost-", i))
	}
	hung := owner.hang(t, last)
	before, since := j.incarnation(), time.Now()
	tool(t, "pg_restore", "--clean", "--if-exists", "--dbname="+url, dump)
	j.setCut(false)
	for _, g := range goOn {
		g()
	}
	eventually(t, "the region is a new incarnation", func() bool {
		if admitted(n, fmt.Sprint("again-", time.Now().UnixNano())) && j.incarnation() == before {
			t.Fatalf("admitted after %v, and what the hung slot sold last is lost", time.Since(since))
		}
		return j.incarnation() != before
	})
	hung()
	renewed := j.incarnation()
	eventually(t, "the slot that hung goes on", func() bool { return n.Status().Ready && n.Status().Stopped == "" })
	if got := j.incarnation(); got != renewed {
		t.Errorf("the slot that hung made the region begin anew once more: %s, then %s", renewed, got)
	}
}
