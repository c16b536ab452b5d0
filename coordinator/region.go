package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// Bounds of what is remembered of one region.
const (
	maxMarks = 1000
	maxEnded = 1000
	maxNodes = 100
)

// region is what this replica knows of one region.
//
// Its queue holds the shares whose newest generation the owner has not stated yet: exactly what the next answer has to
// say. It is kept as ledgers and statements come in, so that a call costs what changed, not what there is.
type region struct {
	name        string
	doc         *doc[RegionDocument] // nil: not registered
	tomb        *doc[RegionDocument] // of a region that was removed; nil: it was not
	contact     Contact              // the newest that was heard by any replica
	contactDoc  *doc[Contact]
	shards      map[int]*shard
	formers     map[int]map[string]*former                    // what incarnations that were replaced stated, by shard
	stated      map[allocation.ShareRef]allocation.Generation // the generation of each share that the owner has stored
	queue       *queue
	told        map[allocation.ShareRef]telling // shares of the queue that were sent
	closed      *queue                          // closed terms that the owner may still have
	closedTimes map[allocation.ShareRef]int     // how often it was told of each
	emptied     emptied
	held        waiters               // calls that wait for something new to say
	demand      map[string]seenDemand // by budget: what this replica heard of it
	writing     writing
	promised    []promise     // complete calls whose statements are not written yet, oldest first
	skew        time.Duration // the region's clock less ours, when we last heard of a call
	skewAt      time.Time     // by our clock; zero: we heard of none since we started
	refusals    heardRefusals
	reached     []reached // when documents were seen to be stored, by number
}

// telling is how often a generation of a share was sent.
type telling struct {
	generation allocation.Generation
	times      int
}

// tell notes that a share is sent once more, and returns how often that was.
func (r *region) tell(ref allocation.ShareRef, g allocation.Generation) int {
	t := r.told[ref]
	if t.generation != g {
		t = telling{generation: g}
	}
	t.times++
	r.told[ref] = t
	return t.times
}

// shard is what the owner last stated of one shard of budgets.
type shard struct {
	incarnation string
	number      int64
	under       allocation.History // of etcd, under which it was stated
	at          time.Time
	shares      map[allocation.ShareRef]allocation.ShareStatement
	dropped     bool // a document that was too large left whole shares out, and the owner did not state all since
	doc         *doc[StatementDocument]
	unwritten   time.Time // since when the document is behind; zero: it is not
}

func (s *state) region(name string) *region {
	r := s.regions[name]
	if r == nil {
		r = &region{
			name: name, shards: map[int]*shard{}, formers: map[int]map[string]*former{}, stated: map[allocation.ShareRef]allocation.Generation{},
			queue: newQueue(), told: map[allocation.ShareRef]telling{}, closed: newQueue(), closedTimes: map[allocation.ShareRef]int{},
		}
		s.regions[name] = r
		i, _ := slices.BinarySearchFunc(s.ordered, name, func(o *region, name string) int { return cmp.Compare(o.name, name) })
		s.ordered = slices.Insert(s.ordered, i, r)
	}
	return r
}

// clear forgets what the store says, and not what was heard.
func (r *region) clear() {
	r.doc, r.tomb, r.contactDoc = nil, nil, nil
	r.queue = newQueue()
	for _, sh := range r.shards {
		sh.doc = nil
	}
	for _, list := range r.formers {
		for _, f := range list {
			f.doc = nil
		}
	}
}

// holder is the incarnation that ledgers may grant to: one that its owner is known to have stored.
func (r *region) holder() (allocation.Holder, bool) {
	if r.doc == nil || !r.doc.value.Confirmed {
		return allocation.Holder{}, false
	}
	return allocation.Holder{Region: r.name, Incarnation: r.doc.value.Incarnation}, true
}

// inContact says whether a call has arrived within `within`. Of a contact that lies ahead, because the clock of the
// replica that heard it does, only counts when we learned of it.
func (r *region) inContact(now time.Time, within time.Duration) bool {
	at := r.contact.At
	if at.After(now) {
		at = r.skewAt
	}
	return !at.IsZero() && now.Sub(at) < within
}

// measure compares the region's clock with ours.
func (r *region) measure(theirs, ours time.Time) { r.skew, r.skewAt = theirs.Sub(ours), ours }

// wakeUp answers the calls that are held.
func (r *region) wakeUp() { r.held.wake() }

// want puts a share into the queue if the owner has yet to state its generation. A period that the owner has closed
// interests it no more; what is frozen, or thawed and not settled yet, is not told.
func (r *region) want(s *state, ref allocation.ShareRef, l allocation.Ledger) {
	h, ok := r.holder()
	if ok && l.Settled(s.descent()) && r.stated[ref] != l.Generation && l.Periods.End() > r.contact.ClosedBefore && names(l, h) {
		r.queue.push(ref)
		r.wakeUp()
		return
	}
	r.queue.remove(ref)
	delete(r.told, ref)
}

// names says whether the ledger has an allocation of h.
func names(l allocation.Ledger, h allocation.Holder) bool {
	return slices.ContainsFunc(l.Entries, func(e allocation.Entry) bool {
		return slices.ContainsFunc(e.Allocations, func(a allocation.Allocation) bool { return a.Holder == h })
	})
}

// forget drops a share whose ledger is closed.
func (r *region) forget(ref allocation.ShareRef) {
	if _, stored := r.stated[ref]; stored {
		r.closed.push(ref)
		r.closedTimes[ref] = 0
	}
	r.queue.remove(ref)
	delete(r.told, ref)
	delete(r.stated, ref)
	n := allocation.ShardOf(ref.Budget)
	if sh := r.shards[n]; sh != nil {
		delete(sh.shares, ref)
	}
	for _, f := range r.formers[n] {
		delete(f.shares, ref)
	}
}

func (s *state) enterRegion(e Event) error {
	r := s.region(keyName(e.Key))
	s.feed.touch(topic{'r', r.name})
	before, _ := r.holder()
	known := r.doc != nil
	r.doc, r.tomb = nil, nil
	err := enter(e, func(d *doc[RegionDocument]) {
		if d.value.Removed != nil {
			r.tomb = d
			return
		}
		r.doc = d
	})
	if after, _ := r.holder(); after != before {
		s.lookAll()
	}
	if r.wakeUp(); !known && r.doc != nil {
		s.tellNames()
	}
	return err
}

func (s *state) enterContact(e Event) error {
	r := s.region(keyName(e.Key))
	r.contactDoc = nil
	return enter(e, func(d *doc[Contact]) {
		r.contactDoc = d
		if !s.resetting && d.value.newerThan(r.contact) {
			// Another replica heard it a moment ago.
			r.measure(d.value.At.Add(time.Duration(d.value.SkewMicros)*time.Microsecond), s.now())
		}
		r.contact = mergeContacts(r.contact, d.value)
		s.noteReached(r)
	})
}

func (s *state) enterStatement(e Event) error {
	name, _, _ := strings.Cut(keyName(e.Key), "/")
	r := s.region(name)
	return enter(e, func(d *doc[StatementDocument]) {
		sh := r.shards[d.value.Shard]
		if sh == nil {
			sh = &shard{}
			r.shards[d.value.Shard] = sh
		}
		sh.doc = d
		shares := d.value.Shares
		d.value.Shares = nil // they are kept by share
		defer r.keepPromises()
		if sh.incarnation != "" && r.doc != nil && r.doc.value.Incarnation != d.value.Incarnation {
			s.keepFormer(r, d.value.Shard, d.value.shard(shares))
			return
		}
		// What another replica was told: the highest number wins whole.
		if sh.incarnation == d.value.Incarnation && d.value.Number <= sh.number {
			return
		}
		if sh.incarnation != d.value.Incarnation {
			s.keepFormer(r, d.value.Shard, sh)
		}
		sh.incarnation, sh.number, sh.under, sh.at, sh.unwritten = d.value.Incarnation, d.value.Number, d.value.History, d.value.At, time.Time{}
		if sh.dropped = false; d.value.Trimmed {
			sh.forgetUsage(shares, d.value.LeftOut)
		}
		s.setShares(r, sh, shares, !d.value.Trimmed)
	})
}

// forgetUsage notes what a document that was too large leaves out: the usage of some shares, or whole ones, of which what is known
// is older than the document. A program that did not say so of a share left out the usage of any that has none.
func (sh *shard) forgetUsage(shown []allocation.ShareStatement, leftOut bool) {
	there, said := map[allocation.ShareRef]bool{}, leftOut
	for _, st := range shown {
		there[allocation.ShareRef{Budget: st.Budget, Term: st.Term}] = true
		said = said || st.Partial
	}
	for i := range shown {
		shown[i].Partial = shown[i].Partial || !said && len(shown[i].Usage) == 0
	}
	if sh.dropped = leftOut || !said; !sh.dropped {
		return
	}
	for ref, st := range sh.shares {
		if !there[ref] {
			st.Usage, st.Partial = nil, true
			sh.shares[ref] = st
		}
	}
}

// of is what is known of a share.
func (sh *shard) of(ref allocation.ShareRef) allocation.ShareStatement {
	st, known := sh.shares[ref]
	st.Partial = st.Partial || !known && sh.dropped
	return st
}

// setShares enters the accounts of a newer statement; whole says that it holds all shares of its shard.
func (s *state) setShares(r *region, sh *shard, shares []allocation.ShareStatement, whole bool) {
	old := sh.shares
	if whole || sh.shares == nil {
		sh.shares = map[allocation.ShareRef]allocation.ShareStatement{}
	}
	for _, st := range shares {
		ref := allocation.ShareRef{Budget: st.Budget, Term: st.Term}
		s.feed.touch(topic{'b', st.Budget})
		if s.isClosed(ref) {
			// Its record has it: see enterLate. Kept here it would stay for ever, since no ledger of it is ever dropped again.
			delete(sh.shares, ref)
			delete(r.stated, ref)
			continue
		}
		if old != nil && !s.resetting { // else there is nothing to compare it with
			s.rates.add(r.name, st.Budget, spentMore(old[ref], st), s.now())
		}
		l := s.ledgers[ref]
		if l != nil {
			st = compactStatement(st, l.value)
			ref.Budget = st.Budget
		}
		sh.shares[ref] = st
		r.stated[ref] = st.Generation
		if l != nil {
			r.want(s, ref, l.value)
		}
	}
	if !whole {
		return
	}
	for _, ref := range sortedRefs(old, sh.shares) {
		// The owner does not have this share: it must be sent again.
		delete(r.stated, ref)
		if l := s.ledgers[ref]; l != nil {
			r.want(s, ref, l.value)
		}
	}
}

// newerThan says which of two contacts is of the later call. A call that is heard comes after all that this replica knew
// of then; the clocks of two replicas only decide between calls that neither had heard of from the other.
func (c Contact) newerThan(o Contact) bool {
	return c.Heard > o.Heard || c.Heard == o.Heard && c.At.After(o.At)
}

// mergeContacts joins what two replicas know of a region: the later call's word, the highest of what only rises, and of
// each writer the newest mark, unless it has ended.
func mergeContacts(a, b Contact) Contact {
	if b.newerThan(a) {
		a, b = b, a
	}
	if b.Incarnation != a.Incarnation {
		return a
	}
	a.ClosedBefore = max(a.ClosedBefore, b.ClosedBefore)
	a.state(b.StatedUnder, b.StatedThrough)
	a.Ended = lastOf(maxEnded, mergeNames(b.Ended, a.Ended))
	a.Marks = mergeMarks(a.Marks, b.Marks, a.Ended)
	a.Nodes = mergeNodes(a.Nodes, b.Nodes)
	return a
}

func mergeNames(a, b []string) []string {
	out := slices.Clone(a)
	for _, n := range b {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func lastOf[T any](n int, list []T) []T { return list[max(0, len(list)-n):] }

// mergeMarks keeps of each writer the mark with the highest count. A writer that has ended is never remembered again: a
// call that was delayed since before its end may still name it.
func mergeMarks(a, b []allocation.Mark, ended []string) []allocation.Mark {
	newest := map[string]allocation.Mark{}
	for _, m := range slices.Concat(a, b) {
		if have, ok := newest[m.Writer]; !ok || m.Count > have.Count {
			newest[m.Writer] = m
		}
	}
	for _, n := range ended {
		delete(newest, n)
	}
	out := make([]allocation.Mark, 0, len(newest))
	for _, m := range newest {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b allocation.Mark) int { return strings.Compare(a.Writer, b.Writer) })
	return out
}

// mergeNodes keeps the latest sight of each node, and of the nodes the latest maxNodes.
func mergeNodes(a, b []NodeSeen) []NodeSeen {
	newest := map[string]NodeSeen{}
	for _, n := range slices.Concat(a, b) {
		if have, ok := newest[n.Node]; !ok || n.At.After(have.At) {
			newest[n.Node] = n
		}
	}
	out := make([]NodeSeen, 0, len(newest))
	for _, n := range newest {
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b NodeSeen) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Node, b.Node)) })
	out = out[:min(maxNodes, len(out))]
	slices.SortFunc(out, func(a, b NodeSeen) int { return cmp.Compare(a.Node, b.Node) })
	return out
}
