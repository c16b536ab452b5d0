package allocation

import (
	"slices"
	"testing"
)

// The design's table of answers: status, Envoy code, and when to try again. If this fails, gateways and clients act on
// another promise than the one that is documented.
func TestAnswersAreThoseOfTheDesign(t *testing.T) {
	type row struct {
		status int
		envoy  string
		retry  RetryAdvice
	}
	unavailable := row{503, "UNAVAILABLE", RetrySoon}
	want := map[Reason]row{
		"allow":                 {200, "OK", RetryNever},
		"region_share_spent":    {429, "OVER_LIMIT", RetrySoon},
		"ceiling_reached":       {429, "OVER_LIMIT", RetryNextPeriod},
		"capacity_stranded":     {429, "OVER_LIMIT", RetrySoon},
		"only_protected_left":   {429, "OVER_LIMIT", RetrySoon},
		"deferred":              {429, "OVER_LIMIT", RetrySoon},
		"ladder_refused":        {429, "OVER_LIMIT", RetrySoon}, // the rung above deferred
		"scope_denied":          {403, "OVER_LIMIT", RetryNever},
		"cost_exceeds_limit":    {422, "OVER_LIMIT", RetryNever},
		"cost_unknown":          {422, "OVER_LIMIT", RetryNever},
		"no_budget":             {422, "OVER_LIMIT", RetryNever},
		"admission_id_conflict": {422, "OVER_LIMIT", RetryNever},
		"admission_id_released": {409, "OVER_LIMIT", RetryNewID},
		"not_home":              {421, "OVER_LIMIT", RetryElsewhere},
		"too_many_instances":    {429, "OVER_LIMIT", RetrySoon},
		"too_many_budgets":      {422, "OVER_LIMIT", RetryNever},
		"label_missing":         {422, "OVER_LIMIT", RetryNever},
		"admission_id_missing":  {400, "OVER_LIMIT", RetryNever},
		"evidence_stale":        unavailable, "no_allocation": unavailable, "sealed": unavailable, "frozen": unavailable,
		"history_lost": unavailable, "starting": unavailable, "clock_behind": unavailable, "unsafe_settings": unavailable,
		"overloaded": unavailable, "database_unavailable": unavailable,
		"blocked":         {403, "OVER_LIMIT", RetryNever},
		"key_unknown":     {401, "OVER_LIMIT", RetryNever},
		"key_revoked":     {401, "OVER_LIMIT", RetryNever},
		"outcome_unknown": {503, "UNAVAILABLE", RetrySameID},
		// Answers to settle, release and extend, which the design's table does not name.
		"admission_id_unknown": {404, "OVER_LIMIT", RetryNever},
		"admission_id_settled": {409, "OVER_LIMIT", RetryNever},
	}
	answers := Answers()
	for _, a := range answers {
		w, ok := want[a.Reason]
		if got := (row{a.Status, a.Envoy, a.Retry}); !ok || got != w {
			t.Errorf("%s: %+v, want %+v", a.Reason, got, w)
		}
		if a.Retryable() != (a.Retry != RetryNever) || AnswerTo(a.Reason) != a {
			t.Errorf("%s: looked up as %+v", a.Reason, AnswerTo(a.Reason))
		}
		if a.Title == "" || a.Title[len(a.Title)-1] == '.' {
			t.Errorf("%s: the title is %q", a.Reason, a.Title)
		}
		delete(want, a.Reason)
	}
	if len(want) > 0 {
		t.Errorf("no answer to %v", want)
	}
	answers[0].Status = 0
	if AnswerTo(Allow).Status != 200 {
		t.Error("a caller can change the table")
	}
}

// A reason that only a newer version knows reads as a refusal. If this fails, an old client takes it for an admission.
func TestUnknownReasonIsRefused(t *testing.T) {
	a := AnswerTo("from_next_year")
	if a.Status != 503 || a.Envoy != "UNAVAILABLE" || !a.Retryable() || (Decision{Reason: "from_next_year"}).Admitted() || (Decision{}).Admitted() {
		t.Errorf("%+v", a)
	}
}

// The wait is whole seconds, at least 1 where there is one, never past the period's end, and at most an hour. If this
// fails callers come back too early for ever, or sleep through the next period.
func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		reason Reason
		resets int64
		want   int64
	}{
		{RegionShareSpent, 0, waitSoon},
		{RegionShareSpent, 1, 1},
		{RegionShareSpent, 3600, waitSoon},
		{CapacityStranded, 0, waitStranded},
		{CapacityStranded, 2, 2},
		{CapacityStranded, 3600, waitStranded},
		{CeilingReached, 0, 0}, // the period never ends
		{CeilingReached, 1, 1},
		{CeilingReached, 3599, 3599},
		{CeilingReached, 31 * 86400, 3600},
		{OutcomeUnknown, 0, waitSoon},
		{Overloaded, 1, 1},
		{NotHome, 60, 0},
		{AdmissionIDReleased, 60, 0},
		{CostExceedsLimit, 60, 0},
	} {
		if got := retryAfter(c.reason, c.resets); got != c.want {
			t.Errorf("%s, %d s to the end: %d, want %d", c.reason, c.resets, got, c.want)
		}
	}
	for _, a := range Answers() {
		for _, resets := range []int64{0, 1, 2, 59, 3600, 1 << 40} {
			wait := retryAfter(a.Reason, resets)
			waits := slices.Contains([]RetryAdvice{RetrySoon, RetrySameID, RetryNextPeriod}, a.Retry) && (resets > 0 || a.Retry != RetryNextPeriod)
			if (wait > 0) != waits || wait > waitLongest || resets > 0 && wait > resets {
				t.Errorf("%s, %d s to the end: wait %d", a.Reason, resets, wait)
			}
		}
	}
	for _, c := range []struct {
		until, now Instant
		want       int64
	}{{Never, 5, 0}, {60, 59, 1}, {60, 60, 1}, {60, 61, 1}, {60, 0, 60}} {
		if got := resets(c.until, c.now); got != c.want {
			t.Errorf("from %d to %d: %d", c.now, c.until, got)
		}
	}
}

// The wait in a decision is the one of the budget that refuses. If this fails a caller waits for another budget's period.
func TestRefusalWaitsForItsBudget(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 10), 10})
	l.Now += 20_900_000
	if d := l.ask(Spend, "x", requests(10)); !d.Admitted() || d.Retry != 0 {
		t.Errorf("%s, wait %d", d.Reason, d.Retry)
	}
	if d := l.ask(Spend, "y", requests(10)); d.Reason != CeilingReached || d.Retry != 39 {
		t.Errorf("%s, wait %d; the period ends in 38.1 s", d.Reason, d.Retry)
	}
	if d := l.ask(Extend, "x", requests(20)); d.Retry != 0 {
		t.Errorf("%s, wait %d", d.Reason, d.Retry)
	}
}

// The clock's second is the one it lies in, also before 1970: rounding up would begin a period too early.
func TestOwnersClock(t *testing.T) {
	for micros, want := range map[int64]Instant{0: 0, 999_999: 0, 1_000_000: 1, -1: -1, -1_000_000: -1, -1_000_001: -2} {
		if got := (&Locked{Now: micros}).now(); got != want {
			t.Errorf("%d µs lie in second %d, not %d", micros, want, got)
		}
	}
}
