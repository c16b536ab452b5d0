package allocation

// UsageKey names the permits of one budget (or one instance of a template), one period and one class in one owner.
type UsageKey struct {
	Budget   string  `json:"budget"`
	Instance string  `json:"instance,omitempty"`
	Period   Instant `json:"period"`
	Class    Class   `json:"class"`
}

// Compare orders keys for locking: everybody locks usage rows in this order, which is bytewise as in Postgres' "C" collation.
func (k UsageKey) Compare(o UsageKey) int {
	switch {
	case k.Budget != o.Budget:
		return compare(k.Budget, o.Budget)
	case k.Instance != o.Instance:
		return compare(k.Instance, o.Instance)
	case k.Period != o.Period:
		return compare(k.Period, o.Period)
	}
	return compare(k.Class, o.Class)
}

func compare[T ~string | ~int64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Usage is the owner's account of the permits of one key: the row that a decision locks and reads. Everything that a
// decision rests on stands in it.
//
// Granted, Returned, Spent and Overdraft only rise. Granted − Returned − Spent − Reserved is never below 0.
type Usage struct {
	UsageKey
	Until      Instant `json:"until"` // the period's end
	Term       Instant `json:"term"`  // start of the term that the period belongs to
	Template   bool    `json:"template,omitempty"`
	Version    int64   `json:"version"`
	Generation int64   `json:"generation"`
	Granted    int64   `json:"granted"`
	Returned   int64   `json:"returned"`
	Target     int64   `json:"target"`              // what the ledger would have this owner hold
	Protected  int64   `json:"protected,omitempty"` // of what is held: a floor that only essential traffic may go below
	Spent      int64   `json:"spent"`
	Reserved   int64   `json:"reserved"`
	Overdraft  int64   `json:"overdraft"`
	Sealed     bool    `json:"sealed,omitempty"`
}

// Spendable is what this owner may still spend or reserve, by its share and by the newest limit it knows, for essential
// traffic: see SpendableBy. Never below 0. Within a lowered target nothing is spendable that is on its way back; what is
// protected is not.
func (u *Usage) Spendable(limit int64) int64 {
	used, most := u.Spent+u.Reserved, u.Target
	if !u.Template {
		most = max(most, used+u.Protected)
	}
	return max(0, min(u.Granted-u.Returned, most, limit)-used)
}

// Overflowed says whether a counter left its bounds: a broken promise that no commit may carry.
func (u *Usage) Overflowed() bool {
	return u.Spent < 0 || u.Reserved < 0 || u.Overdraft < 0 || u.Returned < 0 || u.Returned > u.Granted ||
		u.Spent+u.Reserved > u.Granted-u.Returned
}

// giveBack returns what is held above the target and neither spent, reserved nor protected (invariant 4: the giver lowers first).
// An instance of a template returns nothing: its ledger would not count it; Spendable respects its target all the same.
func (u *Usage) giveBack() {
	if u.Template {
		return
	}
	if excess := u.Granted - u.Returned - max(u.Target, u.Spent+u.Reserved+u.Protected); excess > 0 {
		u.Returned += excess
	}
}

// Take enters a newer state of the share into the usage of one of its periods. Counters only rise; what is now held above
// the target is returned as far as it is free.
func (u Usage) Take(s Share) Usage {
	e, ok := s.EntryFor(u.Period, u.Class)
	if !ok || s.Generation.Number < u.Generation {
		return u
	}
	u.Version, u.Generation = s.Version, s.Generation.Number
	u.Granted, u.Target, u.Protected = max(u.Granted, e.Granted), e.Target, e.Protected
	u.giveBack()
	return u
}
