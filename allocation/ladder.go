package allocation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// LadderStandard is the preset, written as `ladder: standard`.
const LadderStandard = "standard"

// RouteEconomy is the cheaper route that the preset names; a gateway knows what it stands for.
const RouteEconomy = "economy"

// MaxRoute bounds the name of a route, in bytes; MaxLadderRetry bounds a ladder's retry_after.
const (
	MaxRoute                 = 200
	MaxLadderRetry           = Hour
	defaultLadderRetry       = 30 * Second
	ladderFull         int64 = 100
)

// Ladder says what happens, before a budget is used up, to requests of each priority. It is the preset by its name, or rungs of
// its own; what has no rungs goes on until the limit.
//
//	ladder: standard                     ladder:
//	  is the same as                       interactive: {degrade_at: 80, route: economy}
//	                                       batch: {defer_at: 70, refuse_at: 90, retry_after: 30s}
//
// A rung begins at a percentage of the budget used. It may lower quality, and refuse before the limit does; it
// never admits what the limit refuses, and what is degraded is charged to the same budgets.
type Ladder struct {
	Preset      string
	Essential   *Rungs
	Interactive *Rungs
	Batch       *Rungs
}

// Rungs are the percentages from which requests of one priority are degraded, deferred and refused, each from 1 to 100; 0: never.
type Rungs struct {
	DegradeAt int64  `json:"degrade_at,omitempty"`
	Route     string `json:"route,omitempty"` // the cheaper one; only with DegradeAt
	DeferAt   int64  `json:"defer_at,omitempty"`
	RefuseAt  int64  `json:"refuse_at,omitempty"`
	// RetryAfter is when a deferred or refused request is to come back. 0: 30 s.
	RetryAfter Duration `json:"retry_after,omitempty"`
}

// String is the rungs in words, like "degraded from 80 % (route economy), refused from 95 %, retry after 30s".
func (r *Rungs) String() string {
	var parts []string
	if r.DegradeAt > 0 {
		parts = append(parts, fmt.Sprintf("degraded from %d %% (route %s)", r.DegradeAt, r.Route))
	}
	if r.DeferAt > 0 {
		parts = append(parts, fmt.Sprintf("deferred from %d %%", r.DeferAt))
	}
	if r.RefuseAt > 0 {
		parts = append(parts, fmt.Sprintf("refused from %d %%", r.RefuseAt))
	}
	if r.DeferAt > 0 || r.RefuseAt > 0 {
		parts = append(parts, "retry after "+cmp.Or(r.RetryAfter, defaultLadderRetry).String())
	}
	return strings.Join(parts, ", ")
}

// standardLadder is what the preset stands for.
var standardLadder = Ladder{
	Interactive: &Rungs{DegradeAt: 80, Route: RouteEconomy},
	Batch:       &Rungs{DeferAt: 70, RefuseAt: 90, RetryAfter: defaultLadderRetry},
}

// Expand is the ladder with the preset written out. It is not to be changed.
func (l *Ladder) Expand() *Ladder {
	if l.Preset == LadderStandard {
		return &standardLadder
	}
	return l
}

// rungs are those of a priority; nil: none.
func (l *Ladder) rungs(p Priority) *Rungs {
	l = l.Expand()
	switch p {
	case Essential:
		return l.Essential
	case Batch:
		return l.Batch
	case Interactive:
	}
	return l.Interactive
}

// rung is the highest rung that a share of the budget in use has reached; Allow and ActionPreferred: none.
func (r *Rungs) rung(percent int64) (Reason, string) {
	reached := func(at int64) bool { return at > 0 && percent >= at }
	switch {
	case r == nil:
	case reached(r.RefuseAt):
		return LadderRefused, ActionRefused
	case reached(r.DeferAt):
		return Deferred, ActionDeferred
	case reached(r.DegradeAt):
		return Allow, ActionDegraded
	}
	return Allow, ActionPreferred
}

// ladderFields is Ladder as it is written when it is not the preset.
type ladderFields struct {
	Essential   *Rungs `json:"essential,omitempty"`
	Interactive *Rungs `json:"interactive,omitempty"`
	Batch       *Rungs `json:"batch,omitempty"`
}

// MarshalJSON writes the preset's name, or the rungs.
func (l Ladder) MarshalJSON() ([]byte, error) {
	if l.Preset != "" {
		return json.Marshal(l.Preset)
	}
	return json.Marshal(ladderFields{l.Essential, l.Interactive, l.Batch})
}

// UnmarshalJSON reads what MarshalJSON writes; declarations are read by ParseBudget, which is strict.
func (l *Ladder) UnmarshalJSON(text []byte) error {
	*l = Ladder{}
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &l.Preset)
	}
	var f ladderFields
	if err := json.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("read a ladder: %w", err)
	}
	l.Essential, l.Interactive, l.Batch = f.Essential, f.Interactive, f.Batch
	return nil
}

// ladder reads the preset's name or the rungs.
func (r *budgetReader) ladder(to **Ladder) readField {
	return func(path string, value any) {
		l := &Ladder{}
		*to = l
		if text, ok := value.(string); ok {
			l.Preset = text
			if text == "" {
				r.wrong(path, "is empty", "write standard, rungs by priority, or leave it out")
			}
			return
		}
		rungs := func(to **Rungs) readField {
			return func(path string, value any) {
				g := &Rungs{}
				*to = g
				r.object(map[string]readField{
					"degrade_at": r.count(&g.DegradeAt, 1, ladderFull), "route": r.text(&g.Route),
					"defer_at": r.count(&g.DeferAt, 1, ladderFull), "refuse_at": r.count(&g.RefuseAt, 1, ladderFull),
					"retry_after": r.positive(&g.RetryAfter),
				})(path, value)
			}
		}
		r.object(map[string]readField{
			string(Essential): rungs(&l.Essential), string(Interactive): rungs(&l.Interactive), string(Batch): rungs(&l.Batch),
		})(path, value)
	}
}

func (b *Budget) checkLadder(found *Problems) {
	l := b.Ladder
	if l == nil {
		return
	}
	if l.Preset != "" {
		if checkChoice(found, "ladder", l.Preset, LadderStandard); l.Essential != nil || l.Interactive != nil || l.Batch != nil {
			found.add("ladder", "has a preset and rungs", "keep one of the two")
		}
		return
	}
	if l.Essential == nil && l.Interactive == nil && l.Batch == nil {
		found.add("ladder", "has no rungs", "write standard, rungs for interactive, batch or essential, or leave it out")
	}
	for _, p := range Priorities() {
		if r := l.rungs(p); r != nil {
			r.check(found, "ladder."+string(p), p)
		}
	}
	l.checkOrder(found)
}

func (r *Rungs) check(found *Problems, at string, p Priority) {
	last, below := int64(0), ""
	for _, rung := range []struct {
		name string
		at   int64
	}{{"degrade_at", r.DegradeAt}, {"defer_at", r.DeferAt}, {"refuse_at", r.RefuseAt}} {
		field := at + "." + rung.name
		switch {
		case rung.at == 0:
			continue
		case rung.at < 0 || rung.at > ladderFull:
			found.add(field, fmt.Sprintf("is %d", rung.at), "use 1 to 100, in percent of the budget used")
		case p == Essential && rung.name != "degrade_at":
			found.add(field, "would refuse essential traffic before the limit does", "leave it out: essential traffic may only be degraded")
		case rung.at <= last:
			found.add(field, fmt.Sprintf("is %d, and %s is %d: the ladder is out of order", rung.at, below, last),
				fmt.Sprintf("degrade, then defer, then refuse: use more than %d", last))
		}
		last, below = max(last, rung.at), rung.name
	}
	switch {
	case last == 0:
		found.add(at, "has no rung", "give degrade_at, defer_at or refuse_at, or leave it out")
	case r.DegradeAt != 0 && r.Route == "":
		found.add(at+".route", "is missing", "name the cheaper route that degraded requests take")
	case r.DegradeAt == 0 && r.Route != "":
		found.add(at+".route", "counts only with degrade_at", "give degrade_at, or leave it out")
	case !validRoute(r.Route):
		found.add(at+".route", fmt.Sprintf("%.70q is not a route", r.Route), fmt.Sprintf("use 1 to %d printable ASCII characters without quotes", MaxRoute))
	}
	if r.RetryAfter < 0 || r.RetryAfter > MaxLadderRetry {
		found.add(at+".retry_after", fmt.Sprintf("is %s", r.RetryAfter), fmt.Sprintf("use at most %s", MaxLadderRetry))
	} else if r.RetryAfter != 0 && r.DeferAt == 0 && r.RefuseAt == 0 {
		found.add(at+".retry_after", "counts only with defer_at or refuse_at", "give one of them, or leave it out")
	}
}

// validRoute says whether a name can travel in a header as it is.
func validRoute(route string) bool {
	for i := range len(route) {
		if c := route[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return len(route) <= MaxRoute
}

// checkOrder refuses a ladder on which batch work would outlive interactive traffic: a rung that refuses or defers.
func (l *Ladder) checkOrder(found *Problems) {
	i := l.Interactive
	if i == nil {
		return
	}
	first := func(r *Rungs) int64 { return cmp.Or(r.DeferAt, r.RefuseAt) }
	if first(i) == 0 {
		return
	}
	if b := l.Batch; b == nil || first(b) == 0 || first(b) > first(i) {
		found.add("ladder", fmt.Sprintf("is out of order: interactive traffic is turned away from %d percent on, and batch later or never", first(i)),
			fmt.Sprintf("give batch a defer_at of at most %d", first(i)))
	}
}
