package coordinator_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
	"tranche/coordinator"
)

// fakeRegion is an owner in memory: it stores shares and accounts as allocation has them, and states what changed.
type fakeRegion struct {
	w           *world
	name, token string
	deployment  string
	incarnation string
	home        allocation.Home
	marks       []allocation.Mark
	ended       []string
	past        []allocation.Mark // of those whose end was acknowledged
	shares      map[allocation.ShareRef]allocation.Share
	used        map[allocation.ShareRef]map[allocation.UsageKey]allocation.Usage
	changed     map[allocation.ShareRef]int64 // the statement that said it last; 0: none has
	numbers     map[int]int64
	acked       map[int]int64
	config      int64
	budgets     map[string]allocation.ConfiguredBudget
	closed      allocation.Instant
	low         []string
	history     allocation.History
	frozen      bool     // the last answer asks for all that is held
	lost        bool     // it asks for a new incarnation
	former      []string // what it was before it started over
	regions     []string // that were ever named
	last        allocation.SyncAnswer

	documents map[allocation.DocumentRef]fakeDocument
	through   int64 // documents are stored
}

// fakeDocument is a document, and the history under which it was told.
type fakeDocument struct {
	allocation.Document
	told int64
}

// untold are the documents that the coordinator has not told under the region's history.
func (f *fakeRegion) untold() (list []allocation.Document) {
	for _, d := range f.documents {
		if d.told < f.history.Number && len(list) < allocation.MaxDocumentsPerCall {
			list = append(list, d.Document)
		}
	}
	return list
}

func (f *fakeRegion) learn(a allocation.SyncAnswer) {
	for _, d := range a.Documents {
		had, ok := f.documents[d.Ref()]
		if !ok || d.Replaces(had.Document) {
			had.Document = d
		}
		f.documents[d.Ref()] = fakeDocument{had.Document, a.History.Number}
	}
	f.through = max(f.through, a.DocumentsThrough)
}

// addRegion registers a region. It has not called yet.
func (w *world) addRegion(name string) *fakeRegion {
	w.t.Helper()
	answer := w.must(w.replicas[0], 201, "POST", "/v1/regions", map[string]string{"region": name})
	status := get[coordinator.Status](w, w.replicas[0], "/v1/status")
	return &fakeRegion{
		w: w, name: name, token: answer["token"].(string), deployment: status.Deployment,
		home:   allocation.Home{System: "7" + name, Database: 5, Timeline: 1},
		marks:  []allocation.Mark{{Writer: name + "-node", Count: 1, Value: "a1"}},
		shares: map[allocation.ShareRef]allocation.Share{}, used: map[allocation.ShareRef]map[allocation.UsageKey]allocation.Usage{},
		changed: map[allocation.ShareRef]int64{}, numbers: map[int]int64{}, acked: map[int]int64{}, budgets: map[string]allocation.ConfiguredBudget{},
		documents: map[allocation.DocumentRef]fakeDocument{},
	}
}

// join makes the first two calls: one gives an incarnation, the next confirms it.
func (f *fakeRegion) join(r *replica) {
	f.w.t.Helper()
	f.sync(r)
	f.sync(r)
	f.w.settle(r)
}

// call states what changed since what was acknowledged. It leaves a new mark and new numbers, as a transaction does.
func (f *fakeRegion) call() allocation.SyncCall {
	f.marks[0].Count++
	f.marks[0].Value = fmt.Sprintf("a%d", f.marks[0].Count)
	c := allocation.SyncCall{
		Format: allocation.SyncFormat, Deployment: f.deployment, Region: f.name, Node: f.name + "-node", Version: "test",
		Incarnation: f.incarnation, Home: f.home, Clock: f.w.clock.now().UnixMicro(), ClosedBefore: f.closed, CompleteThrough: f.closed, Config: f.config,
		Marks: slices.Clone(f.marks), Ended: f.ended, Low: f.low, History: f.history, Lost: f.lost, All: f.frozen && !f.lost, Regions: f.regions,
	}
	if f.lost {
		return c // what a database says that lost its history counts for nothing
	}
	c.Documents, c.DocumentsThrough = f.untold(), f.through
	c.All = c.All && len(c.Documents) == 0
	shards := map[int][]allocation.ShareStatement{}
	for ref, share := range f.shares {
		shard := allocation.ShardOf(ref.Budget)
		if said := f.changed[ref]; !f.frozen && said > 0 && said <= f.acked[shard] {
			continue
		}
		used := slices.SortedFunc(maps.Values(f.used[ref]), func(a, b allocation.Usage) int { return cmp.Compare(a.Period, b.Period) })
		st := share.Statement(used, nil)
		if f.frozen {
			st.Held = &share
		}
		shards[shard] = append(shards[shard], st)
	}
	for shard, list := range shards {
		f.numbers[shard]++
		for _, st := range list {
			f.changed[allocation.ShareRef{Budget: st.Budget, Term: st.Term}] = f.numbers[shard]
		}
		c.Statements = append(c.Statements, allocation.Statement{Shard: shard, Number: f.numbers[shard], Base: f.acked[shard], Shares: list})
	}
	return c
}

// apply stores an answer, in any order and as often as it comes.
func (f *fakeRegion) apply(a allocation.SyncAnswer) {
	f.w.t.Helper()
	f.last = a
	if slices.Contains(f.former, a.Incarnation) {
		return // whoever says so has not heard that it started over
	}
	stored, take := f.history.Heed(a.History)
	blank := f.history == (allocation.History{})
	if stored != f.history {
		f.history, f.config, f.through = stored, 0, 0
		for name, b := range f.budgets {
			b.Number = 0
			f.budgets[name] = b
		}
	}
	if a.History == stored {
		f.frozen = a.Frozen
	}
	if !take && !blank {
		return
	}
	f.regions = slices.DeleteFunc(mergeRegions(f.regions, a.Regions), func(n string) bool { return slices.Contains(a.Removed, n) })
	if a.Refusal != "" {
		missing := slices.ContainsFunc(a.Contradicted, func(m allocation.Mark) bool {
			if slices.ContainsFunc(f.past, m.Holds) { // etcd lost that it ended
				f.ended = append(f.ended, m.Writer)
				return false
			}
			return !slices.ContainsFunc(f.marks, m.Holds)
		})
		f.lost = f.lost || missing || len(a.Contradicted) == 0 && a.Incarnation != f.incarnation
		return
	}
	if f.lost && a.Incarnation != f.incarnation {
		f.startOver()
	}
	if f.incarnation != "" && a.Incarnation != f.incarnation {
		return
	}
	f.incarnation = a.Incarnation
	for _, b := range a.Budgets {
		if had := f.budgets[b.Budget.Name]; cmp.Or(cmp.Compare(b.Version, had.Version), cmp.Compare(b.Number, had.Number)) > 0 {
			f.budgets[b.Budget.Name] = b
		}
	}
	f.config = max(f.config, a.Config)
	f.learn(a)
	for _, k := range a.Acknowledged {
		if k.Whole {
			f.acked[k.Shard] = 0
			for ref := range f.changed {
				if allocation.ShardOf(ref.Budget) == k.Shard {
					f.changed[ref] = 0
				}
			}
			continue
		}
		f.acked[k.Shard] = max(f.acked[k.Shard], min(k.Number, f.numbers[k.Shard]))
	}
	for _, g := range a.Shares {
		f.store(g)
	}
	for _, ref := range a.Closed {
		delete(f.shares, ref)
		delete(f.used, ref)
		delete(f.changed, ref)
	}
}

// startOver makes it a new incarnation, with nothing: the next answer names it.
func (f *fakeRegion) startOver() {
	f.former = append(f.former, f.incarnation)
	f.lost, f.incarnation = false, ""
	f.marks = []allocation.Mark{{Writer: fmt.Sprintf("%s-node-%d", f.name, f.w.clock.now().UnixNano()), Count: 1, Value: "b1"}}
	f.shares, f.used = map[allocation.ShareRef]allocation.Share{}, map[allocation.ShareRef]map[allocation.UsageKey]allocation.Usage{}
	f.changed, f.numbers, f.acked = map[allocation.ShareRef]int64{}, map[int]int64{}, map[int]int64{}
}

func mergeRegions(a, b []string) []string {
	for _, n := range b {
		if !slices.Contains(a, n) {
			a = append(slices.Clone(a), n)
		}
	}
	return a
}

func (f *fakeRegion) store(g allocation.ShareGrant) {
	f.w.t.Helper()
	ref := allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}
	share, changed, err := f.shares[ref].Apply(g)
	if err != nil {
		f.w.t.Errorf("%s cannot store a grant: %v", f.name, err)
	}
	if !changed {
		return
	}
	f.shares[ref], f.changed[ref] = share, 0
	for key, u := range f.used[ref] {
		f.used[ref][key] = u.Take(share)
	}
}

// sync is one call and its answer.
func (f *fakeRegion) sync(r *replica) allocation.SyncAnswer {
	f.w.t.Helper()
	a, err := r.Sync(f.w.t.Context(), f.call())
	if err != nil {
		f.w.t.Fatalf("%s cannot sync: %v", f.name, err)
	}
	f.apply(a)
	return a
}

// untilQuiet syncs until the coordinator has nothing more to say.
func (f *fakeRegion) untilQuiet(r *replica) {
	f.w.t.Helper()
	for range 50 {
		if a := f.sync(r); len(a.Shares)+len(a.Budgets)+len(a.Documents) == 0 && !a.More && !slices.ContainsFunc(a.Acknowledged, func(k allocation.ShardAck) bool { return k.Whole }) {
			return
		}
	}
	f.w.t.Fatalf("%s is never told everything", f.name)
}

// spend spends n permits of the running period, or as many as there are, and returns how many it were.
func (f *fakeRegion) spend(budget string, n int64) int64 {
	f.w.t.Helper()
	now := allocation.At(f.w.clock.now())
	for ref, share := range f.shares {
		i, running := share.Periods.Find(now)
		if ref.Budget != budget || !running {
			continue
		}
		key := allocation.UsageKey{Budget: budget, Period: share.Periods.At(i).Start, Class: allocation.General}
		if f.used[ref] == nil {
			f.used[ref] = map[allocation.UsageKey]allocation.Usage{}
		}
		u, have := f.used[ref][key]
		if !have {
			if u, have = share.Usage(key); !have {
				return 0
			}
		}
		limit := int64(0)
		if b := f.budgets[budget]; !b.Deleted {
			limit = b.Budget.LimitOrZero()
		}
		n = min(n, u.Spendable(limit))
		u.Spent += n
		f.used[ref][key], f.changed[ref] = u, 0
		return n
	}
	return 0
}
