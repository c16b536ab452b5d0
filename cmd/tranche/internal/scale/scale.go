// Package scale measures what very many budgets cost on the global side: a real etcd and the real coordinator in this
// process, and regions that store what they are granted and state it, without a database; the last region has a real node.
//
//	declare a tenth ─▶ a quiet call, a call after one change ─▶ declare the rest ─▶ the same again: it must cost the same
//	      ├▶ what etcd holds, a second replica: its start, its memory
//	      └▶ a node stores all that there is; another over the same Postgres: its start, its memory
//
// A month (MeasureMonth) is few budgets for long: the clock of the real coordinator is driven ahead, and what etcd holds must
// not grow.
package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/coordinator/etcd"
	"tranche/coordinator/etcd/embedded"
)

// Bounds of what is measured.
const (
	MinBudgets, MaxBudgets = 100, 200_000
	MinRegions, MaxRegions = 2, 20
	defaultCalls           = 5
	quietAttempts          = 100
	closeGrace             = time.Minute
	quietFor               = time.Hour // the regions call only when it is their turn, and are not lost meanwhile
	startPatience          = 2 * time.Minute
	ackEvery               = 250 * time.Millisecond
)

// Options says how much is measured.
type Options struct {
	Budgets  int // of one minute each, split over all regions
	Regions  int
	Calls    int                              // how often each call is measured; 0: 5
	Progress func(format string, args ...any) // hears what takes its time; nil: nobody does
}

// Report is what was measured. Times are of this machine; the ratios are what to look at.
type Report struct {
	Budgets int `json:"budgets"`
	Regions int `json:"regions"`

	Few  Stage `json:"with_a_tenth"`
	Many Stage `json:"with_all"`

	LedgerWrites float64         `json:"ledger_writes_per_budget_and_term"`
	Kinds        map[string]Held `json:"etcd_holds"` // by kind of document
	Held         Held            `json:"etcd_holds_in_all"`
	Database     int64           `json:"etcd_database_bytes"` // as large as its file is, before it is defragmented

	StartSeconds float64 `json:"start_seconds"` // of one more replica, until it is ready
	HeapBytes    int64   `json:"heap_bytes"`    // that it takes

	Node NodeStart `json:"node"`
}

// Held is how many documents there are, and the bytes of their keys and values.
type Held struct {
	Documents int   `json:"documents"`
	Bytes     int64 `json:"bytes"`
}

// Stage is what an act costs at one number of budgets.
type Stage struct {
	Budgets    int     `json:"budgets"`
	Declare    float64 `json:"declare_ms"`    // the median of the last hundred declared
	QuietBytes int     `json:"quiet_bytes"`   // of a sync call and its answer when nothing changed
	Quiet      float64 `json:"quiet_ms"`      // that the coordinator takes for it, the median
	ChangeByte int     `json:"change_bytes"`  // of a call that answers one changed limit, and of the one that states it
	Change     float64 `json:"change_ms"`     // of both, the median
	FirstCalls int     `json:"first_calls"`   // that a region needs to store all that there is
	FirstBytes int     `json:"first_bytes"`   // of these
	First      float64 `json:"first_seconds"` // that they take
}

// Run measures. An error says what did not come to its end; nothing of it stays.
func Run(ctx context.Context, o Options) (report Report, err error) {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	if o.Calls <= 0 {
		o.Calls = defaultCalls
	}
	if err := o.check(); err != nil {
		return report, err
	}
	w := newWorld(o)
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := w.start(ctx, o.Regions-1); err != nil {
		return report, err
	}
	if w.place, err = w.newPlace(ctx, fmt.Sprintf("region-%02d", o.Regions)); err != nil {
		return report, err
	}
	if err := w.place.join(ctx); err != nil {
		return report, err
	}
	report.Budgets, report.Regions = o.Budgets, o.Regions
	if report.Few, err = w.stage(ctx, o.Budgets/10); err != nil {
		return report, err
	}
	if report.Many, err = w.stage(ctx, o.Budgets); err != nil {
		return report, err
	}
	w.resting.rest() // nothing is opened meanwhile
	if err := w.weigh(ctx, &report); err != nil {
		return report, err
	}
	if report.StartSeconds, report.HeapBytes, err = w.second(ctx); err != nil {
		return report, err
	}
	report.Node, err = w.place.measure(ctx, o.Budgets, report.Kinds["ledgers"].Documents)
	return report, err
}

func (o Options) check() error {
	switch {
	case o.Budgets < MinBudgets || o.Budgets > MaxBudgets:
		return fmt.Errorf("--budgets %d: use %d to %d", o.Budgets, MinBudgets, MaxBudgets)
	case o.Regions < MinRegions || o.Regions > MaxRegions:
		return fmt.Errorf("--regions %d: use %d to %d", o.Regions, MinRegions, MaxRegions)
	}
	return nil
}

// world is the etcd, one replica and the regions.
type world struct {
	o       Options
	etcd    *embedded.Server
	store   *etcd.Store
	resting *restingStore
	first   *replica
	admin   string
	regions []*region // that are played
	place   *place    // of the last one, which is real
	names   []string  // of all

	deployment string
	now        func() time.Time
	used       func(s allocation.Share, closed allocation.Instant) []allocation.Usage
	config     coordinator.Config // of replicas
	declared   int
	versions   map[string]int64 // of budgets
}

type replica struct {
	*coordinator.Service
	handler http.Handler
	end     func() error
}

// newWorld is a world in which nothing runs yet and nobody spends anything.
func newWorld(o Options) *world {
	return &world{
		o: o, versions: map[string]int64{}, now: time.Now, config: coordinator.Config{ReportUnreachableAfter: quietFor},
		used: func(allocation.Share, allocation.Instant) []allocation.Usage { return nil },
	}
}

// start runs the etcd, a replica and so many regions that are played.
func (w *world) start(ctx context.Context, regions int) (err error) {
	o := w.o
	o.Progress("etcd starts")
	if w.etcd, err = embedded.Start(ctx, embedded.Options{}); err != nil {
		return err
	}
	if w.store, err = etcd.Open(ctx, etcd.Config{Endpoints: w.etcd.Endpoints()}); err != nil {
		return err
	}
	w.resting = newRestingStore(w.store)
	token := make(chan string, 1)
	if w.first, err = w.replica(ctx, func(text string) { token <- text }); err != nil {
		return err
	}
	w.admin = <-token
	for i := range regions {
		r, err := w.join(ctx, fmt.Sprintf("region-%02d", i+1))
		if err != nil {
			return err
		}
		w.regions = append(w.regions, r)
	}
	return nil
}

// replica starts a coordinator and waits until it is ready.
func (w *world) replica(ctx context.Context, onToken func(string)) (*replica, error) {
	config := w.config
	config.Store, config.Registry, config.OnFirstAdminToken = w.resting, prometheus.NewRegistry(), onToken
	s := coordinator.New(config)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	r := &replica{Service: s, handler: s.Handler(), end: func() error { cancel(); return <-ended }}
	patience := startPatience + w.perBudget()
	until := time.Now().Add(patience)
	for {
		code, _, err := w.ask(ctx, r, "GET", "/readyz", nil)
		if err != nil || code == http.StatusOK {
			return r, err
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the coordinator ended: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(until) {
			return nil, errors.Join(fmt.Errorf("the coordinator was not ready within %s", patience), r.end())
		}
	}
}

// perBudget is what is waited longer where much is declared: a busy machine takes some milliseconds for each.
func (w *world) perBudget() time.Duration { return time.Duration(w.declared) * 20 * time.Millisecond }

func (w *world) stop() error {
	var all []error
	if w.place != nil {
		all = append(all, w.place.stop())
	}
	if w.first != nil {
		all = append(all, w.first.end())
	}
	if w.store != nil {
		all = append(all, w.store.Close())
	}
	if w.etcd != nil {
		all = append(all, w.etcd.Close())
	}
	return errors.Join(all...)
}

// ask calls the admin API without a network between.
func (w *world) ask(ctx context.Context, r *replica, method, path string, body any, headers ...string) (int, []byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	request := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(string(text)))
	request.Header.Set("Authorization", "Bearer "+w.admin)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	r.handler.ServeHTTP(answer, request)
	return answer.Code, answer.Body.Bytes(), ctx.Err()
}

// must is ask for what cannot be refused.
func (w *world) must(ctx context.Context, method, path string, body any, headers ...string) ([]byte, error) {
	code, answer, err := w.ask(ctx, w.first, method, path, body, headers...)
	if err == nil && code/100 != 2 {
		err = fmt.Errorf("%s %s: %d: %s", method, path, code, answer)
	}
	return answer, err
}

// held is what etcd holds, by kind of document and in all.
func held(items []coordinator.Item) (kinds map[string]Held, all Held) {
	kinds = map[string]Held{}
	for _, item := range items {
		kind, n := kindOf(item.Key), int64(len(item.Key)+len(item.Value))
		kinds[kind] = Held{kinds[kind].Documents + 1, kinds[kind].Bytes + n}
		all = Held{all.Documents + 1, all.Bytes + n}
	}
	return kinds, all
}

// weigh looks at what etcd holds.
func (w *world) weigh(ctx context.Context, report *Report) error {
	items, _, err := w.store.Range(ctx, coordinator.Root)
	if err != nil {
		return err
	}
	report.Kinds, report.Held = held(items)
	var writes, ledgers int64
	for _, item := range items {
		if kind := kindOf(item.Key); kind == "ledgers" {
			var l allocation.Ledger
			if err := json.Unmarshal(item.Value, &l); err != nil {
				return err
			}
			if l.Version == 1 { // the limits of the others were changed
				writes, ledgers = writes+l.Generation.Number, ledgers+1 // each write raises it by one
			}
		}
	}
	report.LedgerWrites = float64(writes) / float64(max(1, ledgers))
	report.Database, err = w.file(ctx)
	return err
}

// file is how large etcd's file is.
func (w *world) file(ctx context.Context) (bytes int64, err error) {
	members, err := w.store.Members(ctx)
	for _, m := range members {
		bytes = max(bytes, m.DBBytes)
	}
	return bytes, err
}

// second starts one more replica on what is there, and says how long it took to be ready and what memory it takes.
func (w *world) second(ctx context.Context) (seconds float64, bytes int64, err error) {
	w.o.Progress("one more replica starts")
	before := heap()
	at := time.Now()
	r, err := w.replica(ctx, nil)
	if err != nil {
		return 0, 0, err
	}
	seconds = time.Since(at).Seconds()
	bytes = heap() - before
	return seconds, bytes, r.end()
}

// heap is what is in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first one finalized
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func median(times []time.Duration) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return float64(sorted[len(sorted)/2].Microseconds()) / 1000
}
