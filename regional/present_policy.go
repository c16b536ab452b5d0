package regional

import "tranche/allocation"

// ladderBody says what a budget's ladder made of a request, and on what that rests.
type ladderBody struct {
	Budget      string `json:"budget"`
	Action      string `json:"action"`
	Route       string `json:"route,omitempty"`
	UsedPercent int64  `json:"used_percent"`
	Of          string `json:"of"`                    // budget, or share where the rest of the budget was not known
	ObservedAt  string `json:"observed_at,omitempty"` // when the rest of the budget was known
	AgeMillis   *int64 `json:"age_ms,omitempty"`      // of that, when it was decided
}

func ladderOf(d *allocation.Decision, at int64) *ladderBody {
	s := d.Ladder
	if s == nil {
		return nil
	}
	out := &ladderBody{Budget: s.Budget, Action: s.Action, Route: s.Route, UsedPercent: s.Percent, Of: s.Of}
	if s.ObservedAt != 0 {
		age := max(0, at-s.ObservedAt) / 1000
		out.ObservedAt, out.AgeMillis = formatMicros(s.ObservedAt), &age
	}
	return out
}

// staleBody bounds what a budget admits on evidence that is older than it would have.
type staleBody struct {
	MaxEvidenceAge string `json:"max_evidence_age"`
	AtMost         int64  `json:"at_most"`       // that this region can spend in this period in all
	CoveredUntil   string `json:"covered_until"` // from then on it refuses
}

func staleOf(s *allocation.Stale) *staleBody {
	if s == nil {
		return nil
	}
	return &staleBody{MaxEvidenceAge: s.MaxAge.String(), AtMost: s.AtMost, CoveredUntil: s.Covered.String()}
}
