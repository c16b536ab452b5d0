package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// What an incarnation last stated outlives it: its successor's statements take the place of its own, and a record that knew
// nothing of them would say for good that nothing is known of what was spent.
//
//	statements/REGION/SHARD   before the successor's is written ──▶ formers/REGION/SHARD/INCARNATION ──the terms close──▶ Closing
//	a refused call, a seal    what it states beyond that        ──▶
//
// So every replica reads of a former incarnation what any of them was told. Only what is spent, reserved and overdrawn is kept,
// and of terms that are not closed: returns are counted when they are stated, or never (invariant 8).
const formerPrefix = Root + "formers/"

func formerKey(region string, n int, incarnation string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(statementKey(region, n), Root), "/")
	return formerPrefix + name + "/" + incarnation
}

// former is what one incarnation that was replaced last stated of one shard. Its number counts what it was raised by; the
// document is behind while it has a lower one.
type former struct {
	shard
	wrote time.Time // when this replica wrote the document last
}

// formerOf is what is kept of an incarnation and shard; nil: nothing is.
func (r *region) formerOf(n int, incarnation string) *former { return r.formers[n][incarnation] }

// makeFormer is formerOf, made where there is none.
func (r *region) makeFormer(n int, incarnation string) *former {
	f := r.formers[n][incarnation]
	if f == nil {
		f = &former{shard: shard{incarnation: incarnation, shares: map[allocation.ShareRef]allocation.ShareStatement{}}}
		if r.formers[n] == nil {
			r.formers[n] = map[string]*former{}
		}
		r.formers[n][incarnation] = f
	}
	return f
}

// raise takes in what an incarnation stated of a share; it never takes back what is known.
func (sh *shard) raise(ref allocation.ShareRef, st allocation.ShareStatement) {
	st.Returned, st.Held = nil, nil
	before, known := sh.shares[ref]
	if next, more := raisedBy(before, st); known && more {
		sh.shares[ref], sh.number = next, sh.number+1
	} else if !known {
		sh.shares[ref], sh.number = st, sh.number+1
	}
}

// keepFormer remembers what an incarnation last stated of a shard, before its successor's statements take their place.
func (s *state) keepFormer(r *region, n int, sh *shard) {
	if sh.incarnation == "" || len(sh.shares) == 0 && !sh.dropped {
		return
	}
	f := r.makeFormer(n, sh.incarnation)
	for ref, st := range sh.shares {
		if s.ledgers[ref] != nil { // so it is bounded by what is open
			f.raise(ref, st)
		}
	}
	if f.dropped = f.dropped || sh.dropped; sh.under.Number >= f.under.Number {
		f.under, f.at = sh.under, sh.at
	}
}

// shard is what the document of another incarnation than the present one says.
func (d StatementDocument) shard(shares []allocation.ShareStatement) *shard {
	sh := &shard{incarnation: d.Incarnation, under: d.History, at: d.At, shares: map[allocation.ShareRef]allocation.ShareStatement{}}
	if d.Trimmed {
		sh.forgetUsage(shares, d.LeftOut)
	}
	for _, st := range shares {
		sh.shares[allocation.ShareRef{Budget: st.Budget, Term: st.Term}] = st
	}
	return sh
}

// formerStatement is what a former incarnation last stated of a share.
func (s *state) formerStatement(h allocation.Holder, ref allocation.ShareRef) allocation.ShareStatement {
	r := s.regions[h.Region]
	if r == nil {
		return allocation.ShareStatement{}
	}
	f := r.formerOf(allocation.ShardOf(ref.Budget), h.Incarnation)
	if f == nil {
		return allocation.ShareStatement{}
	}
	return f.of(ref)
}

// formerItems are the documents of the former incarnations that a ledger names, on which its closing rests: another replica may
// have heard more a moment ago.
func (s *state) formerItems(l allocation.Ledger) (items []Item) {
	n := allocation.ShardOf(l.Budget)
	for _, h := range holders(l) {
		if r := s.regions[h.Region]; r != nil && s.isFormer(h) {
			var d *doc[StatementDocument]
			if f := r.formerOf(n, h.Incarnation); f != nil {
				d = f.doc
			}
			items = append(items, d.known(formerKey(h.Region, n, h.Incarnation)))
		}
	}
	return items
}

// enterFormerDocument joins what another replica was told, or this one before it was started again, with what is known.
func (s *state) enterFormerDocument(e Event) error {
	if e.Deleted {
		return s.dropFormer(e.Key)
	}
	return enter(e, func(d *doc[StatementDocument]) {
		r, shown := s.region(d.value.Region), d.value.Shares
		d.value.Shares = nil // they are kept by share
		fresh := r.formerOf(d.value.Shard, d.value.Incarnation) == nil
		f := r.makeFormer(d.value.Shard, d.value.Incarnation)
		if f.doc = d; fresh {
			f.at, f.dropped = d.value.At, d.value.LeftOut
		}
		if d.value.History.Number > f.under.Number {
			f.under = d.value.History
		}
		known, behind := maps.Clone(f.shares), false
		for _, st := range shown {
			ref := allocation.ShareRef{Budget: st.Budget, Term: st.Term}
			if !s.resetting && s.ledgers[ref] == nil {
				continue
			}
			s.feed.touch(topic{'b', st.Budget})
			_, more := raisedBy(st, known[ref])
			behind = behind || more && !st.Partial
			f.raise(ref, st)
			delete(known, ref)
		}
		behind = behind || len(known) > 0 && !d.value.LeftOut
		if f.number = d.value.Number; behind {
			f.number++
		}
	})
}

// dropFormer forgets what was kept: all of its terms are closed. If they are not, etcd went back, and what is known goes there
// again.
func (s *state) dropFormer(key string) error {
	for _, r := range s.ordered {
		for n, list := range r.formers {
			for incarnation, f := range list {
				if formerKey(r.name, n, incarnation) != key {
					continue
				}
				if f.doc = nil; !s.formerNeeded(n, r.name, f) {
					delete(list, incarnation)
				}
				return nil
			}
		}
	}
	return nil
}

// formerNeeded says whether a term is open of which the incarnation stated something, or may have: what was too large for a
// document left something out.
func (s *state) formerNeeded(n int, region string, f *former) bool {
	for ref := range f.shares {
		if s.ledgers[ref] != nil {
			return true
		}
	}
	h := allocation.Holder{Region: region, Incarnation: f.incarnation}
	for ref := range s.left {
		if f.dropped && allocation.ShardOf(ref.Budget) == n && slices.Contains(holders(s.ledgers[ref].value), h) {
			return true
		}
	}
	return false
}

// dueFormers takes the documents to be written of what former incarnations stated, while there is room for more.
func (s *state) dueFormers(r *region, now time.Time, take func(item, known Item) (more bool)) {
	for _, n := range slices.Sorted(maps.Keys(r.formers)) {
		for _, incarnation := range slices.Sorted(maps.Keys(r.formers[n])) {
			f := r.formers[n][incarnation]
			if f.written() || !writable(f.wrote, now) || !s.formerNeeded(n, r.name, f) {
				continue
			}
			f.wrote = now
			key := formerKey(r.name, n, incarnation)
			if !take(Item{Key: key, Value: statementValue(r.name, n, &f.shard)}, f.doc.known(key)) {
				return
			}
		}
	}
}

// formersWritten says whether all that was stated of a shard by those who are replaced is in etcd: only then a successor's statement
// may take the place of theirs.
func (s *state) formersWritten(r *region, n int) bool {
	for _, f := range r.formers[n] {
		if !f.written() && s.formerNeeded(n, r.name, f) {
			return false
		}
	}
	return true
}

// sweepFormers is what is no longer needed. What never was in etcd is forgotten.
func (s *state) sweepFormers() (due []Item) {
	for _, r := range s.ordered {
		for n, list := range r.formers {
			for incarnation, f := range list {
				switch {
				case s.formerNeeded(n, r.name, f):
				case f.doc != nil:
					due = append(due, f.doc.item)
				default:
					delete(list, incarnation)
				}
			}
		}
	}
	slices.SortFunc(due, func(a, b Item) int { return cmp.Compare(a.Key, b.Key) })
	return due
}
