package simulations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/simulations/internal/etcdtwin"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/ownertwin"
	"tranche/simulations/internal/world"
)

var _ coordinator.Runtime = (*world.Process)(nil)

const realLimit = 60

// realWorld runs coordinator.Service as it is: three replicas on the twin of etcd. The regions are toys: their keepers are
// real enough to sync, and their callers decide by allocation's pure function over the twin of Postgres.
type realWorld struct {
	w        *world.World
	net      *network.Net
	etcd     *etcdtwin.Cluster
	truth    *ownertwin.Truth
	services map[*world.Process]*coordinator.Service
	replicas []network.Replica
	admin    string
	crashes  []func() // crash a replica and start it again
}

func newRealWorld(o world.Options) *realWorld {
	w := world.New(o)
	d := &realWorld{w: w, net: network.New(w), truth: ownertwin.NewTruth(), services: map[*world.Process]*coordinator.Service{}}
	d.etcd = etcdtwin.New(d.net, w, "etcd", 3)
	for i := range 3 {
		p := w.Process(fmt.Sprint("coordinator-", i))
		store := d.etcd.Store(p)
		main := func(ctx context.Context) {
			s := coordinator.New(coordinator.Config{
				Store: store, Runtime: p, Random: p, OnFirstAdminToken: func(token string) { d.admin = token },
			})
			d.services[p] = s
			if err := s.Run(ctx); err != nil && ctx.Err() == nil {
				w.Trace("ended", err.Error())
			}
		}
		p.Start(main)
		d.crashes = append(d.crashes, func() { p.Crash(); p.Start(main) })
		d.replicas = append(d.replicas, network.Replica{Process: p, Sync: func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			return d.services[p].Sync(ctx, call)
		}})
	}
	d.truth.OnCommit = func(c *ownertwin.Commit) {
		for _, u := range c.Usage {
			if total := d.truth.Total(u.After.UsageKey); total.Spent > realLimit {
				w.Fail(fmt.Errorf("invariant 2: %d spent of %d in the period of %s", total.Spent, realLimit, u.After.Period))
			}
		}
	}
	return d
}

// ask calls the admin API within the world, until it succeeds.
func (d *realWorld) ask(status int, method, path, body string) map[string]any {
	p := d.w.Outside()
	for {
		p.Sleep(p.Context(), 200*time.Millisecond)
		s := d.services[d.replicas[0].Process]
		if s == nil || d.admin == "" {
			continue
		}
		q := httptest.NewRequestWithContext(p.Context(), method, path, strings.NewReader(body))
		q.Header.Set("Authorization", "Bearer "+d.admin)
		r := httptest.NewRecorder()
		s.Handler().ServeHTTP(r, q)
		if r.Code == status {
			var out map[string]any
			_ = json.Unmarshal(r.Body.Bytes(), &out)
			return out
		}
		if r.Code != http.StatusServiceUnavailable && r.Code != http.StatusUnauthorized {
			d.w.Fail(fmt.Errorf("%s %s answers %d %s", method, path, r.Code, r.Body.String()))
			return nil
		}
	}
}

// region registers a region and starts a node in it.
func (d *realWorld) region(name string) {
	d.ask(201, "POST", "/v1/regions", `{"region":"`+name+`"}`)
	deployment, _ := d.ask(200, "GET", "/v1/status", "")["deployment"].(string)
	db := ownertwin.New(d.net, d.w, d.truth, name+"/pg", name)
	p := d.w.Process(name + "/node")
	p.Start(func(ctx context.Context) {
		n := &realToy{
			process: p, region: name, deployment: deployment, coordinator: network.NewCoordinator(d.net, p, d.replicas...),
			owner: ownertwin.NewOwner(ownertwin.NewEndpoint(db), p, name), catalogue: allocation.NewCatalogue(name),
		}
		n.run(ctx)
	})
}

// realToy is a node that is small, but decides as a node does.
type realToy struct {
	process            *world.Process
	region, deployment string
	owner              regional.Owner
	coordinator        *network.Coordinator
	catalogue          *allocation.Catalogue
}

func (n *realToy) run(ctx context.Context) {
	keeper, err := n.owner.NewWriter(ctx, "keeper")
	caller, err2 := n.owner.NewWriter(ctx, "caller")
	if err = errors.Join(err, err2); err != nil {
		n.process.World().Fail(err)
		return
	}
	n.process.Go("keep", func() { n.keep(ctx, keeper) })
	for i := 0; ctx.Err() == nil; i++ {
		n.process.Sleep(ctx, n.process.Jitter(300*time.Millisecond))
		if err := n.spend(ctx, caller, fmt.Sprint(i)); errors.Is(err, regional.ErrUnknownOutcome) {
			_, _ = caller.Resolve(ctx)
		}
	}
}

func (n *realToy) keep(ctx context.Context, w regional.Writer) {
	acknowledged := map[int]int64{}
	for ctx.Err() == nil {
		err := n.sync(ctx, w, acknowledged)
		if errors.Is(err, regional.ErrUnknownOutcome) {
			_, _ = w.Resolve(ctx)
		}
		if err != nil {
			n.process.World().Trace("sync", err.Error())
		}
		n.process.Sleep(ctx, 50*time.Millisecond)
	}
}

func (n *realToy) sync(ctx context.Context, w regional.Writer, acknowledged map[int]int64) error {
	bounded, cancel := n.process.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	call, err := n.owner.Statements(bounded, w, acknowledged)
	if err != nil {
		return err
	}
	call.Format, call.Deployment, call.Region, call.Node, call.WaitMillis = allocation.SyncFormat, n.deployment, n.region, n.process.Name(), 1000
	answer, err := n.coordinator.Sync(bounded, call)
	if err != nil {
		return err
	}
	if err := n.owner.Apply(bounded, w, answer, call.Clock-answer.EvidenceAgeMillis*1000); err != nil {
		return err
	}
	for _, a := range answer.Acknowledged {
		acknowledged[a.Shard] = a.Number
		if a.Whole {
			acknowledged[a.Shard] = 0
		}
	}
	loaded, err := n.owner.Load(bounded, n.catalogue.Number)
	if err == nil && loaded.Changes > n.catalogue.Number {
		n.catalogue = n.catalogue.With(loaded.Changes, loaded.Budgets, loaded.Terms, loaded.Gone)
	}
	return err
}

func (n *realToy) spend(ctx context.Context, w regional.Writer, id string) error {
	bounded, cancel := n.process.WithTimeout(ctx, time.Second)
	defer cancel()
	r := allocation.Request{Op: allocation.Spend, Key: allocation.IDKey{Credential: "c", ID: id}, Labels: allocation.Labels{"tenant": "acme"}}
	plan := n.catalogue.Plan(r, allocation.At(n.process.Now()))
	want := regional.Want{IDs: []allocation.IDKey{r.Key}, Changes: n.catalogue.Number}
	for _, l := range plan.Lines {
		if l.Problem == "" {
			want.Usage = append(want.Usage, regional.WantedUsage{UsageKey: l.UsageKey, Until: l.Until, Term: l.Term, Make: true})
		}
	}
	b, err := n.owner.Begin(bounded, w, want)
	if err != nil {
		return err
	}
	seen := b.Seen()
	locked := &allocation.Locked{
		Catalogue: n.catalogue, Now: seen.Now, ClosedBefore: seen.ClosedBefore, Stopped: seen.Stopped, Incarnation: seen.Incarnation,
		Usage: seen.Usage, Full: seen.Full, None: map[allocation.UsageKey]bool{}, IDs: seen.IDs, LookedUp: func(allocation.IDKey) bool { return true },
		ChangedUsage: map[allocation.UsageKey]bool{}, Inserted: map[allocation.IDKey]bool{}, Updated: map[allocation.IDKey]bool{},
	}
	if o := locked.Decide(plan); o.Again || !o.Decision.Admitted() || seen.Incarnation == "" || len(plan.Lines) != 1 {
		b.Abandon()
		return nil
	}
	return b.Commit(bounded, regional.Writes{
		Usage: []*allocation.Usage{locked.Usage[plan.Lines[0].UsageKey]}, Inserted: []*allocation.Admission{locked.IDs[r.Key]},
	})
}

// play runs for so long, and crashes replicas, cuts them off and loses answers on the way.
func (d *realWorld) play(length time.Duration) error {
	d.w.Go("operator", func() {
		for _, region := range []string{"ap", "eu", "us"} {
			d.region(region)
		}
		d.ask(201, "POST", "/v1/budgets", fmt.Sprintf(`{"budget":"b","unit":"requests","limit":%d,"window":{"every":"1m"},"match":{"tenant":"acme"},`+
			`"allocation":{"policy":"fixed","weights":{"ap":1,"eu":2,"us":3}}}`, realLimit))
		random, ctx := d.w.Random("faults"), d.w.Outside().Context()
		d.net.Default.Lose = random.Float64() * 0.01
		for d.w.Elapsed() < length/2 {
			d.w.Outside().Sleep(ctx, time.Duration(random.Int64N(int64(20*time.Second))))
			switch random.IntN(3) {
			case 0:
				d.crashes[random.IntN(len(d.crashes))]()
			case 1:
				at := d.replicas[random.IntN(len(d.replicas))].Process.Name()
				d.net.Cut(at, "etcd", true)
				d.w.After(15*time.Second, func() { d.net.Cut(at, "etcd", false) })
			case 2:
				d.etcd.SetQuorum(false)
				d.w.After(5*time.Second, func() { d.etcd.SetQuorum(true) })
			}
		}
		d.net.Heal()
	})
	return d.w.Run(length)
}

func realTrace(seed uint64, length time.Duration) (trace string, spent int, err error) {
	sum := sha256.New()
	d := newRealWorld(world.Options{Seed: seed, Trace: sum, Switches: true})
	defer d.w.Close()
	err = d.play(length)
	for _, total := range d.truth.Totals() {
		if total.Spent == realLimit {
			spent++
		}
	}
	if err != nil {
		var tail strings.Builder
		_ = d.w.WriteLines(&tail, 30)
		err = fmt.Errorf("%w\n%s", err, tail.String())
	}
	return hex.EncodeToString(sum.Sum(nil)), spent, err
}

// The coordinator that is run must be the one that is simulated: as it is, and always the same for a seed.
func TestRealCoordinator(t *testing.T) {
	seeds := uint64(10)
	if raceEnabled {
		seeds = 2
	}
	for seed := range seeds {
		first, spent, err := realTrace(seed, 5*time.Minute)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if spent == 0 {
			t.Errorf("seed %d: no period was spent to its limit", seed)
		}
		if second, _, _ := realTrace(seed, 5*time.Minute); second != first {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

// BenchmarkRealCoordinator measures a world of three real replicas and three regions.
func BenchmarkRealCoordinator(b *testing.B) {
	var simulated time.Duration
	for i := range b.N {
		d := newRealWorld(world.Options{Seed: uint64(i)})
		if err := d.play(10 * time.Minute); err != nil {
			b.Fatal(err)
		}
		simulated += d.w.Elapsed()
		d.w.Close()
	}
	b.ReportMetric(simulated.Seconds()/b.Elapsed().Seconds(), "times-real-time")
}
