package allocation

// The actions of a decision.
const (
	ActionPreferred = "preferred"
	ActionDegraded  = "degraded" // admitted: take the cheaper route
	ActionDeferred  = "deferred" // refused: come back later
	ActionRefused   = "refused"
)

// Decision is the answer to one request: an admission or a refusal, and on what it rests. A refusal is a decision, not an
// error.
type Decision struct {
	Reason   Reason           `json:"reason"`
	Action   string           `json:"action"`
	Op       Op               `json:"op"`
	Key      IDKey            `json:"key"`
	Region   string           `json:"region"`
	State    State            `json:"state,omitempty"`    // of the admission, now; empty for a refusal that bound no id
	Replayed bool             `json:"replayed,omitempty"` // the id was known: this is its first answer, with its present state
	At       int64            `json:"at"`                 // when it was decided, by the owner's database, Unix microseconds
	Expires  int64            `json:"expires,omitempty"`  // of an open reservation, Unix microseconds; 0: none
	Budgets  []BudgetDecision `json:"budgets,omitempty"`
	Blames   string           `json:"blames,omitempty"` // the first refusing budget, if it was one
	Detail   string           `json:"detail,omitempty"` // for a person
	Home     string           `json:"home,omitempty"`   // the region to go to, for not_home; empty if there is none
	Retry    int64            `json:"retry,omitempty"`  // seconds until it is worth another try; 0: no advice
	Evidence Evidence         `json:"evidence"`
	Route    string           `json:"route,omitempty"`  // of a degraded admission: the cheaper one to take
	Ladder   *LadderStep      `json:"ladder,omitempty"` // what a budget's ladder made of it; nil: nothing

	// Would is why enforcement would have refused what was let through in shadow, for the budget WouldBlame.
	Would      Reason `json:"would,omitempty"`
	WouldBlame string `json:"would_blame,omitempty"`

	// Record is what was kept of it in full; nil: nothing was. The pure function leaves it empty.
	Record *Record `json:"-"`
}

// Admitted says whether the request may go on.
func (d Decision) Admitted() bool { return d.Reason == Allow }

// BudgetDecision is one budget's part of a decision.
type BudgetDecision struct {
	UsageKey
	Until      Instant `json:"until"` // the period's end
	Unit       string  `json:"unit"`
	Version    int64   `json:"version"`
	Generation int64   `json:"generation"`
	Limit      int64   `json:"limit"` // of the whole budget
	Share      int64   `json:"share"` // of this region, in this period
	Requested  int64   `json:"requested"`
	Charged    int64   `json:"charged"` // spent or reserved for this admission now
	Overdraft  int64   `json:"overdraft"`
	Remaining  int64   `json:"remaining"` // what this region may still spend on traffic of this priority after this decision
	Protected  int64   `json:"protected"` // of the share: what only essential traffic may spend
	Stale      *Stale  `json:"stale,omitempty"`
	Reason     Reason  `json:"reason"`
	// Enforcement is Shadow or Meter, if the budget is not enforced for the request; Reason then refuses nobody.
	Enforcement string `json:"enforcement,omitempty"`
	// Override is the id of the override that Limit includes.
	Override string `json:"override,omitempty"`
}

// refusal makes a refused decision.
func (l *Locked) refusal(r Request, reason Reason, detail string) Decision {
	return Decision{
		Reason: reason, Action: ActionRefused, Op: r.Op, Key: r.Key, Region: l.Catalogue.Region, At: l.Now,
		Detail: detail, Retry: retryAfter(reason, 0), Evidence: l.evidence(r),
	}
}

func (l *Locked) evidence(r Request) Evidence {
	priority := r.Priority
	if priority != "" {
		priority = r.priority()
	}
	return Evidence{
		Config: l.Catalogue.Number, LedgerRevision: l.Revision, ObservedAt: l.ObservedAt, Incarnation: l.Incarnation,
		Correlation: r.Correlation, Node: l.Node, Priority: priority, Fingerprint: r.fingerprint(),
	}
}

// Waits, in seconds.
const (
	waitSoon     = 1
	waitStranded = 5
	waitLongest  = 3600 // for the end of a long period
)

// retryAfter is how many seconds a refused caller should wait: the policy's wait, but never past the period's end, and
// for a ceiling the period's end, at most an hour off. resets is the seconds to the period's end, 0 for no end.
func retryAfter(r Reason, resets int64) int64 {
	wait := int64(0)
	switch AnswerTo(r).Retry {
	case RetrySoon, RetrySameID:
		wait = waitSoon
		if r == CapacityStranded {
			wait = waitStranded
		}
		if resets > 0 {
			wait = min(wait, resets)
		}
	case RetryNextPeriod:
		if resets == 0 {
			return 0
		}
		wait = min(resets, waitLongest)
	case RetryNever, RetryElsewhere, RetryNewID:
		return 0
	}
	return max(1, wait)
}

// answer tells what stands of an admission: its first answer for a replay, the outcome for the other operations.
func (l *Locked) answer(r Request, a *Admission, replayed bool) Decision {
	d := Decision{
		Reason: Allow, Action: ActionPreferred, Op: r.Op, Key: a.IDKey, Region: l.Catalogue.Region, State: a.State,
		Replayed: replayed, At: a.At, Evidence: a.First,
	}
	if a.State == StateReserved {
		d.Expires = a.ExpiresAt
	}
	if a.Ladder != nil {
		d.Action, d.Route, d.Ladder = a.Ladder.Action, a.Ladder.Route, a.Ladder
	}
	for _, line := range a.Lines {
		d.Budgets = append(d.Budgets, BudgetDecision{
			UsageKey: line.UsageKey, Until: line.Until, Unit: line.Unit, Version: line.Version, Generation: line.Generation,
			Limit: line.Limit, Share: line.Share, Requested: line.Requested, Charged: line.Held + line.Spent, Overdraft: line.Overdraft,
			Remaining: line.Remaining, Reason: Allow, Enforcement: line.Enforcement, Override: line.Override,
		})
		if !line.Uncharged() {
			continue
		}
		d.Budgets[len(d.Budgets)-1].Reason = line.Would
		if line.Enforcement == Shadow && line.Would != Allow && d.Would == "" {
			d.Would, d.WouldBlame = line.Would, Line{UsageKey: line.UsageKey}.Key()
		}
	}
	return d
}
