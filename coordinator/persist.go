package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"tranche/allocation"
)

// What is only known of a region is written seldom: it moves no permit. A replica that ends before it wrote has lost
// nothing that matters, since it has not acknowledged it either, and the owner states it again; until then, reports show
// what was stated before, and so overstate what is stranded or exposed, never understate it.
const (
	persistEvery      = 2 * time.Second // per document
	persistTick       = 500 * time.Millisecond
	persistRate       = 256 << 10 // bytes a second for one region
	maxStatementBytes = 64 << 10
)

// writing is how far the writing of one region's documents is.
type writing struct {
	contactAt time.Time // when the contact was written last
	allowance int       // bytes that may be written now
	refilled  time.Time
	shards    map[int]time.Time // when each was written last
}

func (s *Service) persistOften(ctx context.Context) error {
	s.runtime.Sleep(ctx, persistTick)
	for ctx.Err() == nil {
		started := s.now()
		if !s.isTrusted() {
			// What is only known can wait.
		} else if err := s.persist(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("statements are not written", "error", err)
		}
		s.runtime.Sleep(ctx, rest(s.runtime, started, persistTick))
	}
	return nil
}

// persist writes the contacts and statements that are due: of each region what was unwritten longest comes first.
func (s *Service) persist(ctx context.Context) error {
	now := s.now()
	s.state.mu.Lock()
	due := s.dueReceiptKeys()
	for _, r := range s.state.ordered {
		if r.doc != nil {
			due = append(due, s.dueOf(r, now)...)
			due = append(due, s.dueRefusals(r, now)...)
		}
	}
	s.state.mu.Unlock()
	_, err := eachOf(ctx, s, due, func(c Change) (Change, error) { c.aged = true; return c, nil })
	return err
}

// dueOf takes what may be written of one region now. A conflict means that another replica wrote meanwhile: what it knew
// comes with the mirror, and what is still unwritten is due again.
func (s *Service) dueOf(r *region, now time.Time) (due []Change) {
	w := &r.writing
	if w.shards == nil {
		w.shards = map[int]time.Time{}
	}
	if passed := now.Sub(w.refilled); w.refilled.IsZero() || passed < 0 {
		w.allowance = persistRate // a clock that was set back must not hold it up until it was there again
	} else {
		w.allowance = min(persistRate, w.allowance+int(min(1, passed.Seconds())*persistRate))
	}
	w.refilled = now
	take := func(item Item, known Item) (more bool) {
		w.allowance -= len(item.Value)
		due = append(due, Change{Reads: []Item{known}, Puts: []Item{item}})
		return w.allowance > 0
	}
	if writable(w.contactAt, now) && r.contactUnwritten() {
		w.contactAt = now
		take(put(contactKey(r.name), r.contact), r.contactDoc.known(contactKey(r.name)))
	}
	s.state.dueFormers(r, now, take)
	var waiting []int
	for n, sh := range r.shards {
		if sh.written() {
			sh.unwritten = time.Time{}
		} else if writable(w.shards[n], now) && s.state.formersWritten(r, n) {
			waiting = append(waiting, n)
		}
	}
	slices.SortFunc(waiting, func(a, b int) int {
		if c := r.shards[a].unwritten.Compare(r.shards[b].unwritten); c != 0 {
			return c
		}
		return a - b
	})
	for _, n := range waiting {
		if w.allowance <= 0 {
			break
		}
		sh := r.shards[n]
		w.shards[n] = now
		key := statementKey(r.name, n)
		take(Item{Key: key, Value: statementValue(r.name, n, sh)}, sh.doc.known(key))
	}
	return due
}

// writable says whether a document that was written last at some time may be written again; one of which a clock that was
// ahead says so, may too.
func writable(last, now time.Time) bool { return last.After(now) || now.Sub(last) >= persistEvery }

// contactUnwritten says whether there is a call that the document does not show.
func (r *region) contactUnwritten() bool {
	return !r.contact.At.IsZero() && (r.contactDoc == nil || r.contact.newerThan(r.contactDoc.value) ||
		r.contact.StatedThrough > r.contactDoc.value.statedThrough(r.contact.StatedUnder) && r.contact.Incarnation == r.contactDoc.value.Incarnation)
}

// written says whether the document shows what is known.
func (sh *shard) written() bool {
	return sh.number == 0 || sh.doc != nil && sh.doc.value.Incarnation == sh.incarnation && sh.doc.value.Number >= sh.number && !sh.older()
}

// older says that the document shows what was stated under a history before the one of the latest statement.
func (sh *shard) older() bool { return sh.doc.value.History.Number < sh.under.Number }

// durable is the number of the statement that every replica can read. A shard that is too large for its document is never
// durable as a whole; of it, what this replica knows must do.
func (sh *shard) durable() int64 {
	switch {
	case sh.doc == nil || sh.doc.value.Incarnation != sh.incarnation || sh.older():
		return 0
	case sh.doc.value.Trimmed:
		return sh.number
	}
	return min(sh.number, sh.doc.value.Number)
}

// statementValue is a shard's document, within its bound: the usage of the oldest periods is left out first. It is the
// least missed: those periods are over, and the closing comes from the memory of the replica that was told. A share of which
// something is left out says so, also to a replica that writes it on; a record that is made from it counts all that was held as
// spent (see closedRegion).
func statementValue(region string, n int, sh *shard) []byte {
	d := StatementDocument{
		Format: documentFormat, Region: region, Incarnation: sh.incarnation, Shard: n, Number: sh.number, History: sh.under, At: sh.at,
		Shares: make([]allocation.ShareStatement, 0, len(sh.shares)), Trimmed: sh.dropped, LeftOut: sh.dropped,
	}
	for _, st := range sh.shares {
		d.Shares, d.Trimmed = append(d.Shares, st), d.Trimmed || st.Partial
	}
	slices.SortFunc(d.Shares, func(a, b allocation.ShareStatement) int {
		if a.Term != b.Term {
			return int(min(1, max(-1, a.Term-b.Term)))
		}
		if a.Budget < b.Budget {
			return -1
		}
		return 1
	})
	value := encode(d)
	for i := 0; len(value) > maxStatementBytes && i < len(d.Shares); i++ {
		// Oldest terms first; of what remains, the account without its usage still says what was stored and returned.
		excess := len(value) - maxStatementBytes
		for ; i < len(d.Shares) && excess > 0; i++ {
			usage, _ := json.Marshal(d.Shares[i].Usage)
			excess -= len(usage)
			d.Shares[i].Partial = d.Shares[i].Partial || len(d.Shares[i].Usage) > 0
			d.Shares[i].Usage, d.Trimmed = nil, true
		}
		value = encode(d)
	}
	for len(value) > maxStatementBytes {
		// Still too much: whoever reads it knows that it is not the whole shard.
		d.Shares, d.Trimmed, d.LeftOut = d.Shares[len(d.Shares)/8+1:], true, true
		value = encode(d)
	}
	return value
}

// forgetEnded forgets the marks of writers that ended, durably, so that the owner may remove their rows. The contact is
// written now: a replica that still knew such a mark would take the missing row for lost history.
func (s *Service) forgetEnded(ctx context.Context, call allocation.SyncCall) ([]string, error) {
	if len(call.Ended) == 0 {
		return nil, nil
	}
	err := s.act(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		r.contact.Ended = lastOf(maxEnded, mergeNames(r.contact.Ended, call.Ended))
		r.contact.Marks = mergeMarks(r.contact.Marks, nil, r.contact.Ended)
		if d := r.contactDoc; d != nil && !slices.ContainsFunc(call.Ended, func(w string) bool { return !slices.Contains(d.value.Ended, w) }) {
			return Change{}, nil
		}
		key := contactKey(r.name)
		return Change{Reads: []Item{r.contactDoc.known(key)}, Puts: []Item{put(key, r.contact)}}, nil
	})
	if errors.Is(err, ErrConflict) {
		return nil, nil // the owner names them again
	}
	if err != nil {
		return nil, err
	}
	return call.Ended, nil
}
