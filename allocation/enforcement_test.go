package allocation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func mode(b Budget, enforcement string) Budget {
	b.Enforcement = enforcement
	return b
}

// Each fault that is a budget's own refuses when it is enforced, is only noted in shadow, and is nothing to a meter. If
// this fails, a shadow takes traffic down, or keeps quiet about what enforcement would do.
func TestFaultsInShadow(t *testing.T) {
	notABudgets := []string{"blocked", "key unknown", "key revoked", "out of scope", "stopped", "no id", "known id, other labels", "known id, released", "too many budgets"}
	for _, f := range faultsInOrder {
		for _, how := range []string{Shadow, Meter} {
			with := fault{make: func(w *faulty) {
				f.make(w)
				for _, g := range w.budget {
					g.Budget = mode(g.Budget, how)
				}
			}}
			w := newFaulty(Spend, with)
			d := w.put(w.r)
			if slices.Contains(notABudgets, f.name) {
				if d.Reason != f.reason {
					t.Errorf("%s, %s: %s, want %s", how, f.name, d.Reason, f.reason)
				}
				continue
			}
			want := f.reason
			if how == Meter {
				want = ""
			}
			if !d.Admitted() || d.Action != ActionPreferred || d.Would != want || (want != "") != (d.WouldBlame != "") {
				t.Errorf("%s, %s: %s, would %q of %q", how, f.name, d.Reason, d.Would, d.WouldBlame)
			}
			if how == Shadow && len(w.ChangedUsage) != 0 {
				t.Errorf("shadow, %s: charged %v", f.name, w.ChangedUsage)
			}
		}
	}
}

// A region in shadow must hold, at every moment, exactly what an enforcing one would hold after the same requests, and note
// exactly its refusals. If this fails, turning enforcement on would refuse others than the report said.
func TestShadowIsEnforcementWithoutRefusals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var strict, shadow []granted
		for i := range rapid.IntRange(1, 3).Draw(t, "budgets") {
			b := testBudget(fmt.Sprint("b", i), rapid.SampledFrom([]string{"requests", "tokens"}).Draw(t, "unit"), rapid.Int64Range(0, 30).Draw(t, "limit"))
			share := rapid.Int64Range(0, *b.Limit).Draw(t, "share")
			strict, shadow = append(strict, granted{b, share}), append(shadow, granted{mode(b, Shadow), share})
		}
		enforcing, watching := newOwner(strict...), newOwner(shadow...)
		for i := range rapid.IntRange(1, 40).Draw(t, "requests") {
			r := request(rapid.SampledFrom([]Op{Spend, Reserve, Reserve, Check, Settle, Release, Extend}).Draw(t, "op"),
				fmt.Sprint("id-", rapid.IntRange(0, i).Draw(t, "id")), map[string]int64{"tokens": rapid.Int64Range(0, 12).Draw(t, "tokens"), "requests": rapid.Int64Range(0, 3).Draw(t, "n")})
			a := enforcing.put(r)
			if r.Op == Extend && a.Reason != Allow || r.Op != Spend && r.Op != Reserve && r.Op != Check && enforcing.IDs[r.Key] == nil {
				continue // it speaks of what only one of the two has
			}
			b := watching.put(r)
			switch {
			case a.Reason == Allow && (b.Reason != Allow || b.Would != "" && !b.Replayed):
				t.Fatalf("%s %s: enforcement admits, shadow says %s, would %s", r.Op, r.Key.ID, b.Reason, b.Would)
			case r.Op != Spend && r.Op != Reserve && r.Op != Check:
			case a.Reason != Allow && isCounter(a.Reason) && !b.Replayed && (b.Reason != Allow || b.Would != a.Reason || b.WouldBlame != a.Blames):
				t.Fatalf("%s %s: enforcement refuses with %s of %s, shadow says %s, would %s of %s", r.Op, r.Key.ID, a.Reason, a.Blames, b.Reason, b.Would, b.WouldBlame)
			}
			// What was let through is bound to its id, where a refusal binds nothing: its retry is another's attempt.
			if b.Would != "" && r.Op != Check {
				delete(watching.IDs, r.Key)
			}
			for k, u := range enforcing.Usage {
				if *u != *watching.Usage[k] {
					t.Fatalf("after %s %s: enforcing %+v, shadow %+v", r.Op, r.Key.ID, *u, *watching.Usage[k])
				}
			}
		}
	})
}

// A request hits budgets that are enforced beside some that are not. If this fails, shadow spends above a share, refuses
// somebody, or a refused request is charged.
func TestMixedEnforcement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var budgets []granted
		for i := range rapid.IntRange(1, 5).Draw(t, "budgets") {
			b := testBudget(fmt.Sprint("b", i), "requests", rapid.Int64Range(0, 30).Draw(t, "limit"))
			budgets = append(budgets, granted{mode(b, rapid.SampledFrom([]string{Enforce, Shadow, Meter}).Draw(t, "mode")), *b.Limit})
		}
		l := newOwner(budgets...)
		asked := int64(0)
		for i := range rapid.IntRange(1, 30).Draw(t, "requests") {
			before := l.everything()
			cost := rapid.Int64Range(0, 9).Draw(t, "cost")
			d := l.ask(Spend, fmt.Sprint(i), requests(cost))
			refusedBy := slices.IndexFunc(d.Budgets, func(b BudgetDecision) bool { return b.Enforcement == "" && b.Reason != Allow })
			if d.Admitted() != (refusedBy < 0) {
				t.Fatalf("%s although %+v", d.Reason, d.Budgets)
			}
			if !d.Admitted() {
				if d.Would != "" || l.everything() != before {
					t.Fatal("a refusal is noted as shadow, or charges")
				}
				continue
			}
			asked += cost
			for _, b := range d.Budgets {
				switch {
				case b.Enforcement == Shadow && d.Would != "" && b.Charged != 0:
					t.Fatalf("shadow charges what it would have refused: %+v", b)
				case b.Enforcement != Meter && b.Overdraft != 0:
					t.Fatalf("overdraft at once: %+v", b)
				case b.Enforcement == Meter && b.Charged+b.Overdraft != cost:
					t.Fatalf("a meter counts %+v of %d", b, cost)
				}
			}
		}
		for k, u := range l.Usage {
			if u.Spent > u.Granted {
				t.Fatalf("%v: spent %d of %d", k, u.Spent, u.Granted)
			}
			if b, _ := l.Catalogue.Budget(k.Budget); b.Budget.Enforcement == Meter && k.Period == firstMinute && u.Spent+u.Overdraft != asked {
				t.Fatalf("the meter %s shows %d of %d", k.Budget, u.Spent+u.Overdraft, asked)
			}
		}
	})
}

// If this failed, the true cost of what shadow let through would be charged when it is settled, or its caller would meet
// an error that enforcement never makes.
func TestSettleOfWhatWasLetThrough(t *testing.T) {
	l := newOwner(granted{mode(testBudget("a", "tokens", 10), Shadow), 10}, granted{mode(testBudget("m", "tokens", 10), Meter), 10})
	d := l.ask(Reserve, "big", map[string]int64{"tokens": 15})
	if !d.Admitted() || d.State != StateReserved || d.Would != CostExceedsLimit || l.account("a") != "0/0/0" || l.account("m") != "0/10/0" {
		t.Fatalf("%+v, a %s, m %s", d, l.account("a"), l.account("m"))
	}
	if again := l.ask(Reserve, "big", map[string]int64{"tokens": 15}); !again.Replayed || again.Would != d.Would || again.WouldBlame != "a" {
		t.Errorf("the replay says %+v", again)
	}
	if e := l.ask(Extend, "big", map[string]int64{"tokens": 40}); !e.Admitted() || l.account("m") != "0/10/0" {
		t.Errorf("%+v, m %s", e, l.account("m"))
	}
	for range 2 {
		s := l.ask(Settle, "big", map[string]int64{"tokens": 12})
		if s.Reason != Allow || s.State != StateSettled || l.account("a") != "0/0/0" || l.account("m") != "10/0/2" {
			t.Errorf("%+v, a %s, m %s", s, l.account("a"), l.account("m"))
		}
	}
	only := newOwner(granted{mode(testBudget("a", "tokens", 10), Shadow), 10})
	only.ask(Reserve, "big", map[string]int64{"tokens": 15})
	for _, op := range []Op{Extend, Settle, Settle} {
		if s := only.ask(op, "big", nil); s.Reason != Allow {
			t.Errorf("%s: %+v", op, s)
		}
	}
	only.ask(Reserve, "other", map[string]int64{"tokens": 15})
	if s := only.ask(Release, "other", nil); s.Reason != Allow || s.State != StateReleased {
		t.Errorf("%+v", s)
	}
}

// If this failed, a share of the traffic would not be enforced, or be another share at each retry; or a budget would stay
// in shadow for ever after its time.
func TestEnforceForAndUntil(t *testing.T) {
	b := mode(testBudget("a", "requests", 0), Shadow)
	b.EnforceFor = &EnforceFor{Percent: 5}
	enforced := 0
	for i := range 20_000 {
		if b.EnforcementOf(request(Spend, fmt.Sprint("id-", i), nil), firstMinute) == Enforce {
			enforced++
		}
	}
	if enforced < 900 || enforced > 1100 {
		t.Errorf("%d of 20000 are enforced, of 5 %%", enforced)
	}
	more := b
	more.EnforceFor = &EnforceFor{Percent: 50}
	for i := range 1000 {
		r := request(Spend, fmt.Sprint("id-", i), nil)
		if b.EnforcementOf(r, 0) == Enforce && more.EnforcementOf(r, 0) != Enforce {
			t.Fatal("an id is let out again when the share grows")
		}
	}
	b.EnforceFor = &EnforceFor{Match: map[string]string{"tenant": "acme", "caller": "kim"}}
	l := newOwner(granted{b, 0})
	if d := l.ask(Spend, "x", nil); d.Reason != CeilingReached || d.Would != "" {
		t.Errorf("%+v", d)
	}
	other := request(Spend, "y", nil)
	other.Labels["caller"] = "lee"
	if d := l.put(other); !d.Admitted() || d.Would != CeilingReached {
		t.Errorf("%+v", d)
	}
	b.EnforceFor, b.EnforcementUntil = nil, firstMinute+30
	l = newOwner(granted{b, 0})
	for second, want := range map[int64]Reason{29: Allow, 30: CeilingReached} {
		l.Now = (int64(firstMinute) + second) * 1_000_000
		if d := l.ask(Spend, fmt.Sprint(second), nil); d.Reason != want {
			t.Errorf("at second %d: %s", second, d.Reason)
		}
	}
}

// If this failed, an operator could let traffic above a limit by an edit that looks harmless.
func TestLoosens(t *testing.T) {
	budget := func(enforcement string, until Instant, percent int64, match ...string) Budget {
		b := mode(testBudget("a", "requests", 1), enforcement)
		b.EnforcementUntil = until
		if percent > 0 || len(match) > 0 {
			b.EnforceFor = &EnforceFor{Percent: percent, Match: map[string]string{}}
			for _, m := range match {
				name, value, _ := strings.Cut(m, "=")
				b.EnforceFor.Match[name] = value
			}
		}
		return b
	}
	for i, c := range []struct {
		before, after Budget
		field         string
	}{
		{budget("", 0, 0), budget(Shadow, 0, 0), "enforcement"},
		{budget(Enforce, 0, 0), budget(Meter, 9, 0), "enforcement"},
		{budget(Shadow, 0, 0), budget(Enforce, 0, 0), ""},
		{budget(Shadow, 0, 0), budget(Meter, 0, 0), ""},
		{budget(Shadow, 9, 0), budget(Shadow, 10, 0), "enforcement_until"},
		{budget(Shadow, 9, 0), budget(Shadow, 0, 0), "enforcement_until"},
		{budget(Shadow, 9, 0), budget(Shadow, 8, 0), ""},
		{budget(Shadow, 0, 5), budget(Shadow, 0, 4), "enforce_for"},
		{budget(Shadow, 0, 5), budget(Shadow, 0, 0), "enforce_for"},
		{budget(Shadow, 0, 5), budget(Shadow, 0, 6), ""},
		{budget(Shadow, 0, 0, "tenant=a", "plan=b"), budget(Shadow, 0, 0, "tenant=a"), ""},
		{budget(Shadow, 0, 0, "tenant=a"), budget(Shadow, 0, 0, "tenant=a", "plan=b"), "enforce_for"},
		{budget(Shadow, 0, 0, "tenant=a"), budget(Shadow, 0, 3), "enforce_for"},
	} {
		field, loosens := c.after.Loosens(c.before)
		if field != c.field || loosens != (c.field != "") {
			t.Errorf("%d: %q, want %q", i, field, c.field)
		}
	}
	strict, loose := ConfiguredBudget{Budget: budget(Enforce, 0, 0), Version: 1}, ConfiguredBudget{Budget: budget(Shadow, 0, 0), Version: 2}
	if s := Stricter(strict, loose); !s.Budget.enforces() || s.Version != 3 {
		t.Errorf("of two lines of descent the looser wins: %+v", s)
	}
	if s := Stricter(ConfiguredBudget{Budget: budget(Shadow, 0, 0), Version: 1}, ConfiguredBudget{Budget: budget(Enforce, 0, 0), Version: 2}); !s.Budget.enforces() || s.Version != 2 {
		t.Errorf("%+v", s)
	}
}
