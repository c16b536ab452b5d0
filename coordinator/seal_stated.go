package coordinator

import (
	"context"

	"tranche/allocation"
)

// enterSealed keeps what a seal says of what was spent. A region that was cut off spends without stating it; once it is sealed
// its incarnation calls no more, so the report would show for good as stranded, and the records as never recovered, what is
// known to be spent. It goes the way of the last word of a former incarnation: no permit moves. A seal that is sent again is
// entered again, without harm.
func (s *Service) enterSealed(ctx context.Context, seal allocation.Seal) error {
	call := allocation.SyncCall{Region: seal.Region, Incarnation: seal.Incarnation}
	at := map[int]int{} // by shard, its place among the statements
	for _, sh := range seal.Shares {
		shard := allocation.ShardOf(sh.Share.Budget)
		i, seen := at[shard]
		if !seen {
			i = len(call.Statements)
			at[shard], call.Statements = i, append(call.Statements, allocation.Statement{Shard: shard})
		}
		call.Statements[i].Shares = append(call.Statements[i].Shares, sh.Statement())
	}
	return s.enterLate(ctx, call, s.now(), true)
}
