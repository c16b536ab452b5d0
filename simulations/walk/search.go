package walk

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"tranche/allocation"
)

// Result is what a walk found.
type Result struct {
	Config    string
	Off       []string
	States    int  // different ones
	Steps     int  // transitions that were made
	Depth     int  // of the deepest state
	Complete  bool // every interleaving within the bounds was walked
	Violation string
	Trace     []string // the shortest way to it, in words
	Took      time.Duration
}

// String is one line, and a line per step of the trace.
func (r Result) String() string {
	s := fmt.Sprintf("%-34s %9d states %10d steps  depth %2d  %6.1fs", r.Config, r.States, r.Steps, r.Depth, r.Took.Seconds())
	if len(r.Off) > 0 {
		s += "  without: " + strings.Join(r.Off, ", ")
	}
	switch {
	case r.Violation != "":
		s += "\n  VIOLATED after " + fmt.Sprint(len(r.Trace)) + " steps: " + r.Violation
		for i, t := range r.Trace {
			s += fmt.Sprintf("\n  %2d  %s", i+1, t)
		}
	case !r.Complete:
		s += "  not complete"
	}
	return s
}

// Progress is called now and then with what was walked so far; false ends the walk.
type Progress func(states, frontier, depth int) (goOn bool)

// hashed names a world. Of ten million worlds two are taken for one with a chance of three in a million, and then a part
// of the walk is missed; the seed is another in every process.
type hashed uint64

var seed = maphash.MakeSeed()

func hashOf(w *world) hashed { return hashed(maphash.Comparable(seed, *w)) }

// visit says how a world was first reached.
type visit struct {
	parent int32
	step   uint16
}

// Walk goes through every world that can be reached, breadth first, so that the first violation has a shortest trace.
func Walk(c Config, progress Progress) Result {
	began := time.Now()
	m := newMachine(c)
	all := m.steps()
	s := search{m: m, all: all, seen: map[hashed]struct{}{}}
	r := s.run(progress)
	r.Config, r.Off, r.Took = c.Name, names(c.Off), time.Since(began)
	return r
}

type search struct {
	m      *machine
	all    []step
	seen   map[hashed]struct{}
	visits []visit
}

func (s *search) run(progress Progress) Result {
	start := s.m.start()
	s.seen[hashOf(&start)] = struct{}{}
	s.visits = append(s.visits, visit{parent: -1})
	r := Result{}
	frontier, base := []world{start}, 0
	for len(frontier) > 0 {
		var next []world
		first := len(s.visits)
		for i := range frontier {
			for k := range s.all {
				w := frontier[i]
				if !s.all[k].do(s.m, &w) || w == frontier[i] {
					continue
				}
				r.Steps++
				h := hashOf(&w)
				if _, have := s.seen[h]; have {
					continue
				}
				s.seen[h] = struct{}{}
				s.visits = append(s.visits, visit{int32(base + i), uint16(k)})
				if bad := s.m.check(&frontier[i], &w); bad != "" {
					r.Violation, r.Trace = bad, s.trace(len(s.visits)-1)
					r.States, r.Depth = len(s.visits), r.Depth+1
					return r
				}
				next = append(next, w)
			}
			if i%1024 == 0 && progress != nil && !progress(len(s.visits), len(frontier)-i, r.Depth) ||
				s.m.MaxStates > 0 && len(s.visits) > s.m.MaxStates {
				r.States = len(s.visits)
				return r
			}
		}
		if len(next) > 0 {
			r.Depth++
		}
		frontier, base = next, first
	}
	r.States, r.Complete = len(s.visits), true
	return r
}

// trace tells the way to a state, in words.
func (s *search) trace(at int) []string {
	var out []string
	for v := s.visits[at]; v.parent >= 0; v = s.visits[v.parent] {
		out = append([]string{s.all[v.step].words()}, out...)
	}
	return out
}

// check looks at one transition: the cap, conservation in the ledgers and joined with the owners, and what only rises. It
// returns what is wrong, in words.
func (m *machine) check(before, w *world) string {
	for t, tr := range w.truth {
		if tr.spent >= 200 {
			return fmt.Sprintf("sealed is sealed (9): a permit of period %d was spent or reserved after the seal", t)
		}
		if n := tr.used(); n > m.Limit {
			return fmt.Sprintf("the cap (2): %d of %d permits of period %d were spent or are reserved", n, m.Limit, t)
		}
	}
	for t, l := range w.etcd.ledgers {
		if l == nil || l == before.etcd.ledgers[t] {
			continue
		}
		bad := remember(m, [2]any{"conserved", l}, func() string {
			if err := l.Conserved(); err != nil {
				return "conservation (1): " + err.Error()
			}
			return ""
		})
		if bad != "" {
			return bad
		}
		if b := before.etcd.ledgers[t]; b != nil && before.etcd.line == w.etcd.line && l.Generation.Number < b.Generation.Number {
			return fmt.Sprintf("generations only rise (8): the ledger went from %s to %s", b.Generation, l.Generation)
		}
	}
	for d := range w.dbs {
		if bad := m.checkOwner(before, w, d); bad != "" {
			return bad
		}
	}
	return ""
}

func (m *machine) checkOwner(before, w *world, d int) string {
	was, db := before.dbs[d], w.dbs[d]
	for t, s := range db.shares {
		if s == nil || s == was.shares[t] && db.usage[t] == was.usage[t] {
			continue
		}
		if b := was.shares[t]; b != nil && was.line == db.line && was.incarnation == db.incarnation {
			if s.Generation.Number < b.Generation.Number {
				return fmt.Sprintf("generations only rise (8): %s went from %s to %s", databaseName(d), b.Generation, s.Generation)
			}
			if b.Sealed && !s.Sealed {
				return "sealed is sealed (9): the share is open again"
			}
		}
		if u := db.usage[t]; u != nil && u.Overflowed() {
			return fmt.Sprintf("the share (2): %s has %d − %d, and %d spent, %d reserved", databaseName(d), u.Granted, u.Returned, u.Spent, u.Reserved)
		}
		if w.etcd.line == 0 && db.line == 0 && d != copied { // nothing ever went back: the two sides can be joined
			if bad := joined(w, d, t, s); bad != "" {
				return bad
			}
		}
	}
	return ""
}

// joined is conservation over both sides: an owner holds nothing that the ledger did not grant, and the ledger counts no
// return that the owner did not make.
func joined(w *world, d, t int, s *allocation.Share) string {
	if w.etcd.ledgers[t] == nil || len(s.Entries) == 0 {
		return ""
	}
	e := s.Entries[0]
	granted, returned := e.Granted, e.Returned
	if u := w.dbs[d].usage[t]; u != nil {
		granted, returned = u.Granted, u.Returned
	}
	h := allocation.Holder{Region: regionName(d), Incarnation: incarnation(d, w.dbs[d].incarnation)}
	for _, a := range w.etcd.ledgers[t].EntryAt(0).Allocations {
		if a.Holder == h && (granted > a.Granted || returned < a.Returned && !s.Sealed) {
			return fmt.Sprintf("conservation (1): %s holds %d − %d, the ledger has %d − %d", databaseName(d), granted, returned, a.Granted, a.Returned)
		}
	}
	return ""
}
