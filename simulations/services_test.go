package simulations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// realWorld runs the services as they are: three replicas of coordinator.Service on the twin of etcd, and in each of three
// regions two of regional.Node on the twin of Postgres.
type realWorld struct {
	w        *world.World
	net      *network.Net
	etcd     *etcdtwin.Cluster
	truth    *ownertwin.Truth
	services map[*world.Process]*coordinator.Service
	replicas []network.Replica
	admin    string
	crashes  []func() // crash a process and start it again
	dbs      []*ownertwin.Database
	reasons  map[allocation.Reason]int // what callers were told
}

func newRealWorld(o world.Options) *realWorld {
	w := world.New(o)
	d := &realWorld{w: w, net: network.New(w), truth: ownertwin.NewTruth(), services: map[*world.Process]*coordinator.Service{}, reasons: map[allocation.Reason]int{}}
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

// region registers a region and starts its nodes.
func (d *realWorld) region(name string) {
	d.ask(201, "POST", "/v1/regions", `{"region":"`+name+`"}`)
	deployment, _ := d.ask(200, "GET", "/v1/status", "")["deployment"].(string)
	db := ownertwin.New(d.net, d.w, d.truth, name+"/pg", name)
	for i := range 2 {
		p := d.w.Process(fmt.Sprint(name, "/node-", i))
		main := func(ctx context.Context) {
			node := regional.NewNode(regional.Config{
				Region: name, Name: p.Name(), Deployment: deployment, Runtime: nodeRuntime{p},
				Coordinator: network.NewCoordinator(d.net, p, d.replicas...),
			}, ownertwin.NewOwner(ownertwin.NewEndpoint(db), p, name))
			for i := range 2 {
				p.Go(fmt.Sprint("caller-", i), func() { d.call(ctx, p, node, fmt.Sprint(p.Lives(), "-", i)) })
			}
			if err := node.Run(ctx); err != nil && ctx.Err() == nil {
				d.w.Fail(fmt.Errorf("%s: %w", p.Name(), err))
			}
		}
		p.Start(main)
		d.crashes = append(d.crashes, func() { p.Crash(); p.Start(main) })
	}
	d.dbs = append(d.dbs, db)
}

// nodeRuntime gives a node its signals by the type that it names.
type nodeRuntime struct{ *world.Process }

func (r nodeRuntime) NewSignal() regional.Signal { return r.Process.NewSignal() }

// call asks for one permit after the other, and again with the same id while it is told that nobody knows. Both nodes of a
// region use the same ids.
func (d *realWorld) call(ctx context.Context, p *world.Process, node *regional.Node, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		p.Sleep(ctx, p.Jitter(300*time.Millisecond))
		r := allocation.Request{
			Op: allocation.Spend, Key: allocation.IDKey{Credential: "c", ID: fmt.Sprint(name, "-", i)}, Labels: allocation.Labels{"tenant": "acme"},
		}
		for again := true; again && ctx.Err() == nil; {
			answer := node.Decide(ctx, []allocation.Request{r}, p.Now().Add(time.Second))[0]
			d.reasons[answer.Reason]++
			again = answer.Reason == allocation.OutcomeUnknown
		}
	}
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
			switch random.IntN(4) {
			case 0:
				d.crashes[random.IntN(len(d.crashes))]()
			case 1:
				at := d.replicas[random.IntN(len(d.replicas))].Process.Name()
				d.net.Cut(at, "etcd", true)
				d.w.After(15*time.Second, func() { d.net.Cut(at, "etcd", false) })
			case 2:
				d.etcd.SetQuorum(false)
				d.w.After(5*time.Second, func() { d.etcd.SetQuorum(true) })
			case 3:
				db := d.dbs[random.IntN(len(d.dbs))]
				db.Crash()
				d.w.After(2*time.Second, db.Start)
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

// The services that are run must be those that are simulated: as it is, and always the same for a seed.
func TestRealServices(t *testing.T) {
	seeds := uint64(4)
	if raceEnabled {
		seeds = 1
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

// BenchmarkRealServices measures a world of three real replicas and six real nodes.
func BenchmarkRealServices(b *testing.B) {
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
