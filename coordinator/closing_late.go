package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// A record may be made without the last word of an incarnation, and is never made anew. What is said later is entered beside
// what was known, and changes none of it; no permit moves, and no term is opened:
//
//	a former incarnation, whose database comes back   its call is refused, and what it states is noted here all the same;
//	                                                  of terms that are open see former_late.go
//	the present one, with a reservation over the end  it is settled or released, and stated once more
//
// Counters only rise, so a call of before that is late says nothing new. The record may stand in the archive by then, if
// that is ours. Then it is appended once more.

// LateStatement is what an incarnation stated of a term after its record was made: all that it did in the term, and not what
// is new.
type LateStatement struct {
	At        time.Time `json:"at"` // when it was said
	Spent     int64     `json:"spent"`
	Reserved  int64     `json:"reserved"`
	Overdraft int64     `json:"overdraft"`
}

// lateShare is what a call states of a term that is closed.
type lateShare struct {
	key string
	LateStatement
}

// enterLate enters what a call states of closed terms into their records, before it is acknowledged or refused.
// Only the word of the present incarnation counts in a call that fits, and only that of a former one in a refused call.
func (s *Service) enterLate(ctx context.Context, call allocation.SyncCall, arrived time.Time, refused bool) error {
	h := allocation.Holder{Region: call.Region, Incarnation: call.Incarnation}
	s.state.mu.Lock()
	former := refused && !call.Lost && s.state.isFormer(h)
	s.state.mu.Unlock()
	if former {
		if err := s.enterFormer(ctx, h, call.Statements); err != nil {
			return err
		}
	}
	s.state.mu.Lock()
	inEtcd, elsewhere := s.lateOf(call, arrived, refused) // also of what was closed while the others were entered
	s.state.mu.Unlock()
	entered := 0
	for part := range slices.Chunk(inEtcd, maxCountsPerTxn) {
		var records int
		err := s.act(ctx, func() (Change, error) {
			var change Change
			change, records = s.lateChange(h, part, refused)
			return change, nil
		})
		if err != nil {
			return fmt.Errorf("enter late statements: %w", err)
		}
		entered += records
	}
	archived, err := s.enterLateInArchive(ctx, h, elsewhere, refused)
	if err != nil { // a full disk here must not keep an answer from a region
		s.log.Warn("late statements are not entered into the archive", "region", h.Region, "incarnation", h.Incarnation, "error", err)
		archived = 0
	}
	if entered += archived; entered > 0 {
		s.log.Info("late statements are entered into the records of closed terms", "region", h.Region, "incarnation", h.Incarnation, "records", entered)
	}
	return nil
}

// lateOf lists what a call states of closed terms: those whose record is in etcd, and the others.
func (s *Service) lateOf(call allocation.SyncCall, arrived time.Time, refused bool) (inEtcd, elsewhere []lateShare) {
	r := s.state.regions[call.Region]
	if r == nil || r.doc == nil || call.Incarnation == "" || call.Lost {
		return nil, nil
	}
	if d := r.doc.value; refused && !slices.Contains(d.Former, call.Incarnation) || !refused && call.Incarnation != d.Incarnation {
		return nil, nil
	}
	for _, st := range call.Statements {
		if sh := r.shards[st.Shard]; !refused && sh != nil && sh.incarnation == call.Incarnation && st.Number < sh.number {
			continue // older news; one with the same number may have found no etcd to be entered in
		}
		for _, sh := range st.Shares {
			if !s.state.isClosed(allocation.ShareRef{Budget: sh.Budget, Term: sh.Term}) {
				continue
			}
			late := lateShare{closingKey(sh.Budget, sh.Term), LateStatement{At: arrived.UTC()}}
			for _, u := range sh.Usage {
				late.Spent, late.Reserved, late.Overdraft = late.Spent+u.Spent, late.Reserved+u.Reserved, late.Overdraft+u.Overdraft
			}
			if s.state.closings[late.key] != nil {
				inEtcd = append(inEtcd, late)
			} else {
				elsewhere = append(elsewhere, late)
			}
		}
	}
	return inEtcd, elsewhere
}

func (s *Service) lateChange(h allocation.Holder, part []lateShare, former bool) (change Change, records int) {
	spent := map[string]int64{}
	for _, late := range part {
		c := s.state.closings[late.key]
		if c == nil || s.state.strange[late.key] != "" {
			continue // it moved to the archive meanwhile, or a newer program wrote it
		}
		if next, more := c.value.withLate(h, late.LateStatement, former); more {
			change.Reads, change.Puts = append(change.Reads, c.item), append(change.Puts, put(late.key, next))
			spent[c.value.Budget] += max(0, next.saidOf(h)-c.value.saidOf(h)) // less than was assumed is nothing new
			records++
		}
	}
	if records == 0 {
		return change, 0
	}
	if former {
		s.state.addLateSpent(&change, h, spent, s.now())
	}
	s.state.onStanding(&change)
	return change, records
}

// saidOf is what an incarnation is known to have spent: as it said later, or as the record was made.
func (c Closing) saidOf(h allocation.Holder) int64 {
	i := slices.IndexFunc(c.Regions, func(r ClosedRegion) bool { return r.Holder == h })
	switch {
	case i < 0:
		return 0
	case c.Regions[i].Late != nil:
		return c.Regions[i].Late.Spent
	}
	return c.Regions[i].Spent
}

// enterLateInArchive does the same for records that the archive has. A crash behind it keeps what was spent out of the history
// of stranded permits; the record has it.
func (s *Service) enterLateInArchive(ctx context.Context, h allocation.Holder, list []lateShare, former bool) (entered int, err error) {
	if len(list) == 0 || s.config.ClosingArchive == nil {
		return 0, nil
	}
	said, spent := map[string]LateStatement{}, map[string]int64{}
	for _, late := range list {
		said[late.key] = late.LateStatement
	}
	err = s.config.ClosingArchive.Update(said, func(c Closing, late LateStatement) (Closing, bool) {
		next, more := c.withLate(h, late, former)
		if more {
			spent[c.Budget] += max(0, next.saidOf(h)-c.saidOf(h))
			entered++
		}
		return next, more
	})
	if err != nil || entered == 0 || !former {
		return entered, err
	}
	return entered, s.act(ctx, func() (change Change, _ error) {
		s.state.addLateSpent(&change, h, spent, s.now())
		return change, nil
	})
}

// withLate is the record with a late statement; more says whether it says something that the record does not.
func (c Closing) withLate(h allocation.Holder, late LateStatement, former bool) (next Closing, more bool) {
	i := slices.IndexFunc(c.Regions, func(r ClosedRegion) bool { return r.Holder == h })
	if i < 0 {
		return c, false // it was never granted anything of this
	}
	r := c.Regions[i]
	known := LateStatement{At: late.At, Spent: r.Spent, Reserved: r.Reserved, Overdraft: r.Overdraft}
	if r.Late != nil {
		known = *r.Late
		known.At = late.At
	}
	risen := late.Spent > known.Spent || late.Overdraft > known.Overdraft
	switch {
	case late == known:
	case r.Unstated && r.Late == nil && late.Spent+late.Reserved+late.Overdraft > 0:
		more = true // what stands there was assumed
	case late.Spent < known.Spent || late.Overdraft < known.Overdraft:
	default:
		// A former incarnation has no numbers to compare any more: that it reserves less may be older news.
		more = risen || !former
	}
	if !more {
		return c, false
	}
	c.Regions = slices.Clone(c.Regions)
	c.Regions[i].Late = &late
	return c, true
}
