//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// standing lets a node stand still, between two transactions with its database: it begins none while another one holds it.
type standing struct {
	regional.Owner
	still sync.RWMutex
}

// stand returns once nothing is open. The node goes on when it is told so, or with the test's end.
func (s *standing) stand(t *testing.T) (goOn func()) {
	s.still.Lock()
	goOn = sync.OnceFunc(s.still.Unlock)
	t.Cleanup(goOn)
	return goOn
}

func (s *standing) pass() func() {
	s.still.RLock()
	return s.still.RUnlock
}

func (s *standing) Begin(ctx context.Context, w regional.Writer, want regional.Want) (regional.Batch, error) {
	done := s.pass()
	b, err := s.Owner.Begin(ctx, w, want)
	if err != nil {
		done()
		return nil, err
	}
	return standingBatch{b, done}, nil
}

func (s *standing) Look(ctx context.Context, w regional.Writer) (regional.Look, error) {
	defer s.pass()()
	return s.Owner.Look(ctx, w)
}

func (s *standing) Load(ctx context.Context, after int64) (regional.Loaded, error) {
	defer s.pass()()
	return s.Owner.Load(ctx, after)
}

func (s *standing) Turn(ctx context.Context, node string, lasts time.Duration) (bool, error) {
	defer s.pass()()
	return s.Owner.Turn(ctx, node, lasts)
}

func (s *standing) Statements(ctx context.Context, w regional.Writer, acknowledged map[int]int64) (allocation.SyncCall, error) {
	defer s.pass()()
	return s.Owner.Statements(ctx, w, acknowledged)
}

func (s *standing) Apply(ctx context.Context, w regional.Writer, a allocation.SyncAnswer, observedAt int64) error {
	defer s.pass()()
	return s.Owner.Apply(ctx, w, a, observedAt)
}

type standingBatch struct {
	regional.Batch
	done func()
}

func (b standingBatch) Commit(ctx context.Context, writes regional.Writes) error {
	defer b.done()
	return b.Batch.Commit(ctx, writes)
}

func (b standingBatch) Abandon() {
	defer b.done()
	b.Batch.Abandon()
}

// twoNodes are nodes of one region, of which the second alone knows what was spent last, and the coordinator does not: the
// database was put back to before. Neither has noticed: the first one stood still since before the backup, the second one
// does now. 20 of 40 were spent, 10 of them are lost.
type twoNodes struct {
	j             *judging
	first, second *regional.Node
	speak         func()    // lets the second one go on
	since         time.Time // before anything was put back
}

func lostByOne(t *testing.T) twoNodes {
	t.Helper()
	j, c := newJudging(), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	j.declare(t, fmt.Sprintf(shared, 40), forEver())
	one, other := &standing{}, &standing{}
	start := func(name string, s *standing) *regional.Node {
		n, _ := startNodeOver(t, j, name, url, nil, func(o regional.Owner) regional.Owner { s.Owner = o; return s })
		return n
	}
	w := twoNodes{j: j, first: start("n1", one), second: start("n2", other)}
	ready(t, w.first, 1)
	ready(t, w.second, 1)
	for i := range 5 {
		mustAdmit(t, w.first, fmt.Sprint("first-", i))
		mustAdmit(t, w.second, fmt.Sprint("second-", i))
	}
	j.setCut(true)
	goOn := one.stand(t)
	dump := filepath.Join(t.TempDir(), "owner.dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, url)
	for i := range 10 {
		mustAdmit(t, w.second, fmt.Sprint("after-", i))
	}
	w.speak = other.stand(t)
	w.since = time.Now()
	tool(t, "pg_restore", "--clean", "--if-exists", "--dbname="+url, dump)
	j.setCut(false)
	goOn()
	return w
}

// Without this a node would sell again what another one, which is about to say so, had sold last: the coordinator, which
// was not told of it yet, vouches for the database.
func TestTheCoordinatorVouchesTooSoon(t *testing.T) {
	w := lostByOne(t)
	before := w.j.incarnation()
	eventually(t, "the first node waits for the second", func() bool {
		if admitted(w.first, fmt.Sprint("again-", time.Now().UnixNano())) {
			t.Fatalf("admitted after %v, and what the second node sold last is lost", time.Since(w.since))
		}
		return strings.Contains(w.first.Status().StoppedDetail, "other nodes")
	})
	w.speak()
	if admitted(w.second, "late") {
		t.Fatal("the second node does not miss what it wrote")
	}
	eventually(t, "the region is a new incarnation", func() bool {
		if admitted(w.first, fmt.Sprint("again-", time.Now().UnixNano())) {
			t.Fatalf("admitted after %v: the old incarnation's permits are out, and the new one holds nothing", time.Since(w.since))
		}
		return w.j.incarnation() != before && w.first.Status().Stopped == ""
	})
}

// Without this the coordinator would count what a node states to have given back in a database that lacks what another one
// spent last, or that is a copy beside the one in which it is spent.
func TestACallSaysThatNobodyVouches(t *testing.T) {
	w := lostByOne(t)
	eventually(t, "the first node says that it starts", func() bool { return w.j.starts("n1") })
	serving(t, w.first, "again-")
	eventually(t, "it says that it starts no more", func() bool { return !w.j.starts("n1") })
}

// Without this a region whose node is gone for good would admit nothing after the next restart of its database.
func TestANodeThatNeverSpeaksIsNotWaitedFor(t *testing.T) {
	w := lostByOne(t)
	serving(t, w.first, "again-")
	if took := time.Since(w.since); took < regional.OthersWithin {
		t.Errorf("admitted after %v, and the other node may have spoken until %v", took, regional.OthersWithin)
	}
}
