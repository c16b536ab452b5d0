package simulations

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
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

// The demonstration: three regions with two nodes each spend from one limit, which two toy coordinators hand out in small
// steps by compare-and-swap in etcd. The toys are as small as they can be and still keep the cap through lost answers,
// crashes, pauses and partitions. The real services take their place.
const (
	demoLimit  = 60
	demoStep   = 5
	demoBudget = "demo"
	demoKey    = coordinator.Root + "demo/"

	demoFaults, demoHealing = 8 * time.Second, 14 * time.Second
)

type demo struct {
	w     *world.World
	net   *network.Net
	etcd  *etcdtwin.Cluster
	truth *ownertwin.Truth
	term  allocation.Instant

	dbs       []*ownertwin.Database
	all       []*world.Process
	main      map[*world.Process]func(ctx context.Context)
	admitted  map[string]int // by region and id: how often a caller was told so
	decisions int
}

func newDemo(o world.Options) *demo {
	w := world.New(o)
	d := &demo{w: w, net: network.New(w), truth: ownertwin.NewTruth(), main: map[*world.Process]func(context.Context){}, admitted: map[string]int{}}
	d.etcd = etcdtwin.New(d.net, w, "etcd", 3)
	d.term = allocation.At(w.Now())
	var replicas []network.Replica
	for i := range 2 {
		p := w.Process(fmt.Sprint("coordinator-", i))
		c := &toyCoordinator{demo: d, process: p, store: d.etcd.Store(p)}
		replicas = append(replicas, network.Replica{Process: p, Sync: c.sync})
		d.start(p, c.run)
	}
	for _, region := range []string{"ap", "eu", "us"} {
		db := ownertwin.New(d.net, w, d.truth, region+"/pg", region)
		d.dbs = append(d.dbs, db)
		for i := range 2 {
			p := w.Process(fmt.Sprint(region, "/node-", i))
			d.start(p, func(ctx context.Context) {
				n := &toyNode{demo: d, process: p, region: region, coordinator: network.NewCoordinator(d.net, p, replicas...)}
				n.owner = ownertwin.NewOwner(ownertwin.NewEndpoint(db), p, region)
				n.run(ctx)
			})
		}
	}
	d.truth.OnCommit = func(*ownertwin.Commit) {
		if spent := d.truth.Total(d.key()).Spent; spent > demoLimit {
			w.Fail(fmt.Errorf("invariant 2: %d spent of %d", spent, demoLimit))
		}
	}
	return d
}

func (d *demo) start(p *world.Process, main func(ctx context.Context)) {
	d.all, d.main[p] = append(d.all, p), main
	p.Start(main)
}

func (d *demo) key() allocation.UsageKey {
	return allocation.UsageKey{Budget: demoBudget, Period: d.term, Class: allocation.General}
}

// toyCoordinator grants a region its next step, if the limit holds it.
type toyCoordinator struct {
	demo    *demo
	process *world.Process
	store   coordinator.Store
}

// run watches, and leads, for nothing but the traffic of it.
func (c *toyCoordinator) run(ctx context.Context) {
	c.process.Go("lead", func() {
		_ = c.store.Lead(ctx, "background", func(ctx context.Context) error {
			for ctx.Err() == nil {
				c.process.Sleep(ctx, time.Second)
			}
			return nil
		})
	})
	for ctx.Err() == nil {
		_, revision, err := c.store.Range(ctx, coordinator.Root)
		if err == nil {
			_ = c.store.Watch(ctx, coordinator.Root, revision, func([]coordinator.Event, int64) {})
		}
		c.process.Sleep(ctx, time.Second)
	}
}

func (c *toyCoordinator) sync(ctx context.Context, call allocation.SyncCall) (a allocation.SyncAnswer, err error) {
	items, _, err := c.store.Range(ctx, demoKey)
	if err != nil {
		return a, err
	}
	granted, sum, mine := int64(0), int64(0), coordinator.Item{Key: demoKey + call.Region}
	var compares []coordinator.Item
	for _, item := range items {
		n, _ := strconv.ParseInt(string(item.Value), 10, 64)
		sum += n
		if item.Key == mine.Key {
			mine, granted = item, n
		}
		compares = append(compares, item)
	}
	if mine.Revision == 0 {
		compares = append(compares, mine)
	}
	for _, region := range []string{"ap", "eu", "us"} { // those that are absent must be so still
		known := false
		for _, item := range compares {
			known = known || item.Key == demoKey+region
		}
		if !known {
			compares = append(compares, coordinator.Item{Key: demoKey + region})
		}
	}
	if len(call.Low) > 0 || granted == 0 {
		if step := min(demoStep, demoLimit-sum); step > 0 {
			granted += step
			result, err := c.store.Commit(ctx, coordinator.Txn{
				Compares: compares, Puts: []coordinator.Item{{Key: mine.Key, Value: []byte(strconv.FormatInt(granted, 10))}},
			})
			if err != nil || !result.Committed {
				return a, errors.Join(err, errors.New("again"))
			}
		}
	}
	a = allocation.SyncAnswer{Format: allocation.SyncFormat, Incarnation: "life-" + call.Region, Now: c.process.Now().UnixMicro()}
	if granted > 0 {
		a.Shares = []allocation.ShareGrant{c.demo.grant(granted)}
	}
	return a, nil
}

func (d *demo) grant(granted int64) allocation.ShareGrant {
	until := d.term + 86400
	return allocation.ShareGrant{
		Budget: demoBudget, Version: 1, Periods: allocation.Periods{Instants: []allocation.Instant{d.term, until}},
		Generation: allocation.Generation{Number: granted, Stamp: strconv.FormatInt(granted, 10)},
		Entries: []allocation.GrantEntry{{
			From: d.term, Until: until, Class: allocation.General, Limit: demoLimit, Granted: granted, Target: granted,
		}},
	}
}

// toyNode serves callers by batches of one, and keeps its region in contact.
type toyNode struct {
	demo        *demo
	process     *world.Process
	region      string
	owner       regional.Owner
	coordinator *network.Coordinator
}

func (n *toyNode) run(ctx context.Context) {
	var writers []regional.Writer
	for len(writers) < 3 {
		w, err := n.owner.NewWriter(ctx, n.process.Name())
		if err != nil {
			n.process.Sleep(ctx, 100*time.Millisecond)
			continue
		}
		writers = append(writers, w)
	}
	n.process.Go("keep", func() { n.keep(ctx, writers[0]) })
	for i, w := range writers[1:] {
		n.process.Go(fmt.Sprint("caller-", i), func() { n.call(ctx, w, n.process.Random()) })
	}
}

func (n *toyNode) keep(ctx context.Context, w regional.Writer) {
	acknowledged := map[int]int64{}
	for ctx.Err() == nil {
		bounded, cancel := n.process.WithTimeout(ctx, 2*time.Second)
		call, err := n.owner.Statements(bounded, w, acknowledged)
		if err == nil {
			var answer allocation.SyncAnswer
			if answer, err = n.coordinator.Sync(bounded, call); err == nil {
				err = n.owner.Apply(bounded, w, answer, answer.Now)
			}
		}
		cancel()
		if errors.Is(err, regional.ErrUnknownOutcome) {
			_, _ = w.Resolve(ctx)
		}
		n.process.Sleep(ctx, time.Second)
	}
}

// call spends one permit for one id after the other, and asks again with the same id until it knows.
func (n *toyNode) call(ctx context.Context, w regional.Writer, random *rand.Rand) {
	for i := 0; ctx.Err() == nil; i++ {
		n.process.Sleep(ctx, time.Duration(random.IntN(int(200*time.Millisecond))))
		// Both nodes use the same ids, so that they race for them.
		id := allocation.IDKey{ID: fmt.Sprint(n.process.Lives(), "-", i)}
		for ctx.Err() == nil {
			told, err := n.spend(ctx, w, id)
			if err == nil {
				n.demo.decisions++
				if told {
					n.demo.admitted[n.region+id.ID]++
				}
				break
			}
			for errors.Is(err, regional.ErrUnknownOutcome) && ctx.Err() == nil {
				n.process.Sleep(ctx, 50*time.Millisecond)
				_, err = w.Resolve(ctx)
			}
		}
	}
}

func (n *toyNode) spend(ctx context.Context, w regional.Writer, id allocation.IDKey) (bool, error) {
	key := n.demo.key()
	bounded, cancel := n.process.WithTimeout(ctx, time.Second)
	defer cancel()
	b, err := n.owner.Begin(bounded, w, regional.Want{
		Usage:   []regional.WantedUsage{{UsageKey: key, Until: key.Period + 86400, Term: key.Period, Make: true}},
		IDs:     []allocation.IDKey{id},
		Changes: math.MaxInt64,
	})
	if err != nil {
		return false, err
	}
	seen := b.Seen()
	u := seen.Usage[key]
	if seen.IDs[id] != nil || u == nil || u.Spendable(demoLimit) < 1 {
		b.Abandon()
		return false, nil
	}
	u.Spent++
	return true, b.Commit(bounded, regional.Writes{Usage: []*allocation.Usage{u}, Inserted: []*allocation.Admission{{
		IDKey: id, Op: allocation.Spend, State: allocation.StateSpent, At: seen.Now, Lines: []allocation.AdmissionLine{{UsageKey: key, Spent: 1}},
	}}})
}

// disturb makes faults until the given time, each kind with a probability of the seed's own, and then heals everything.
func (d *demo) disturb(until time.Duration) {
	random, ctx := d.w.Random("faults"), d.w.Outside().Context()
	d.net.Default.Lose, d.net.Default.Late, d.net.Default.Repeat = random.Float64()*0.03, random.Float64()*0.01, random.Float64()*0.1
	weights := [5]int{}
	for i := range weights {
		weights[i] = random.IntN(10)
	}
	weights[random.IntN(5)] += 5
	for d.w.Elapsed() < until {
		d.w.Outside().Sleep(ctx, time.Duration(random.IntN(int(2*time.Second))))
		p := d.all[random.IntN(len(d.all))]
		db := d.dbs[random.IntN(len(d.dbs))]
		other := d.all[random.IntN(len(d.all))]
		pick := random.IntN(weights[0] + weights[1] + weights[2] + weights[3] + weights[4])
		kind := 0
		for pick >= weights[kind] {
			pick -= weights[kind]
			kind++
		}
		switch kind {
		case 0:
			p.Crash()
			p.Start(d.main[p])
		case 1:
			p.Pause()
			d.w.After(time.Duration(random.IntN(int(5*time.Second))), p.Resume)
		case 2:
			link := d.net.Link(p.Name(), []string{other.Name(), db.Server().Name(), "etcd"}[random.IntN(3)])
			link.Cut = true
			d.w.After(time.Duration(random.IntN(int(10*time.Second))), func() { link.Cut = false })
		case 3:
			db.Crash()
			d.w.After(time.Duration(random.IntN(int(2*time.Second))), db.Start)
		case 4:
			d.etcd.SetQuorum(false)
			d.w.After(time.Duration(random.IntN(int(8*time.Second))), func() { d.etcd.SetQuorum(true) })
		}
	}
	d.net.Heal()
}

// play runs the demonstration: some seconds of faults, and then some without, in which all of the limit must be spent.
func (d *demo) play() error {
	d.w.Go("faults", func() { d.disturb(demoFaults) })
	if err := d.w.Run(demoFaults + demoHealing); err != nil {
		return err
	}
	for id, times := range d.admitted {
		if times > 1 {
			return fmt.Errorf("invariant 6: %s was admitted %d times", id, times)
		}
	}
	if spent := d.truth.Total(d.key()).Spent; spent != demoLimit {
		return fmt.Errorf("%d of %d spent after all was well again", spent, demoLimit)
	}
	return nil
}

func demoTrace(seed uint64) (trace string, stats world.Stats, err error) {
	sum := sha256.New()
	d := newDemo(world.Options{Seed: seed, Trace: sum, Switches: true})
	defer d.w.Close()
	err = d.play()
	return hex.EncodeToString(sum.Sum(nil)), d.w.Stats(), err
}

// If a seed did not name one run, to the byte, nothing that the simulator finds could be looked at again.
func TestDemonstration(t *testing.T) {
	seeds := uint64(200)
	if raceEnabled {
		seeds = 10
	}
	traces := map[string]uint64{}
	var points uint64
	for seed := range seeds {
		first, stats, err := demoTrace(seed)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		before := runtime.GOMAXPROCS(1 + int(seed)%2)
		second, _, _ := demoTrace(seed)
		runtime.GOMAXPROCS(before)
		if first != second {
			t.Errorf("seed %d: two runs differ", seed)
		}
		if other, same := traces[first]; same {
			t.Errorf("seeds %d and %d: the same run", seed, other)
		}
		traces[first] = seed
		points += stats.Points
	}
	t.Logf("%d seeds, %d points each", seeds, points/seeds)
}

// BenchmarkThreeRegions measures how much faster than real time a world of three regions runs.
func BenchmarkThreeRegions(b *testing.B) {
	var simulated time.Duration
	var points uint64
	decisions := 0
	for i := range b.N {
		d := newDemo(world.Options{Seed: uint64(i)})
		d.w.Go("faults", func() { d.disturb(time.Minute) })
		if err := d.w.Run(10 * time.Minute); err != nil {
			b.Fatal(err)
		}
		simulated += d.w.Elapsed()
		points += d.w.Stats().Points
		decisions += d.decisions
		d.w.Close()
	}
	b.ReportMetric(simulated.Seconds()/b.Elapsed().Seconds(), "times-real-time")
	b.ReportMetric(float64(points)/b.Elapsed().Seconds(), "points/s")
	b.ReportMetric(float64(points)/simulated.Seconds(), "points/simulated-s")
	b.ReportMetric(float64(decisions)/simulated.Seconds(), "decisions/simulated-s")
}
