package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

const (
	askersEach   = 6                // of each region and tenant
	truthWithin  = 30 * time.Second // after a fault is over every id gets its truth
	retryEvery   = 20 * time.Millisecond
	progressWait = 30 * time.Second
	truthTries   = 50 // of an id that nobody decides on in time
)

// serial numbers the ids of all loads.
var serial atomic.Int64

// load is clients that ask under ids of their own and write every answer down. An id without an answer is asked again, at
// the region's other node, until its truth is known: nothing stays open.
type load struct {
	stage *stage.Stage
	done  sync.WaitGroup
	count map[string]*atomic.Int64 // admissions by region

	mu       sync.Mutex
	admitted map[string]map[string]int // by region: ids, and how often they were asked
	refused  map[string]map[string]bool
	unknown  []string
	strange  []string
}

func startLoad(ctx context.Context, t *testing.T, s *stage.Stage, tenants ...string) *load {
	t.Helper()
	l := &load{stage: s, count: map[string]*atomic.Int64{}, admitted: map[string]map[string]int{}, refused: map[string]map[string]bool{}}
	for name := range s.Regions { // before anybody asks: those who do read these maps
		l.count[name], l.admitted[name], l.refused[name] = new(atomic.Int64), map[string]int{}, map[string]bool{}
	}
	for name, r := range s.Regions {
		var clients []*api.Client
		for _, n := range r.Nodes {
			c, err := s.Gateway(stage.Edge1, n)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
		for _, tenant := range tenants {
			for range askersEach {
				l.done.Go(func() {
					for ctx.Err() == nil {
						l.ask(context.WithoutCancel(ctx), name, tenant, clients)
					}
				})
			}
		}
	}
	return l
}

// ask gets the truth about one id.
func (l *load) ask(ctx context.Context, region, tenant string, clients []*api.Client) {
	ctx, cancel := context.WithTimeout(ctx, truthWithin)
	defer cancel()
	n := serial.Add(1)
	id := fmt.Sprintf("%s-%06d", tenant, n)
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for tries := 1; ; tries++ {
		d, err := api.Admit(ctx, clients[(int(n)+tries)%len(clients)], api.Admission{
			ID: id, Op: "spend", Labels: map[string]string{"tenant": tenant}, Deadline: time.Second,
		})
		if err == nil && l.note(region, id, tries, d) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			l.mu.Lock()
			l.unknown = append(l.unknown, fmt.Sprintf("%s %s: %v %s", region, id, err, d.Reason))
			l.mu.Unlock()
			return
		}
	}
}

// decided asks until somebody has decided: a node whose database is slow for a moment says 503, and the same id gets the truth.
func decided(ctx context.Context, client *api.Client, a api.Admission) (d api.Decision, err error) {
	for range truthTries {
		if d, err = api.Admit(ctx, client, a); err != nil || d.Status != 503 {
			return d, err
		}
		<-time.After(retryEvery)
	}
	return d, err
}

// note writes an answer down; false if it is not the truth yet.
func (l *load) note(region, id string, tries int, d api.Decision) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case d.Admitted():
		l.admitted[region][id] = tries
		l.count[region].Add(1)
	case d.Status == 429 && !d.Unknown():
		l.refused[region][id] = true
	case d.Status == 503:
		return false
	default:
		l.strange = append(l.strange, fmt.Sprintf("%s %s: %d %s %s", region, id, d.Status, d.Reason, d.Detail))
	}
	return true
}

// progress waits until so many more were admitted in the regions.
func (l *load) progress(t *testing.T, more int64, regions ...string) {
	t.Helper()
	for _, name := range regions {
		from := l.count[name].Load()
		err := stage.Until(t.Context(), progressWait, fmt.Sprintf("%s has admitted %d more", name, more), func() (bool, error) {
			return l.count[name].Load() >= from+more, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// incarnationOf is the life that a region's database has stored.
func incarnationOf(ctx context.Context, url string) (name string, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "select incarnation from tranche.owner").Scan(&name)
	return name, err
}

// charged is what a region's database holds.
type charged struct {
	ids   map[string]int   // how often each id stands there
	spent map[string]int64 // by budget
}

func readCharged(ctx context.Context, t *testing.T, url string) charged {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	c := charged{ids: map[string]int{}, spent: map[string]int64{}}
	for table := range 4 {
		rows, _ := conn.Query(ctx, fmt.Sprintf("select id from tranche.admission_ids_%d", table))
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range list {
			c.ids[id]++
		}
	}
	rows, _ := conn.Query(ctx, "select budget, sum(spent)::bigint from tranche.usage group by budget")
	var budget string
	var spent int64
	_, err = pgx.ForEachRow(rows, []any{&budget, &spent}, func() error {
		c.spent[budget] = spent
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// judge holds what the clients saw against what the databases hold. budgets lists by tenant what each admission is charged
// to.
func (l *load) judge(t *testing.T, budgets map[string][]string) {
	t.Helper()
	l.done.Wait()
	for _, problem := range slices.Concat(l.unknown, l.strange) {
		t.Errorf("no truth: %s", problem)
	}
	for name, r := range l.stage.Regions {
		db := readCharged(t.Context(), t, r.Database)
		for _, problem := range faultsIn(l.admitted[name], db, budgets) {
			t.Errorf("%s: %s", name, problem)
		}
		retried := 0
		for _, tries := range l.admitted[name] {
			if tries > 1 {
				retried++
			}
		}
		t.Logf("%s: %d ids admitted (%d after a retry), %d refused; spent %v", name, len(l.admitted[name]), retried, len(l.refused[name]), db.spent)
	}
}

// faultsIn checks that every admission stands in the database exactly once, and that nothing else was charged.
func faultsIn(admitted map[string]int, db charged, budgets map[string][]string) (faults []string) {
	want := map[string]int64{}
	for id := range admitted {
		if db.ids[id] != 1 {
			faults = append(faults, fmt.Sprintf("%s was admitted and stands in the database %d times", id, db.ids[id]))
		}
		tenant, _, _ := strings.Cut(id, "-")
		for _, b := range budgets[tenant] {
			want[b]++
		}
	}
	for id := range db.ids {
		if _, ok := admitted[id]; !ok {
			faults = append(faults, id+" is charged, and no client saw it admitted")
		}
	}
	for _, list := range budgets {
		for _, b := range list {
			if db.spent[b] != want[b] {
				faults = append(faults, fmt.Sprintf("%s has spent %d, and the clients saw %d admissions", b, db.spent[b], want[b]))
			}
		}
	}
	return faults
}

// A checker that has never been seen to fail proves nothing.
func TestFaultsInFindsEachFault(t *testing.T) {
	budgets := map[string][]string{"big": {"a", "b"}}
	sound := func() charged {
		return charged{ids: map[string]int{"big-1": 1, "big-2": 1}, spent: map[string]int64{"a": 2, "b": 2}}
	}
	seen := map[string]int{"big-1": 1, "big-2": 3}
	if faults := faultsIn(seen, sound(), budgets); len(faults) > 0 {
		t.Errorf("nothing is wrong, and yet: %v", faults)
	}
	for name, harm := range map[string]func(*charged){
		"an admission is lost":     func(c *charged) { delete(c.ids, "big-1") },
		"an id stands twice":       func(c *charged) { c.ids["big-1"] = 2 },
		"charged for nobody":       func(c *charged) { c.ids["big-3"] = 1 },
		"charged twice":            func(c *charged) { c.spent["a"]++ },
		"one budget of two missed": func(c *charged) { c.spent["b"]-- },
	} {
		db := sound()
		harm(&db)
		if len(faultsIn(seen, db, budgets)) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}

// fixed is a budget that is split 3 to 2.
func fixed(name string, limit int64, tenant string, window allocation.Window) allocation.Budget {
	return allocation.Budget{
		Name: name, Unit: "requests", Limit: &limit, Window: window, Match: map[string]string{"tenant": tenant},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"us-east": 3, "eu-west": 2}},
	}
}
