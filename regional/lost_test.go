//go:build unix

package regional_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// judging is a coordinator that also judges who calls, as the real one does: by the residence of the one region and by the
// marks that it was told. A new incarnation gets a share of its own in the ledgers, where the old one's stays out.
type judging struct {
	*hub
	residence allocation.Residence
	marks     []allocation.Mark
	given     int
	quiet     bool            // the recorded home is silent, so that another one may take its place
	starting  map[string]bool // by node: what its last call that was understood said of itself
}

func newJudging() *judging {
	j := &judging{hub: newHub("eu"), starting: map[string]bool{}}
	j.members.Holders = nil // until one has asked
	return j
}

func (j *judging) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	j.mu.Lock()
	a := allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: testDeployment, Now: time.Now().UnixMicro(), History: allocation.History{Number: 1, Stamp: "h"},
	}
	if j.cut {
		j.mu.Unlock()
		return a, errors.New("the link is cut")
	}
	switch j.residence.Judge(call.Incarnation, call.Home, call.Lost, !j.quiet) {
	case allocation.ClaimNew:
		j.given++
		j.residence = j.residence.Replace(fmt.Sprint("life-", j.given), call.Home)
		j.marks = nil
		j.members.Holders = []allocation.Holder{{Region: "eu", Incarnation: j.residence.Incarnation}}
		fallthrough
	case allocation.ClaimAgain:
		a.Incarnation, a.More = j.residence.Incarnation, true
		j.mu.Unlock()
		return a, nil
	case allocation.ClaimMove:
		j.residence = j.residence.MoveTo(call.Home)
	case allocation.ClaimSecondHome, allocation.ClaimFormer, allocation.ClaimUnheard:
		a.Incarnation, a.Refusal, a.Detail = j.residence.Incarnation, string(allocation.HistoryLost), "it is another one"
		j.mu.Unlock()
		return a, nil
	case allocation.ClaimFits:
	}
	j.starting[call.Node] = call.Starting
	if lost := allocation.LostMarks(j.marks, call.Marks, call.Ended); len(lost) > 0 {
		a.Incarnation, a.Refusal, a.Contradicted = j.residence.Incarnation, string(allocation.HistoryLost), lost
		j.mu.Unlock()
		return a, nil
	}
	if !j.residence.Confirmed {
		j.members.Number++
		for i, l := range j.ledgers {
			if next, err := l.Follow(j.budgets[i].Budget, 1, 0, j.members, j.generation(l.Generation.Number)); err == nil {
				j.ledgers[i] = next
			}
		}
	}
	j.residence.Confirmed, j.marks = true, call.Marks
	incarnation := j.residence.Incarnation
	j.mu.Unlock()
	return j.syncAs(call, incarnation)
}

// starts says whether a node's last call said that nobody vouches for it.
func (j *judging) starts(node string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.starting[node]
}

func (j *judging) incarnation() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.residence.Incarnation
}

func admitted(n *regional.Node, id string) bool {
	return decide(n, request(allocation.Spend, id, acme, nil)).Admitted()
}

// mustAdmit has a node admit an id: the same one is asked for again while the machine is too slow to decide it.
func mustAdmit(t *testing.T, n *regional.Node, id string) {
	t.Helper()
	eventually(t, "the node admits "+id, func() bool { return admitted(n, id) })
}

// serving waits until a node admits one more.
func serving(t *testing.T, n *regional.Node, prefix string) {
	t.Helper()
	i := 0
	eventually(t, "the node admits", func() bool {
		i++
		return admitted(n, fmt.Sprint(prefix, i))
	})
}

// Without this a database that was restored under a running node would sell again what was spent since the backup: a share
// of 40, 15 spent, 10 of them after the dump. After the restore nothing of the old share may be admitted.
func TestRestoreUnderARunningNode(t *testing.T) {
	j, c := newJudging(), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	j.declare(t, fmt.Sprintf(shared, 40), forEver())
	n := node(t, j, "eu", "n1", url)
	ready(t, n, 1)
	for i := range 5 {
		mustAdmit(t, n, fmt.Sprint("before-", i))
	}
	dump := filepath.Join(t.TempDir(), "owner.dump")
	tool(t, "pg_dump", "--format=custom", "--file="+dump, url)
	for i := range 10 {
		mustAdmit(t, n, fmt.Sprint("after-", i))
	}
	first := j.incarnation()
	tool(t, "pg_restore", "--clean", "--if-exists", "--dbname="+url, dump)
	eventually(t, "the region is a new incarnation", func() bool { return j.incarnation() != first && n.Status().Incarnation == j.incarnation() })
	eventually(t, "the node is vouched for", func() bool { return n.Status().Stopped == "" })
	if d := decide(n, request(allocation.Spend, "before-0", acme, nil)); !d.Admitted() || !d.Replayed {
		t.Errorf("an id that is still there: %s, replayed %v", d.Reason, d.Replayed)
	}
	for i := range 50 {
		if d := decide(n, request(allocation.Spend, fmt.Sprint("again-", i), acme, nil)); d.Admitted() {
			t.Fatalf("%d of 40 were admitted: the old incarnation's permits are out, and the new one holds nothing", 15+i+1)
		}
	}
}

func programs(t *testing.T) string {
	t.Helper()
	found, err := cluster.Find()
	if err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

// tool runs a program of Postgres.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), filepath.Join(programs(t), name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// Without this a copy of the database beside the original would spend the same share: one node on each.
func TestACopyBesideTheOriginal(t *testing.T) {
	j, c := newJudging(), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	j.declare(t, fmt.Sprintf(shared, 40), forEver())
	first, stop := startNode(t, j, "n1", url, nil)
	ready(t, first, 1)
	serving(t, first, "a-")
	stop()
	aside(t, withDatabase(t, url, "postgres"), `create database copied template owner`)
	original, _ := startNode(t, j, "n1", url, nil)
	serving(t, original, "b-")
	beside, _ := startNode(t, j, "n2", withDatabase(t, url, "copied"), nil)
	eventually(t, "the copy is refused", func() bool { return beside.Status().StoppedDetail == "it is another one" })
	if d := decide(beside, request(allocation.Spend, "c", acme, nil)); d.Admitted() || d.Reason != allocation.Starting {
		t.Errorf("the copy answers %s (%s)", d.Reason, d.Detail)
	}
	serving(t, original, "d-")
	j.mu.Lock()
	j.quiet = true // the original is gone, and the copy lacks what it committed since
	j.mu.Unlock()
	before := j.incarnation()
	eventually(t, "the copy is another incarnation", func() bool { return j.incarnation() != before })
}

func withDatabase(t *testing.T, url, name string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s:%s@%s:%d/%s", config.User, config.Password, config.Host, config.Port, name)
}

// startNode is node with a memory, and a stop that may come before the test's end.
func startNode(t *testing.T, c regional.Coordinator, name, url string, memory regional.Memory) (*regional.Node, func()) {
	t.Helper()
	return startNodeOver(t, c, name, url, memory, func(o regional.Owner) regional.Owner { return o })
}

// startNodeOver is startNode with something between the node and its owner.
func startNodeOver(t *testing.T, c regional.Coordinator, name, url string, memory regional.Memory, between func(regional.Owner) regional.Owner) (*regional.Node, func()) {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	n := regional.NewNode(regional.Config{
		Region: "eu", Name: name, Deployment: testDeployment, Coordinator: c, SyncEvery: 50 * time.Millisecond, Memory: memory,
	}, between(store))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("node %s: %v", name, err)
		}
		store.Shut()
	}
	t.Cleanup(stop)
	return n, stop
}

// Without this a region would end with the next restart of its database, or of its node, when the coordinator is away; or a
// node that knows nothing would trust a database that may have gone back.
func TestWithoutTheCoordinator(t *testing.T) {
	j, c := newJudging(), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	j.declare(t, fmt.Sprintf(shared, 1000), forEver())
	memory := regional.FileMemory{Path: filepath.Join(t.TempDir(), "marks.json")}
	n, stop := startNode(t, j, "n1", url, memory)
	ready(t, n, 1)
	serving(t, n, "first-")
	j.setCut(true)
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	serving(t, n, "crashed-") // its own marks are there, and it is alone
	stop()
	n, stop = startNode(t, j, "n1", url, memory)
	serving(t, n, "remembered-")
	if kept, err := memory.Take(); err != nil || kept != nil {
		t.Fatal("the memory can be used twice", kept, err)
	}
	second, _ := startNode(t, j, "n2", url, nil)
	serving(t, second, "sees-others-")
	stop()
	third, _ := startNode(t, j, "n3", url, nil)
	serving(t, third, "sees-the-second-")
}

// Without this a node without memory would admit from whatever it finds, while nobody can say what is missing in it.
func TestNobodyVouches(t *testing.T) {
	j, url := newJudging(), clustertest.Database(t)
	j.declare(t, fmt.Sprintf(shared, 1000), forEver())
	n, stop := startNode(t, j, "n1", url, nil)
	ready(t, n, 1)
	serving(t, n, "first-")
	stop()
	j.setCut(true)
	n, _ = startNode(t, j, "n2", url, nil)
	eventually(t, "it says why it waits", func() bool { s := n.Status(); return s.Sync.LastError != "" && s.Stopped == allocation.Starting })
	for i, op := range []allocation.Op{allocation.Spend, allocation.Reserve, allocation.Check} {
		if d := decide(n, request(op, fmt.Sprint("x-", i), acme, nil)); d.Reason != allocation.Starting || d.Detail == "" {
			t.Errorf("%s: %s (%s)", op, d.Reason, d.Detail)
		}
	}
	j.setCut(false)
	serving(t, n, "then-")
}

// Without this a sealed region would spend what its seal proves to be free, or never serve again.
func TestSealedUnderARunningNode(t *testing.T) {
	j, url := newJudging(), clustertest.Database(t)
	j.declare(t, fmt.Sprintf(shared, 40), forEver())
	n := node(t, j, "eu", "n1", url)
	ready(t, n, 1)
	serving(t, n, "first-")
	j.setCut(true)
	tool, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu", MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer tool.Shut()
	first := j.incarnation()
	seal, err := tool.Seal(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if d := decide(n, request(allocation.Spend, "late", acme, nil)); d.Reason != allocation.Sealed {
		t.Fatalf("%s (%s)", d.Reason, d.Detail)
	}
	if err := seal.Proves(allocation.Residence{Incarnation: first, Home: seal.Home, Confirmed: true}.End(), j.marks); err != nil {
		t.Fatal(err)
	}
	j.setCut(false)
	eventually(t, "the region is a new incarnation", func() bool { return j.incarnation() != first && n.Status().Stopped == "" })
}
