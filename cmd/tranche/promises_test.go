package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
)

const promisedBudgets = `
budget: exact
unit: requests
limit: 10
window: {calendar: year, zone: UTC}
match: {tenant: exact}
allocation: {policy: home, region: us-east}
---
budget: last
unit: requests
limit: 60
window: {calendar: year, zone: UTC}
match: {tenant: last}
allocation: {policy: fixed, weights: {us-east: 3, eu-west: 2}}
---
budget: strict
unit: requests
limit: 100
window: {calendar: year, zone: UTC}
match: {tenant: strict}
max_evidence_age: 2s
allocation: {policy: fixed, weights: {us-east: 1, eu-west: 1}}
---
budget: within
unit: requests
limit: 20
window: {calendar: year, zone: UTC}
match: {tenant: within}
max_evidence_age: 2s
on_stale_evidence: admit
allocation: {policy: fixed, weights: {us-east: 1, eu-west: 1}}
`

// promised is a deployment on a real etcd and two real Postgres, with these budgets.
type promised struct{ *vault }

// as asks a region for a tenant.
func (p promised) as(region, tenant, op, id string, cost int) (int, string) {
	body := fmt.Sprintf(`{"op":%q,"labels":{"tenant":%q},"costs":{"requests":%d},"deadline_ms":20000}`, op, tenant, cost)
	return p.decided(region, p.Gateways[stage.Edge1], "/v1/admit", id, body)
}

// says fails unless the answer is this.
func (p promised) says(region, tenant, op, id string, cost, status int, reason allocation.Reason) {
	p.t.Helper()
	if got, text := p.as(region, tenant, op, id, cost); got != status || !strings.Contains(text, `"reason":"`+string(reason)+`"`) {
		p.t.Errorf("%s for %s costs %d: %d, want %d %s: %s", id, tenant, cost, got, status, reason, text)
	}
}

// until waits until a check of a tenant is answered so.
func (p promised) until(region, tenant string, reason allocation.Reason) {
	p.t.Helper()
	last := ""
	err := stage.Until(p.t.Context(), 2*progressWait, fmt.Sprintf("%s answers %s with %s", region, tenant, reason), func() (bool, error) {
		_, last = p.as(region, tenant, "check", "looks", 1)
		return strings.Contains(last, `"reason":"`+string(reason)+`"`), nil
	})
	if err != nil {
		p.t.Fatalf("%v; the last answer: %s", err, last)
	}
}

// What a hard budget promises, on a real etcd and real Postgres, by the requests that callers make: the exact ceiling and one over,
// five hundred at once on the last permits, both declarations for stale evidence, and what an upstream did. If this fails the
// parts that keep each promise alone do not keep it together.
func TestPromisesOnRealProcesses(t *testing.T) {
	p := promised{openVault(t)}
	file := filepath.Join(t.TempDir(), "budgets.yaml")
	if err := os.WriteFile(file, []byte(promisedBudgets), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run(0, "budgets", "apply", file)
	for _, region := range []string{"us-east", "eu-west"} {
		for _, tenant := range []string{"last", "strict", "within"} {
			p.until(region, tenant, allocation.Allow)
		}
	}
	p.until("us-east", "exact", allocation.Allow)
	p.says("us-east", "exact", "spend", "e-1", 9, 200, allocation.Allow)
	p.says("us-east", "exact", "spend", "e-2", 2, 429, allocation.CeilingReached)
	p.says("us-east", "exact", "spend", "e-3", 1, 200, allocation.Allow)
	p.says("us-east", "exact", "spend", "e-4", 1, 429, allocation.CeilingReached)
	p.says("us-east", "exact", "spend", "e-5", 11, 422, allocation.CostExceedsLimit)
	p.says("us-east", "exact", "spend", "e-1", 9, 200, allocation.Allow) // a replay
	p.lastPermits()
	p.upstream()
	p.stale()
	p.badInput()
	p.run(0, "verify", "--node-token", p.Gateways[stage.Edge1])
	if err := p.Failure(); err != nil {
		t.Error(err)
	}
}

// lastPermits: five hundred reservations at once, in both regions, for sixty permits.
func (p promised) lastPermits() {
	p.t.Helper()
	p.run(0, "budgets", "shares", "last") // 36 and 24 are held: a check was admitted in each
	var mu sync.Mutex
	var wait sync.WaitGroup
	answers := map[string]int{}
	for i := range 500 {
		wait.Go(func() {
			region := []string{"us-east", "eu-west"}[i%2]
			status, text := p.as(region, "last", "reserve", fmt.Sprint("last-", i), 1)
			reason := regexp.MustCompile(`"reason":"([a-z_]+)"`).FindStringSubmatch(text)
			mu.Lock()
			defer mu.Unlock()
			if len(reason) != 2 {
				answers[fmt.Sprint(region, " ", status, " ", text)]++
				return
			}
			answers[fmt.Sprint(region, " ", reason[1])]++
		})
	}
	wait.Wait()
	refused := 0
	for answer, n := range answers {
		for _, r := range []allocation.Reason{allocation.RegionShareSpent, allocation.CeilingReached, allocation.CapacityStranded} { // the last of a region that is silent for a moment
			if strings.HasSuffix(answer, " "+string(r)) {
				refused += n
			}
		}
	}
	if answers["us-east allow"] != 36 || answers["eu-west allow"] != 24 || refused != 440 {
		p.t.Errorf("%v", answers)
	}
}

// upstream: what the upstream did is told apart from our own refusals, and changes no charge.
func (p promised) upstream() {
	p.t.Helper()
	p.says("us-east", "within", "spend", "up-1", 1, 200, allocation.Allow)
	for outcome, cause := range map[string]string{"upstream_refused": "upstream_account", "timeout": "not_proven"} {
		status, text := p.decided("us-east", p.Gateways[stage.Edge1], "/v1/decisions/up-1/outcome", "up-1", fmt.Sprintf(`{"outcome":%q,"tenant":"within"}`, outcome))
		receipt := regexp.MustCompile(`tr1\.[^"]+`).FindString(text)
		if status != http.StatusOK || receipt == "" {
			p.t.Fatalf("%s: %d %s", outcome, status, text)
		}
		if printed := p.run(0, "explain", receipt); !strings.Contains(printed, "genuine") || !strings.Contains(printed, cause) {
			p.t.Errorf("%s: %s", outcome, printed)
		}
	}
	p.says("us-east", "within", "spend", "up-1", 1, 200, allocation.Allow) // still charged, once
}

// stale: a region that is cut off refuses where the tenant said so, and spends its share, and no more, where it said that.
func (p promised) stale() {
	p.t.Helper()
	p.Regions["eu-west"].Cut()
	p.until("eu-west", "strict", allocation.EvidenceStale)
	p.says("eu-west", "strict", "spend", "s-1", 1, 503, allocation.EvidenceStale)
	for i := range 10 {
		p.says("eu-west", "within", "spend", fmt.Sprint("w-", i), 1, 200, allocation.Allow)
	}
	if status, text := p.as("eu-west", "within", "spend", "w-over", 1); status != 429 {
		p.t.Errorf("above its share: %d %s", status, text)
	}
	p.until("us-east", "strict", allocation.Allow) // a machine that is slow for two seconds makes its evidence old, too, for a moment
	p.Regions["eu-west"].Heal()
	p.until("eu-west", "strict", allocation.Allow)
}

// badInput names the field, and nothing is changed or charged.
func (p promised) badInput() {
	p.t.Helper()
	const rest = "unit: requests\nlimit: 10\nwindow: {every: 1h}\nmatch: {tenant: bad}\nallocation: {policy: demand}\n"
	for field, text := range map[string]string{
		"protected": "budget: bad\nprotected: 11\n" + rest,
		"ladder":    "budget: bad\nladder: {batch: {refuse_at: 70, defer_at: 90}}\n" + rest,
		"synthetic": "budget: bad\nsynthetic: true\n" + strings.Replace(rest, "tenant", "capability", 1),
	} {
		file := filepath.Join(p.t.TempDir(), "bad.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			p.t.Fatal(err)
		}
		if printed := p.run(2, "budgets", "apply", file); !strings.Contains(printed, field) {
			p.t.Errorf("%s: %s", field, printed)
		}
	}
	if status, text := p.ask("us-east", p.Gateways[stage.Edge1], "/v1/admit", "vip", `{"labels":{"tenant":"last"},"priority":"vip"}`); status != 400 || !strings.Contains(text, `"field":"priority"`) {
		p.t.Errorf("a priority that there is not: %d %s", status, text)
	}
	if printed := p.run(2, "block", "tenant=bad", "--reason", "forever"); !strings.Contains(printed, "for") {
		p.t.Errorf("a block without an end: %s", printed)
	}
}
