package coordinator

import (
	"encoding/json"

	"tranche/allocation"
)

// A shard of very many shares has no room for all usage in its document. Then the usage of the oldest terms is left out,
// and its sums stay: a closing record that is made by a replica which never heard the statement says as much in sum.

// StoredShare is an account as it is stored.
type StoredShare struct {
	allocation.ShareStatement
	Sum *allocation.RecordSums `json:"sum,omitempty"` // of Usage, where that had no room
}

// leaveOut drops the usage of a share, unless its sums take as much room, and says how many bytes that saves.
func (st *StoredShare) leaveOut(known map[allocation.ShareRef]allocation.RecordSums) int {
	sum := allocation.SumOf(st.ShareStatement)
	if have, in := known[st.ref()]; in {
		sum = have
	}
	usage, _ := json.Marshal(st.Usage)
	short, _ := json.Marshal(sum)
	gain := len(usage) - len(short)
	if len(st.Usage) == 0 || gain <= 0 {
		return 0
	}
	st.Usage, st.Sum = nil, &sum
	return gain
}

func (st *StoredShare) ref() allocation.ShareRef {
	return allocation.ShareRef{Budget: st.Budget, Term: st.Term}
}

// withSums takes the sums of a document, and returns its shares: with the usage that this replica heard itself, where
// that is what was summed.
func (sh *shard) withSums(d StatementDocument) []allocation.ShareStatement {
	sums := map[allocation.ShareRef]allocation.RecordSums{}
	shares := make([]allocation.ShareStatement, 0, len(d.Shares))
	for _, st := range d.Shares {
		if st.Sum != nil {
			if have := sh.shares[st.ref()]; allocation.SumOf(have) == *st.Sum {
				st.Usage = have.Usage
			} else {
				sums[st.ref()] = *st.Sum
			}
		}
		shares = append(shares, st.ShareStatement)
	}
	sh.sums = sums
	return shares
}

// heard forgets the sums of shares that are stated in full.
func (sh *shard) heard(shares []allocation.ShareStatement, whole bool) {
	if whole {
		sh.sums = nil
	}
	for _, st := range shares {
		delete(sh.sums, allocation.ShareRef{Budget: st.Budget, Term: st.Term})
	}
}

// keptSum is what an incarnation's account comes to, if it is known only in sum; unknown, if it had no room at all.
func (s *Service) keptSum(h allocation.Holder, ref allocation.ShareRef) (sums allocation.RecordSums, inSum, unknown bool) {
	r := s.state.regions[h.Region]
	if r == nil {
		return sums, false, false
	}
	sh := r.shards[allocation.ShardOf(ref.Budget)]
	if sh == nil || sh.incarnation != h.Incarnation {
		return sums, false, false
	}
	sums, inSum = sh.sums[ref]
	_, known := sh.shares[ref]
	return sums, inSum, !known && sh.doc != nil && sh.doc.value.Trimmed
}
