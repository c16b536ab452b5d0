package postgres

import "tranche/allocation"

// statedShare is a share as selectTouched gives it: numbers for instants, as in all columns.
type statedShare struct {
	Shard      int16         `json:"shard"`
	Budget     string        `json:"budget"`
	Term       int64         `json:"term"`
	Template   bool          `json:"template"`
	Generation int64         `json:"generation"`
	Stamp      string        `json:"stamp"`
	Entries    []statedEntry `json:"entries"`
	Usage      []statedUsage `json:"usage"`
	Held       *statedHeld   `json:"held"` // only if it is to be stated as held
}

type statedHeld struct {
	Version int64             `json:"version"`
	Policy  allocation.Policy `json:"policy"`
	Regions []string          `json:"regions"`
	Sealed  bool              `json:"sealed"`
	Opening int64             `json:"opening_spent"`
	storedPeriods
}

type statedEntry struct {
	From, Until, Limit, Granted, Returned, Target, Protected int64
	Class                                                    allocation.Class
}

type statedUsage struct {
	Period, Until, Returned, Spent, Reserved, Overdraft, Instances int64
	Class                                                          allocation.Class
	Parts                                                          int64 // rows of template_usage
}

func (s *statedShare) statement() allocation.ShareStatement {
	share := allocation.Share{
		Budget: s.Budget, Template: s.Template, Generation: allocation.Generation{Number: s.Generation, Stamp: s.Stamp},
		// Only its start counts here: the share's name.
		Periods: allocation.Periods{First: allocation.Instant(s.Term), Step: 1, Count: 1},
	}
	for _, e := range s.Entries {
		share.Entries = append(share.Entries, allocation.GrantEntry{
			From: allocation.Instant(e.From), Until: allocation.Instant(e.Until), Class: e.Class,
			Limit: e.Limit, Granted: e.Granted, Returned: e.Returned, Target: e.Target, Protected: e.Protected,
		})
	}
	instances := map[allocation.Instant]int64{}
	var used []allocation.Usage
	for _, u := range s.Usage {
		used = append(used, allocation.Usage{
			UsageKey: allocation.UsageKey{Budget: s.Budget, Period: allocation.Instant(u.Period), Class: u.Class},
			Until:    allocation.Instant(u.Until), Returned: u.Returned, Spent: u.Spent, Reserved: u.Reserved, Overdraft: u.Overdraft,
		})
		if s.Template {
			instances[allocation.Instant(u.Period)] = max(instances[allocation.Instant(u.Period)], u.Instances)
		}
	}
	out := share.Statement(used, instances)
	if h := s.Held; h != nil {
		share.Version, share.Policy, share.Regions, share.Periods, share.Sealed = h.Version, h.Policy, h.Regions, h.periods(), h.Sealed
		share.OpeningSpent = h.Opening
		out.Held = &share
	}
	return out
}

// statementsOf gathers the shares by shard; one that has none to list states that.
func statementsOf(chosen []base, numbers map[int16]int64, touched []statedShare) []allocation.Statement {
	byShard := map[int16][]allocation.ShareStatement{}
	for i := range touched {
		byShard[touched[i].Shard] = append(byShard[touched[i].Shard], touched[i].statement())
	}
	var out []allocation.Statement
	for _, b := range chosen {
		out = append(out, allocation.Statement{Shard: int(b.shard), Number: numbers[b.shard], Base: b.number, Shares: byShard[b.shard]})
	}
	return out
}
