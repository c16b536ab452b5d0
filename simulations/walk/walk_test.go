package walk

import "testing"

// If a world with all rules on were violated, the protocol, or the code of it, would break the cap or lose permits.
func TestWorlds(t *testing.T) { walkAll(t, Worlds()) }

// If one of these came out otherwise, the walk would not see what the TLA+ models saw, and could not replace them.
func TestModels(t *testing.T) { walkAll(t, Models()) }

// If one of these were not violated, the runbook would warn of what cannot happen.
func TestResiduals(t *testing.T) { walkAll(t, Residuals()) }

// A rule whose absence is not seen is not checked at all.
func TestRulesAreNeeded(t *testing.T) { walkAll(t, Mutants()) }

func walkAll(t *testing.T, cases []Case) {
	t.Parallel()
	for i := range cases {
		cases[i].MaxStates = statesAtMost
	}
	Run(cases, nil, func(c Case, r Result) {
		t.Log("\n", r)
		found := r.Violation != ""
		if found != c.Violated && (found || r.Complete || statesAtMost == 0) {
			t.Errorf("%s %q: violated is %t, expected %t", c.Name, c.Why, found, c.Violated)
		}
	})
}

// If the list of rules and the mutants differed, a rule would be without its mutant.
func TestEveryRuleHasAMutant(t *testing.T) {
	caught := map[Rule]bool{}
	for _, c := range Mutants() {
		caught[Rule(c.Why)] = true
	}
	for _, r := range Rules() {
		if !caught[r] {
			t.Errorf("no mutant without %q", r)
		}
	}
}
