package walk

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
)

// machine makes the transitions of one walk. Each call of allocation is remembered by its arguments: it is pure, and a
// walk makes the same one thousands of times.
type machine struct {
	Config
	budget allocation.Budget
	memo   map[any]any

	ledgers    pool[allocation.Ledger]
	shares     pool[allocation.Share]
	usage      pool[allocation.Usage]
	statements pool[allocation.ShareStatement]
	grants     pool[allocation.ShareGrant]
	standings  pool[allocation.Standing]
	residences pool[allocation.Residence]
	seals      pool[allocation.Seal]
}

// pool keeps one pointer per value.
type pool[T any] map[string]*T

func (p pool[T]) keep(v T) *T {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("write a value of the walk: %v", err))
	}
	if have := p[string(text)]; have != nil {
		return have
	}
	p[string(text)] = &v
	return &v
}

func newMachine(c Config) *machine {
	limit := c.Limit
	weights := map[string]int64{"a": 1, "b": 1}
	if c.Demand {
		weights = map[string]int64{"nobody": 1}
	}
	return &machine{
		Config: c, memo: map[any]any{},
		budget: allocation.Budget{
			Name: budgetName, Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute},
			Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: weights},
		},
		ledgers: pool[allocation.Ledger]{}, shares: pool[allocation.Share]{}, usage: pool[allocation.Usage]{},
		statements: pool[allocation.ShareStatement]{}, grants: pool[allocation.ShareGrant]{},
		standings: pool[allocation.Standing]{}, residences: pool[allocation.Residence]{}, seals: pool[allocation.Seal]{},
	}
}

// remember calls f once per key.
func remember[V any](m *machine, key any, f func() V) V {
	if v, ok := m.memo[key]; ok {
		return v.(V)
	}
	v := f()
	m.memo[key] = v
	return v
}

func periodsOf(t int) allocation.Periods {
	return allocation.Periods{First: firstMinute + allocation.Instant(t)*60, Step: 60, Count: 1}
}

func usageKey(t int) allocation.UsageKey {
	return allocation.UsageKey{Budget: budgetName, Period: periodsOf(t).Start(), Class: allocation.General}
}

// through is how far terms may have been opened in a line that was lost.
func (m *machine) through() allocation.Instant {
	if m.off(AllTermsFrozen) {
		return periodsOf(0).End()
	}
	return allocation.FurthestOpened(firstMinute)
}

func (m *machine) generation(l allocation.Ledger, line uint8) allocation.Generation {
	return allocation.Generation{Number: l.Generation.Number + 1, Stamp: stamp(line)}
}

func stamp(line uint8) string { return fmt.Sprint("e", line) }

// start is the world before anything happened: the regions have their first incarnations, have stored them, and hold
// nothing; the first term is opened.
func (m *machine) start() world {
	w := world{memory: 1, histories: 1, writersMade: 1}
	w.etcd = store{
		mark: 1, members: 1, registered: 1,
		standing: m.standings.keep(allocation.Standing{History: history{1, 1}.real()}),
	}
	if !m.Join {
		w.etcd.registered = 3
	}
	for r := range regions {
		w.incarnations[r] = 1
		res := allocation.Residence{}
		if w.etcd.registered&(1<<r) != 0 {
			res = allocation.Residence{Incarnation: incarnation(r, 1), Home: homeOf(uint8(r)), Confirmed: true}
		}
		w.writersMade++
		first := mark{w.writersMade, 1, 0}
		w.etcd.regions[r] = record{residence: m.residences.keep(res), known: w.etcd.registered}
		w.dbs[r] = database{on: true, home: uint8(r), incarnation: 1, history: history{1, 1}, known: w.etcd.registered}
		w.dbs[r].marks[0] = first
		w.nodes[r] = node{on: true, writer: first.writer, left: first, vouched: true}
	}
	if m.SecondNode {
		w.writersMade++
		other := mark{w.writersMade, 1, 0}
		w.dbs[0].marks[1] = other
		w.nodes[second] = node{on: true, writer: other.writer, left: other, vouched: true}
	}
	w.etcd.regions[0].marks = w.dbs[0].marks
	w.etcd.regions[1].marks = w.dbs[1].marks
	m.openTerm(&w, 0)
	return w
}

// members are the regions as ledgers see them.
func (m *machine) members(w *world) allocation.Members {
	out := allocation.Members{Number: int64(w.etcd.members)}
	for r := range regions {
		if w.etcd.registered&(1<<r) == 0 {
			continue
		}
		out.Regions = append(out.Regions, regionName(r))
		res := w.etcd.regions[r].residence
		if res.Confirmed && (m.off(AnnouncedBeforeGrant) || m.announced(w, r)) {
			out.Holders = append(out.Holders, allocation.Holder{Region: regionName(r), Incarnation: res.Incarnation})
		}
	}
	return out
}

// announced says whether another region that has an incarnation has said that it knows of r: it can then tell an etcd that
// went back to before r was registered. The first one needs nobody.
func (m *machine) announced(w *world, r int) bool {
	earlier := false
	for o := range regions {
		if o == r || w.etcd.registered&(1<<o) == 0 || !w.etcd.regions[o].residence.Confirmed {
			continue
		}
		if w.etcd.regions[o].known&(1<<r) != 0 {
			return true
		}
		earlier = true
	}
	return !earlier
}

// weighed is the budget with other weights.
func (m *machine) weighed(p allocation.Policy) allocation.Budget {
	b := m.budget
	b.Allocation = p
	return b
}

func (m *machine) openTerm(w *world, t int) bool { return m.openFor(w, t, "") }

// openFor opens a term by the budget's weights, or all for one region.
func (m *machine) openFor(w *world, t int, to string) bool {
	budget := m.budget
	if to != "" {
		budget.Allocation.Weights = map[string]int64{to: 1}
	}
	standing, members := *w.etcd.standing, m.members(w)
	frozen := standing.Frozen(periodsOf(t).Start())
	if frozen && !m.off(NoOpenWhileFrozen) {
		return false
	}
	if frozen {
		standing.Freeze = nil
	}
	key := [7]any{"open", to, w.etcd.standing, t, w.etcd.line, text(members), frozen}
	w.etcd.ledgers[t] = remember(m, key, func() *allocation.Ledger {
		gen := allocation.Generation{Number: 1, Stamp: stamp(w.etcd.line)}
		l, err := allocation.OpenUnproven(budget, 1, periodsOf(t), members, standing, gen)
		if err != nil {
			panic(err)
		}
		return m.ledgers.keep(l)
	})
	return true
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// names lists the rules of a set.
func names(set map[Rule]bool) []string {
	var out []string
	for _, r := range slices.Sorted(maps.Keys(set)) {
		out = append(out, string(r))
	}
	return out
}
