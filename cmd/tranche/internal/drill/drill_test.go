package drill

import (
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

func heard(list ...answer) *drill {
	d := &drill{record: &Record{Started: time.Unix(0, 0), Refused: map[string]map[string]int{}, Routes: map[string]int{}}}
	for i, a := range list {
		d.heard = append(d.heard, event{at: time.Unix(int64(i+1), 0), node: &node{name: "n"}, priority: interactive, answer: a})
	}
	return d
}

var (
	usual    = answer{Reason: "allow", Action: allocation.ActionPreferred, status: 200}
	cheaper  = answer{Reason: "allow", Action: allocation.ActionDegraded, Route: "economy", status: 200}
	later    = answer{Reason: "deferred", Action: allocation.ActionDeferred, status: 429}
	never    = answer{Reason: "only_protected_left", Action: allocation.ActionRefused, status: 429}
	shareOut = answer{Reason: "region_share_spent", Action: allocation.ActionRefused, status: 429}
)

// The judge of the sequence must see each way in which it can be wrong, or a drill proves nothing.
func TestSequence(t *testing.T) {
	for _, c := range []struct {
		what   string
		heard  []answer
		broken string
	}{
		{"degraded", []answer{usual, cheaper, never}, ""},
		{"deferred", []answer{usual, later, never}, ""},
		{"one share is spent first", []answer{usual, shareOut, cheaper, never}, ""},
		{"nothing", nil, "nothing was admitted"},
		{"no warning", []answer{usual, never}, "nothing was degraded or deferred"},
		{"no end", []answer{usual, cheaper}, "nothing was refused"},
		{"refused first", []answer{usual, never, cheaper}, "the order was"},
		{"never preferred", []answer{cheaper, usual, never}, "the order was"},
	} {
		broken := heard(c.heard...).sequence()
		if c.broken == "" && len(broken) > 0 || c.broken != "" && (len(broken) != 1 || !strings.Contains(broken[0], c.broken)) {
			t.Errorf("%s: %v", c.what, broken)
		}
	}
}

// The record is what remains of a drill: it counts each answer once, by what became of it.
func TestRecord(t *testing.T) {
	d := heard(usual, usual, cheaper, later, never, shareOut)
	d.sequence()
	after := int64(12)
	d.record.Nodes, d.record.Revoked = []NodeRecord{{Node: "n", Region: "us-east"}}, []NodeTime{{Node: "n", AfterMS: &after}}
	d.record.Steps = []StepRecord{{Step: "burst", Kept: true}, {Step: "revoked", Broken: []string{"n | still serves"}}}
	d.summary()
	r := d.record
	if r.Kept || r.Routes["preferred"] != 2 || r.Routes["economy"] != 1 || r.Refused[interactive]["only_protected_left"] != 1 || r.Refused[interactive]["deferred"] != 1 {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{"**a promise was broken**", `n \| still serves`, "| n | us-east | - | - | - | 12 ms |", "| economy | 1 |", "preferred → degraded (route economy), interactive → deferred"} {
		if !strings.Contains(r.Markdown(), want) {
			t.Errorf("it does not say %q: %s", want, r.Markdown())
		}
	}
	r.Steps = r.Steps[:1]
	if d.summary(); !r.Kept {
		t.Errorf("%v", r.Broken())
	}
}

// Which budget is exhausted is never a guess.
func TestChoose(t *testing.T) {
	limit := int64(100)
	fit := allocation.Budget{Name: "drill/a", Unit: "requests", Limit: &limit, Protected: 10, Ladder: &allocation.Ladder{Preset: allocation.LadderStandard}, Synthetic: true}
	with := func(change func(*allocation.Budget)) coordinator.BudgetAnswer {
		b := fit
		change(&b)
		return coordinator.BudgetAnswer{Budget: b}
	}
	is := coordinator.BudgetAnswer{Budget: fit}
	huge := int64(MaxLimit + 1)
	for what, list := range map[string][]coordinator.BudgetAnswer{
		"two": {is, with(func(b *allocation.Budget) { b.Name = "drill/b" })}, "none": nil,
		"no ladder":       {with(func(b *allocation.Budget) { b.Ladder = nil })},
		"none protected":  {with(func(b *allocation.Budget) { b.Protected = 0 })},
		"a template":      {with(func(b *allocation.Budget) { b.Name = "drill/{caller}" })},
		"another unit":    {with(func(b *allocation.Budget) { b.Unit = "tokens" })},
		"too large":       {with(func(b *allocation.Budget) { b.Limit = &huge })},
		"not enforced":    {with(func(b *allocation.Budget) { b.Enforcement = allocation.Shadow })},
		"of both of them": {with(func(b *allocation.Budget) { b.Name = "shared" })},
	} {
		d := heard()
		if err := d.choose(list, []coordinator.BudgetAnswer{with(func(b *allocation.Budget) { b.Name = "shared" })}); err == nil {
			t.Errorf("%s: %s is chosen", what, d.target.budget.Name)
		}
	}
	d := heard()
	if err := d.choose([]coordinator.BudgetAnswer{is}, nil); err != nil || d.target.limit != 100 {
		t.Error(err, d.target)
	}
}
