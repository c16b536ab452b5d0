package allocation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// laddered is an owner of a budget of 100, of which it has 50, with a ladder.
func laddered(l *Ladder) *Locked {
	b := testBudget("a", "requests", 100)
	b.Ladder = l
	return newOwner(granted{b, 50})
}

func (l *Locked) askAs(p Priority, op Op, id string, n int64) Decision {
	r := request(op, id, requests(n))
	r.Priority = p
	return l.put(r)
}

// The rung that is reached by the part of the whole budget in use decides, by priority, and what it rests on is told. If
// this fails the ladder begins too early or too late, or for the wrong traffic.
func TestLadderByBudgetUsed(t *testing.T) {
	for _, c := range []struct {
		spent     int64 // of 50 here
		elsewhere *Elsewhere
		p         Priority
		want      string
	}{
		{0, nil, Interactive, "preferred"},
		{39, nil, Interactive, "preferred"},
		{40, nil, Interactive, "degraded 80 of share economy"},
		{49, nil, Interactive, "degraded 98 of share economy"},
		{34, nil, Batch, "preferred"},
		{35, nil, Batch, "deferred 70 of share"},
		{45, nil, Batch, "refused 90 of share"},
		{49, nil, Essential, "preferred"},
		{40, &Elsewhere{Period: firstMinute, Limit: 100, Spendable: 50}, Interactive, "preferred"}, // 40 percent of the budget
		{40, &Elsewhere{Period: firstMinute, Limit: 100, Spendable: 10}, Interactive, "degraded 80 of budget economy"},
		{40, &Elsewhere{Period: firstMinute, Limit: 100, Spendable: 11}, Interactive, "preferred"},
		{10, &Elsewhere{Period: firstMinute, Limit: 100}, Interactive, "preferred"}, // 40 are left here
		{30, &Elsewhere{Period: firstMinute, Limit: 100}, Interactive, "degraded 80 of budget economy"},
		{30, &Elsewhere{Period: firstMinute, Limit: 100, Stranded: 10}, Interactive, "preferred"}, // nobody has spent it
		{30, &Elsewhere{Period: firstMinute, Limit: 100, Unallocated: 10}, Interactive, "preferred"},
		{30, &Elsewhere{Period: firstMinute, Limit: 200}, Interactive, "preferred"},  // of another limit: 60 percent of the share
		{30, &Elsewhere{Period: secondMinute, Limit: 100}, Interactive, "preferred"}, // of another period
		{49, &Elsewhere{Period: firstMinute, Limit: 100}, Batch, "refused 99 of budget"},
	} {
		l := laddered(&Ladder{Preset: LadderStandard})
		l.ObservedAt = l.Now - 2_000_000
		k := UsageKey{Budget: "a", Period: firstMinute, Class: General}
		l.Usage[k].Spent = c.spent
		if c.elsewhere != nil {
			l.Elsewhere["a"] = *c.elsewhere
		}
		d := l.askAs(c.p, Spend, "x", 1)
		got := d.Action
		if s := d.Ladder; s != nil {
			got = strings.TrimSpace(fmt.Sprintf("%s %d of %s %s", s.Action, s.Percent, s.Of, s.Route))
			if (s.Of == OfBudget) != (s.ObservedAt == l.ObservedAt) || s.Budget != "a" || s.Action != d.Action || s.Route != d.Route {
				t.Errorf("%+v: %+v of %+v", c, *s, d)
			}
		}
		admitted := d.Action == ActionPreferred || d.Action == ActionDegraded
		charged := l.Usage[k].Spent - c.spent
		if got != c.want || d.Admitted() != admitted || charged != map[bool]int64{true: 1, false: 0}[admitted] {
			t.Errorf("%+v: %s (%s), %d charged", c, got, d.Reason, charged)
		}
		if !admitted && (d.Retry != 30 || d.Blames != "a" || d.Budgets[0].Reason != d.Reason || d.Detail == "") {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}

// Routing may lower quality; it may never route around the limit. If this fails what is degraded is free, or a replay names
// another route than the first answer.
func TestDegradedIsCharged(t *testing.T) {
	l := laddered(&Ladder{Interactive: &Rungs{DegradeAt: 1, Route: "small"}})
	l.askAs(Interactive, Spend, "0", 1)
	for i := range 49 {
		d := l.askAs(Interactive, Spend, fmt.Sprint(i+1), 1)
		if !d.Admitted() || d.Action != ActionDegraded || d.Route != "small" || d.Budgets[0].Charged != 1 {
			t.Fatalf("%d: %+v", i+1, d)
		}
	}
	if d := l.askAs(Interactive, Spend, "50", 1); d.Reason != RegionShareSpent || d.Action != ActionRefused || l.account("a") != "50/0/0" {
		t.Errorf("one over: %+v, %s", d, l.account("a"))
	}
	if d := l.askAs(Interactive, Spend, "7", 1); !d.Replayed || d.Action != ActionDegraded || d.Route != "small" || d.Ladder == nil {
		t.Errorf("a replay: %+v", d)
	}
	if d := l.askAs(Interactive, Spend, "0", 1); !d.Replayed || d.Action != ActionPreferred || d.Route != "" {
		t.Errorf("a replay of what came before the rung: %+v", d)
	}
}

// Of several ladders the highest rung decides, and the counters before any. If this fails a budget's ladder lets
// through what another one refuses.
func TestSeveralLadders(t *testing.T) {
	degrade, refuse := &Ladder{Interactive: &Rungs{DegradeAt: 1, Route: "a"}}, &Ladder{Batch: &Rungs{DeferAt: 1}, Interactive: &Rungs{RefuseAt: 1, RetryAfter: 7}}
	owner := func(ladders ...*Ladder) *Locked {
		var all []granted
		for i, l := range ladders {
			b := testBudget(string(rune('a'+i)), "requests", 100)
			b.Ladder = l
			all = append(all, granted{b, 50})
		}
		l := newOwner(all...)
		for _, u := range l.Usage {
			u.Spent = 10
		}
		return l
	}
	for name, c := range map[string]struct {
		l            *Locked
		reason       Reason
		action, from string
	}{
		"degraded, refused": {owner(degrade, refuse), LadderRefused, ActionRefused, "b"},
		"refused, degraded": {owner(refuse, degrade), LadderRefused, ActionRefused, "a"},
		"both refuse":       {owner(refuse, refuse), LadderRefused, ActionRefused, "a"},
		"none, degraded":    {owner(nil, degrade), Allow, ActionDegraded, "b"},
		"degraded, spent":   {owner(degrade, nil), RegionShareSpent, ActionRefused, ""},
	} {
		n := int64(1)
		if name == "degraded, spent" {
			n = 45
		}
		d := c.l.askAs(Interactive, Spend, "x", n)
		from := ""
		if d.Ladder != nil {
			from = d.Ladder.Budget
		}
		if d.Reason != c.reason || d.Action != c.action || from != c.from {
			t.Errorf("%s: %s, %s by %q", name, d.Reason, d.Action, from)
		}
		if c.reason == LadderRefused && d.Retry != 7 {
			t.Errorf("%s: come back after %d", name, d.Retry)
		}
	}
}

// A ladder refuses nobody in a budget that is not enforced; in shadow it says what it would have done. If this fails a trial of a
// ladder turns traffic away.
func TestLadderInShadow(t *testing.T) {
	for mode, want := range map[string]Reason{Shadow: Deferred, Meter: ""} {
		l := laddered(nil)
		b := testBudget("a", "requests", 100)
		b.Ladder, b.Enforcement = &Ladder{Preset: LadderStandard}, mode
		l.Catalogue = l.Catalogue.With(2, []ConfiguredBudget{{Budget: b, Version: 1}}, nil, nil)
		k := UsageKey{Budget: "a", Period: firstMinute, Class: General}
		l.Usage[k].Spent = 40
		d := l.askAs(Batch, Spend, "x", 1)
		if !d.Admitted() || d.Action != ActionPreferred || d.Would != want || (l.Usage[k].Spent == 41) != (mode == Meter) {
			t.Errorf("%s: %+v, %d spent", mode, d, l.Usage[k].Spent)
		}
	}
}

// A ladder travels as it was written, and one that is out of order is refused by the field. If this fails batch work
// outlives what people wait for, or a change of version changes the rungs.
func TestLadderIsRead(t *testing.T) {
	const start = `{"budget": "a", "unit": "requests", "limit": 50, "window": {"every": "1m"}, "allocation": {"policy": "demand"}, `
	for text, field := range map[string]string{
		`"ladder": "standard"`: "",
		`"ladder": {"interactive": {"degrade_at": 80, "route": "s", "refuse_at": 99}, "batch": {"defer_at": 99}}`: "",
		`"ladder": {"essential": {"degrade_at": 95, "route": "s"}}`:                                               "",
		`"ladder": {"batch": {"refuse_at": 100, "retry_after": "1h"}}`:                                            "",
		`"ladder": "steep"`:                                      "ladder",
		`"ladder": ""`:                                           "ladder",
		`"ladder": {}`:                                           "ladder",
		`"ladder": 7`:                                            "ladder",
		`"ladder": null`:                                         "ladder",
		`"ladder": {"urgent": {"defer_at": 5}}`:                  "ladder.urgent",
		`"ladder": {"batch": {}}`:                                "ladder.batch",
		`"ladder": {"batch": {"at": 5}}`:                         "ladder.batch.at",
		`"ladder": {"batch": {"defer_at": 0}}`:                   "ladder.batch.defer_at",
		`"ladder": {"batch": {"defer_at": 101}}`:                 "ladder.batch.defer_at",
		`"ladder": {"batch": {"defer_at": 7.5}}`:                 "ladder.batch.defer_at",
		`"ladder": {"batch": {"defer_at": 70, "refuse_at": 70}}`: "ladder.batch.refuse_at",
		`"ladder": {"batch": {"degrade_at": 80, "route": "s", "defer_at": 70}}`:                   "ladder.batch.defer_at",
		`"ladder": {"batch": {"degrade_at": 80, "route": "s", "refuse_at": 79}}`:                  "ladder.batch.refuse_at",
		`"ladder": {"interactive": {"degrade_at": 80}}`:                                           "ladder.interactive.route",
		`"ladder": {"batch": {"defer_at": 80, "route": "s"}}`:                                     "ladder.batch.route",
		`"ladder": {"interactive": {"degrade_at": 80, "route": "a b"}}`:                           "ladder.interactive.route",
		`"ladder": {"interactive": {"degrade_at": 80, "route": "s", "retry_after": "5s"}}`:        "ladder.interactive.retry_after",
		`"ladder": {"batch": {"defer_at": 80, "retry_after": "2h"}}`:                              "ladder.batch.retry_after",
		`"ladder": {"essential": {"defer_at": 99}}`:                                               "ladder.essential.defer_at",
		`"ladder": {"essential": {"refuse_at": 99}}`:                                              "ladder.essential.refuse_at",
		`"ladder": {"interactive": {"refuse_at": 90}}`:                                            "ladder",
		`"ladder": {"interactive": {"defer_at": 90}, "batch": {"defer_at": 91}}`:                  "ladder",
		`"ladder": {"interactive": {"refuse_at": 90}, "batch": {"degrade_at": 50, "route": "s"}}`: "ladder",
		`"protected": 51`:              "protected",
		`"protected": -1`:              "protected",
		`"protected": "5"`:             "protected",
		`"protected": 50`:              "",
		`"max_evidence_age": "31d"`:    "max_evidence_age",
		`"on_stale_evidence": "admit"`: "on_stale_evidence",
		`"max_evidence_age": "1m", "on_stale_evidence": "maybe"`: "on_stale_evidence",
	} {
		b, err := ParseBudget([]byte(start + text + "}"))
		if field != "" {
			if err == nil || !strings.HasPrefix(err.Error(), field+": ") || !strings.Contains(err.Error(), "; ") {
				t.Errorf("%s: %v, want one about %s", text, err, field)
			}
			continue
		}
		written, _ := json.Marshal(b)
		var again Budget
		if err != nil || json.Unmarshal(written, &again) != nil || !reflect.DeepEqual(again, b) {
			t.Errorf("%s: %v; written as %s", text, err, written)
		}
		if _, err := ParseBudget(written); err != nil {
			t.Errorf("%s cannot be read again: %v", written, err)
		}
	}
	b := testBudget("a", "requests", 5)
	b.Ladder = &Ladder{Preset: LadderStandard, Batch: &Rungs{DeferAt: 5}}
	if err := b.Validate(); err == nil || !strings.HasPrefix(err.Error(), "ladder: ") {
		t.Errorf("a preset with rungs: %v", err)
	}
}

// The preset is what an operator could have written. If this fails the documentation's rungs are not those in force.
func TestStandardLadderIsValid(t *testing.T) {
	b := testBudget("a", "requests", 5)
	b.Ladder = &standardLadder
	if err := b.Validate(); err != nil {
		t.Error(err)
	}
	for _, p := range Priorities() {
		preset := Ladder{Preset: LadderStandard}
		if preset.rungs(p) != standardLadder.rungs(p) {
			t.Errorf("%s", p)
		}
	}
}
