package regional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
)

// shelf is a Records in memory that fails as it is told.
type shelf struct {
	Owner
	err     error
	records []*allocation.Record
	counts  []RefusedCount
	kept    []KeptTenant
	pruned  []RecordBounds
}

func (s *shelf) KeepRecords(_ context.Context, records []*allocation.Record, counts []RefusedCount) error {
	if s.err != nil {
		return s.err
	}
	s.records, s.counts = append(s.records, records...), append(s.counts, counts...)
	return nil
}

// of counts the records of a tenant.
func (s *shelf) of(tenant string) (n int) {
	for _, r := range s.records {
		if r.Decision.Key.Tenant == tenant {
			n++
		}
	}
	return n
}

func (s *shelf) PruneRecords(_ context.Context, b RecordBounds) error {
	s.pruned = append(s.pruned, b)
	return nil
}

func (s *shelf) FindRecords(context.Context, RecordQuery) ([]allocation.Record, int64, error) {
	return nil, 0, nil
}

func (s *shelf) RefusedOver(context.Context, RefusedQuery) ([]RefusedCount, error) { return nil, nil }

func (s *shelf) KeepTenant(context.Context, KeptTenant) (bool, error) { return true, nil }

func (s *shelf) KeptTenants(context.Context) ([]KeptTenant, error) { return s.kept, s.err }

func shelved(sampling Sampling) (*Node, *shelf) {
	s := &shelf{}
	return NewNode(Config{Name: "node-1", Sampling: sampling, Metrics: NewMetrics(prometheus.NewRegistry())}, s), s
}

// refuse is what one call comes to that an owner refused, as a lane and Decide would have it.
func (n *Node) refuse(tenant string, reason allocation.Reason) allocation.Decision {
	r := allocation.Request{Op: allocation.Spend, Key: allocation.IDKey{Tenant: tenant, ID: "x"}, Labels: allocation.Labels{"tenant": tenant}}
	out := []allocation.Decision{{
		Op: allocation.Spend, Key: r.Key, Reason: reason, At: 1_800_000_000_000_000, Evidence: allocation.Evidence{Incarnation: "one"},
		Blames: "b", Budgets: []allocation.BudgetDecision{{UsageKey: allocation.UsageKey{Budget: "b"}, Unit: "tokens", Requested: 7}},
	}}
	if n.recorder.wants(&r, &out[0]) {
		out[0].Record = allocation.RecordUndecided(r, out[0])
	}
	n.recorder.take(n.Catalogue(), []allocation.Request{r}, out)
	return out[0]
}

func (n *Node) fate(fate string) int {
	families, err := n.metrics.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tranche_refusal_records_total" && m.GetLabel()[0].GetValue() == fate {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return -1
}

// A node keeps so many a second, counts what it drops, and goes on in the next second. Of a tenant that is kept it keeps
// more. If this fails, a storm of refusals is a storm of writes.
func TestRecordsOfASecondAreBounded(t *testing.T) {
	n, s := shelved(Sampling{})
	for range 10*recordsASecond - 2*recordsASecond {
		n.refuse("acme", allocation.CeilingReached)
	}
	for range 2 * recordsASecond { // there is room beside the storm, and no more than that
		n.refuse("globex", allocation.CeilingReached)
	}
	n.writeRecords(t.Context())
	if of := s.of("acme"); of != recordsATenant {
		t.Errorf("%d of one tenant are kept", of)
	}
	if len(s.records) != recordsASecond || n.fate(recordKept) != recordsASecond || n.fate(recordDropped) != 9*recordsASecond {
		t.Errorf("%d kept, %d counted as kept, %d as dropped", len(s.records), n.fate(recordKept), n.fate(recordDropped))
	}
	if len(s.counts) != 2 || s.counts[0].Requests+s.counts[1].Requests != 10*recordsASecond || s.counts[0].Units+s.counts[1].Units != 70*recordsASecond {
		t.Errorf("not all are counted: %+v", s.counts)
	}
	n.recorder.refill()
	kept := map[string]int64{"globex": 1_800_000_000_000_001}
	n.recorder.kept.Store(&kept)
	for range 5 * recordsASecond {
		n.refuse("globex", allocation.CeilingReached)
	}
	n.refuse("acme", allocation.CeilingReached)
	n.writeRecords(t.Context())
	if got := len(s.records); got != recordsASecond+5*recordsASecond+1 {
		t.Errorf("%d are kept", got)
	}
}

// One in so many, and none, are what they say; a name is given to what is kept, and to nothing else.
func TestSampling(t *testing.T) {
	for oneIn, want := range map[int64]int{0: 15, 1: 15, 4: 5, 100: 0, -1: 0} {
		n, s := shelved(Sampling{OneIn: oneIn})
		named := 0
		for range 20 {
			if d := n.refuse("acme", allocation.CeilingReached); d.Record != nil && d.Record.Name != "" {
				named++
			}
		}
		n.writeRecords(t.Context())
		if len(s.records) != want || named != want {
			t.Errorf("one in %d: %d of 20 are kept, %d named", oneIn, len(s.records), named)
		}
	}
}

// No request waits for the recorder's lock: while somebody has it, a record is dropped.
func TestNothingWaitsForARecord(t *testing.T) {
	n, _ := shelved(Sampling{})
	n.recorder.mu.Lock()
	d := allocation.Decision{Record: &allocation.Record{}}
	kept := n.recorder.keep(&d)
	n.recorder.mu.Unlock()
	if kept || len(n.recorder.pending) != 0 {
		t.Error("it was queued under a lock that was taken")
	}
}

// What the database did not take is kept for later, within a bound; what it may have taken is not told twice.
func TestRecordsWhileTheDatabaseIsAway(t *testing.T) {
	n, s := shelved(Sampling{})
	s.err = errors.New("away")
	n.refuse("acme", allocation.CeilingReached)
	n.writeRecords(t.Context())
	n.refuse("acme", allocation.CeilingReached)
	s.err = nil
	n.writeRecords(t.Context())
	if len(s.records) != 2 || len(s.counts) != 1 || s.counts[0].Requests != 2 {
		t.Errorf("%d records, %+v", len(s.records), s.counts)
	}
	s.err = fmt.Errorf("lost: %w", ErrUnknownOutcome)
	n.refuse("acme", allocation.CeilingReached)
	n.writeRecords(t.Context())
	s.err = nil
	n.writeRecords(t.Context())
	if len(s.records) != 2 || n.fate(recordLost) != 1 {
		t.Errorf("%d records, %d counted as lost", len(s.records), n.fate(recordLost))
	}
	s.err = errors.New("away")
	for range 2 * maxPending {
		n.recorder.refill()
		n.refuse("acme", allocation.CeilingReached)
		n.writeRecords(t.Context())
	}
	if counts := n.recorder.counts.take(); len(n.recorder.pending) > maxPending || len(counts) != 1 || counts[0].Requests != 2*maxPending {
		t.Errorf("%d wait, %+v", len(n.recorder.pending), counts)
	}
}

// Tenants and capabilities are callers' words: a minute tells so many apart, and adds up the others. If this fails whoever
// makes up tenants fills the table.
func TestSeriesAreBounded(t *testing.T) {
	n, s := shelved(Sampling{OneIn: -1})
	for i := range 2 * maxSeries {
		n.refuse(fmt.Sprint("t", i), allocation.CeilingReached)
	}
	n.writeRecords(t.Context())
	total, other := int64(0), int64(0)
	for _, c := range s.counts {
		if total += c.Requests; c.Tenant == otherSeries {
			other = c.Requests
		}
	}
	if len(s.counts) != maxSeries+1 || total != 2*maxSeries || other != maxSeries {
		t.Errorf("%d counts of %d, %d of others", len(s.counts), total, other)
	}
	if !slices.IsSortedFunc(s.counts, RefusedCount.compare) {
		t.Error("two nodes would lock them in two orders")
	}
}

// What was refused at the door is counted too; what nobody vouches for is not kept in full.
func TestRefusalsAtTheDoor(t *testing.T) {
	n, s := shelved(Sampling{})
	for _, reason := range []allocation.Reason{allocation.Overloaded, allocation.KeyUnknown, allocation.ScopeDenied} {
		n.NoteRefusal(allocation.Request{Op: allocation.Spend}, &allocation.Decision{Op: allocation.Spend, Reason: reason, At: 60_000_000})
	}
	n.writeRecords(t.Context())
	if len(s.counts) != 3 || len(s.records) != 2 {
		t.Errorf("%+v, %d records", s.counts, len(s.records))
	}
}

// The recorder ends with its node, writes what it has, looks for tenants and holds the bounds.
func TestRecorderRuns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n, s := shelved(Sampling{Rows: 5, Age: 60})
	n.cfg.Runtime = endsAfter{turns: new(int), most: 3, end: cancel}
	n.refuse("acme", allocation.CeilingReached)
	n.runRecorder(ctx)
	if len(s.records) != 1 || len(s.pruned) != 1 || s.pruned[0] != (RecordBounds{Rows: 5, Age: 60, Count: 125}) || n.recorder.kept.Load() == nil {
		t.Errorf("%d records, pruned %+v", len(s.records), s.pruned)
	}
}

// endsAfter is a runtime that does not wait, and ends what runs after some turns.
type endsAfter struct {
	Real
	turns *int
	most  int
	end   context.CancelFunc
}

func (e endsAfter) Sleep(context.Context, time.Duration) {
	if *e.turns++; *e.turns == e.most {
		e.end()
	}
}

// What was decided on rows that another transaction changed is decided anew, and counted as a conflict.
func TestConflictsAreCounted(t *testing.T) {
	n, _ := shelved(Sampling{})
	ln := &lane{node: n, slot: &slot{}}
	c := &call{doubt: &n.doubt, group: n.newGroup(1)}
	if !c.claim() {
		t.Fatal("not claimed")
	}
	ln.uncommitted(t.Context(), []*call{c}, fmt.Errorf("commit: %w", ErrRaced))
	ln.carry = nil
	c.claim()
	ln.failed(t.Context(), []*call{c}, fmt.Errorf("begin: %w", ErrRaced))
	families, err := n.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, f := range families {
		if f.GetName() == "tranche_reservation_conflicts_total" {
			counted = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != 2 || len(ln.carry) != 1 {
		t.Errorf("%v conflicts, %d to be decided anew", counted, len(ln.carry))
	}
}
