package allocation

import "slices"

// Reason says why a request was decided as it was. The set is closed: an unknown reason reads as a refusal.
type Reason string

// The reasons, as the API, the metrics and the documentation name them.
const (
	Allow Reason = "allow"

	RegionShareSpent  Reason = "region_share_spent"
	CeilingReached    Reason = "ceiling_reached"
	CapacityStranded  Reason = "capacity_stranded"
	TooManyInstances  Reason = "too_many_instances"
	OnlyProtectedLeft Reason = "only_protected_left"
	Deferred          Reason = "deferred"
	LadderRefused     Reason = "ladder_refused"

	CostExceedsLimit    Reason = "cost_exceeds_limit"
	CostUnknown         Reason = "cost_unknown"
	NoBudget            Reason = "no_budget"
	AdmissionIDConflict Reason = "admission_id_conflict"
	AdmissionIDReleased Reason = "admission_id_released"
	AdmissionIDMissing  Reason = "admission_id_missing"
	AdmissionIDUnknown  Reason = "admission_id_unknown"
	AdmissionIDSettled  Reason = "admission_id_settled"
	TooManyBudgets      Reason = "too_many_budgets"
	LabelMissing        Reason = "label_missing"
	NotHome             Reason = "not_home"

	Blocked     Reason = "blocked"
	ScopeDenied Reason = "scope_denied"
	KeyUnknown  Reason = "key_unknown"
	KeyRevoked  Reason = "key_revoked"

	EvidenceStale       Reason = "evidence_stale"
	NoAllocation        Reason = "no_allocation"
	Sealed              Reason = "sealed"
	Frozen              Reason = "frozen"
	HistoryLost         Reason = "history_lost"
	Starting            Reason = "starting"
	ClockBehind         Reason = "clock_behind"
	UnsafeSettings      Reason = "unsafe_settings"
	Overloaded          Reason = "overloaded"
	DatabaseUnavailable Reason = "database_unavailable"

	OutcomeUnknown Reason = "outcome_unknown"
)

// RetryAdvice says when a refused request may be tried again.
type RetryAdvice string

// The advice that a reason comes with.
const (
	RetryNever      RetryAdvice = "never"        // the same request can never pass
	RetrySoon       RetryAdvice = "soon"         // within seconds
	RetryNextPeriod RetryAdvice = "next_period"  // at the period's end; never, if it has none
	RetryElsewhere  RetryAdvice = "elsewhere"    // at the region that the answer names
	RetryNewID      RetryAdvice = "with_new_id"  // with a new admission id
	RetrySameID     RetryAdvice = "with_same_id" // with the same id, which gets the truth
)

// Answer is how one reason is told: the row of a table that the documentation is made from.
type Answer struct {
	Reason Reason
	Status int    // HTTP
	Envoy  string // OK, OVER_LIMIT or UNAVAILABLE
	Retry  RetryAdvice
	Title  string // for a person; ends without a full stop
}

// Answers lists every reason once, in the order of the documentation.
func Answers() []Answer { return slices.Clone(answers) }

var answers = []Answer{
	{Allow, 200, "OK", RetryNever, "Admitted"},
	{RegionShareSpent, 429, "OVER_LIMIT", RetrySoon, "This region's share of the budget is spent; other regions may have some"},
	{CeilingReached, 429, "OVER_LIMIT", RetryNextPeriod, "The whole budget of this period is spent"},
	{CapacityStranded, 429, "OVER_LIMIT", RetrySoon, "What is left of the budget is held by a region that cannot be asked"},
	{TooManyInstances, 429, "OVER_LIMIT", RetrySoon, "The budget already counts as many instances as it may in this period"},
	{OnlyProtectedLeft, 429, "OVER_LIMIT", RetrySoon, "What this region has left is protected, for essential traffic only"},
	{Deferred, 429, "OVER_LIMIT", RetrySoon, "So much of the budget is used that work of this priority is to come back later"},
	{LadderRefused, 429, "OVER_LIMIT", RetrySoon, "So much of the budget is used that requests of this priority are refused"},
	{CostExceedsLimit, 422, "OVER_LIMIT", RetryNever, "The cost is above the whole limit and can never fit"},
	{CostUnknown, 422, "OVER_LIMIT", RetryNever, "The cost in a budget's unit was not given"},
	{NoBudget, 422, "OVER_LIMIT", RetryNever, "No budget applies to these labels"},
	{AdmissionIDConflict, 422, "OVER_LIMIT", RetryNever, "The admission id was used for another request"},
	{TooManyBudgets, 422, "OVER_LIMIT", RetryNever, "More budgets apply to this request than one may be charged to"},
	{LabelMissing, 422, "OVER_LIMIT", RetryNever, "A label that a budget needs is missing"},
	{AdmissionIDReleased, 409, "OVER_LIMIT", RetryNewID, "The reservation of this admission id is over"},
	{AdmissionIDSettled, 409, "OVER_LIMIT", RetryNever, "What this admission id was charged is final"},
	{AdmissionIDUnknown, 404, "OVER_LIMIT", RetryNever, "No admission of this id is known in this region"},
	{AdmissionIDMissing, 400, "OVER_LIMIT", RetryNever, "An admission id is required"},
	{Blocked, 403, "OVER_LIMIT", RetryNever, "Requests of this kind are blocked for a while"},
	{ScopeDenied, 403, "OVER_LIMIT", RetryNever, "The credential may not do this"},
	{KeyUnknown, 401, "OVER_LIMIT", RetryNever, "The key is not known"},
	{KeyRevoked, 401, "OVER_LIMIT", RetryNever, "The key is not valid any more"},
	{NotHome, 421, "OVER_LIMIT", RetryElsewhere, "The budget is at home in another region"},
	{EvidenceStale, 503, "UNAVAILABLE", RetrySoon, "The region has not heard from the coordinator for longer than the budget allows"},
	{NoAllocation, 503, "UNAVAILABLE", RetrySoon, "This region holds no allocation of the budget for this period"},
	{Sealed, 503, "UNAVAILABLE", RetrySoon, "The share is sealed"},
	{Frozen, 503, "UNAVAILABLE", RetrySoon, "The ledger is frozen"},
	{HistoryLost, 503, "UNAVAILABLE", RetrySoon, "The region's database lost history; it waits for the coordinator to begin anew, with nothing"},
	{Starting, 503, "UNAVAILABLE", RetrySoon, "The region is starting"},
	{ClockBehind, 503, "UNAVAILABLE", RetrySoon, "The database's clock names a period that is already closed"},
	{UnsafeSettings, 503, "UNAVAILABLE", RetrySoon, "Postgres would not keep a commit through a crash (fsync, full_page_writes or synchronous_commit is off)"},
	{Overloaded, 503, "UNAVAILABLE", RetrySoon, "No decision could be made within the deadline"},
	{DatabaseUnavailable, 503, "UNAVAILABLE", RetrySoon, "The region's database cannot be reached"},
	{OutcomeUnknown, 503, "UNAVAILABLE", RetrySameID, "The answer of the database was lost; ask again with the same admission id"},
}

// answerOf is where the row of a reason stands.
var answerOf = func() map[Reason]int {
	out := map[Reason]int{}
	for i := range answers {
		out[answers[i].Reason] = i
	}
	return out
}()

// AnswerTo is the row of a reason. An unknown one reads as a refusal that may be tried again later.
func AnswerTo(r Reason) Answer {
	if i, known := answerOf[r]; known {
		return answers[i]
	}
	return Answer{Reason: r, Status: 503, Envoy: "UNAVAILABLE", Retry: RetrySoon, Title: "Refused for a reason that this version does not know"}
}

// Retryable says whether the same request may pass later.
func (a Answer) Retryable() bool { return a.Retry != RetryNever }
