//go:build unix

package envoy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	servicev3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tranche/allocation"
)

const (
	randomTenants = 100 // each asks one call after the other, so that the model knows the order
	randomCalls   = 100
)

// model decides a tenant's calls with the pure function, over an account of its own.
type model struct {
	catalogue *allocation.Catalogue
	usage     map[allocation.UsageKey]*allocation.Usage
	ids       map[allocation.IDKey]*allocation.Admission
}

func (m *model) decide(r allocation.Request) allocation.Decision {
	now := time.Now().UnixMicro()
	plan := m.catalogue.Plan(r, allocation.Instant(now/1_000_000))
	l := allocation.Locked{
		Catalogue: m.catalogue, Now: now, Usage: m.usage, Full: map[allocation.UsageKey]bool{}, IDs: m.ids,
		LookedUp:     func(allocation.IDKey) bool { return true },
		ChangedUsage: map[allocation.UsageKey]bool{}, Inserted: map[allocation.IDKey]bool{}, Updated: map[allocation.IDKey]bool{},
	}
	for _, line := range plan.Lines {
		if line.Problem == "" && m.usage[line.UsageKey] == nil {
			limit := line.Budget.LimitOrZero()
			m.usage[line.UsageKey] = &allocation.Usage{
				UsageKey: line.UsageKey, Until: line.Until, Term: line.Term, Version: line.Version, Generation: 1, Granted: limit, Target: limit,
			}
		}
	}
	return l.Decide(plan).Decision
}

// drawn is one random call, in both languages.
type drawn struct {
	request allocation.Request
	look    *allocation.Request // what is only looked at, before the request is charged
	wire    *servicev3.RateLimitRequest
}

// draw makes a request, and then cuts it into descriptors as an Envoy might: in any number, in any order, things said twice.
func draw(random *rand.Rand, tenant string, serial int) drawn {
	labels := map[string]string{"tenant": tenant}
	if random.IntN(2) == 0 {
		labels["user"] = fmt.Sprint("u", random.IntN(4))
	}
	if random.IntN(2) == 0 {
		labels["path"] = []string{"/chat", "/search", "/ü b"}[random.IntN(3)]
	}
	if random.IntN(20) == 0 {
		labels["tenant"] = "nobody-" + tenant
	}
	hits := map[string]int64{"requests": []int64{0, 1, 1, 1, 2, 7}[random.IntN(6)]}
	if random.IntN(3) > 0 {
		hits["tokens"] = []int64{0, 1, 10, 40, 5000}[random.IntN(5)]
	}
	id := fmt.Sprintf("%s-%d", tenant, serial)
	switch random.IntN(10) {
	case 0:
		id = fmt.Sprintf("%s-%d", tenant, random.IntN(serial+1)) // a retry, or another request under an old id
	case 1:
		id = ""
	}
	op := ""
	if random.IntN(4) == 0 {
		op = []string{"reserve", "spend", "check"}[random.IntN(3)]
	}
	return drawn{wire: encode(random, labels, hits, id, op)}.meaning(labels, hits, id, op)
}

func encode(random *rand.Rand, labels map[string]string, hits map[string]int64, id, op string) *servicev3.RateLimitRequest {
	req := &servicev3.RateLimitRequest{Domain: "edge"}
	entry := func(key, value string) *descriptorv3.RateLimitDescriptor_Entry {
		return &descriptorv3.RateLimitDescriptor_Entry{Key: key, Value: value}
	}
	for unit, n := range hits {
		d := one(fmt.Sprint("hits=", n))
		if n > 0 && random.IntN(2) == 0 && req.HitsAddend == 0 {
			req.HitsAddend, d.HitsAddend = uint32(n), nil
		}
		if unit != "requests" || random.IntN(2) == 0 {
			d.Entries = append(d.Entries, entry("unit", unit))
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	anywhere := func(key, value string) {
		for times := 1 + random.IntN(2); times > 0; times-- {
			d := req.Descriptors[random.IntN(len(req.Descriptors))]
			d.Entries = append(d.Entries, entry(key, value))
		}
	}
	for name, value := range labels {
		anywhere(name, value)
	}
	if id != "" {
		anywhere("admission_id", id)
	}
	if op != "" {
		anywhere("op", op)
	}
	for _, d := range req.Descriptors {
		if len(d.Entries) == 0 || random.IntN(5) == 0 {
			d.Entries = append(d.Entries, entry("remote_address", "192.0.2.7"))
		}
		random.Shuffle(len(d.Entries), func(i, j int) { d.Entries[i], d.Entries[j] = d.Entries[j], d.Entries[i] })
	}
	random.Shuffle(len(req.Descriptors), func(i, j int) {
		req.Descriptors[i], req.Descriptors[j] = req.Descriptors[j], req.Descriptors[i]
	})
	return req
}

// meaning is what the documentation says the call means.
func (d drawn) meaning(labels map[string]string, hits map[string]int64, id, op string) drawn {
	r := allocation.Request{Op: allocation.Spend, Labels: allocation.Labels{"product": "api"}, Costs: map[string]int64{}}
	for name, value := range labels {
		if name == "path" {
			name = "route"
		}
		r.Labels[name] = value
	}
	r.Key = allocation.IDKey{Credential: "edge-1", Tenant: r.Labels["tenant"], ID: id}
	if op != "" {
		r.Op = allocation.Op(op)
	}
	looked, sum := map[string]int64{}, int64(0)
	for unit, n := range hits {
		r.Costs[unit], looked[unit], sum = n, max(n, 1), sum+n
	}
	if sum == 0 {
		r.Op = allocation.Check
	}
	if r.Op == allocation.Check {
		r.Costs = looked
		d.request = r
		return d
	}
	r.Generated = id == ""
	for _, n := range hits {
		if n == 0 {
			look := r
			look.Op, look.Costs = allocation.Check, looked
			d.look = &look
		}
	}
	d.request = r
	return d
}

// decide is the model's answer. A look that refuses stands, unless the id was admitted before.
func (m *model) answer(d drawn) allocation.Decision {
	if d.look != nil {
		if looked := m.decide(*d.look); !looked.Admitted() && m.ids[d.request.Key] == nil {
			return looked
		}
	}
	return m.decide(d.request)
}

// 10,000 random calls through Envoy's types, gRPC, a node and Postgres, against the pure decision. If this failed, what
// Envoy is told would be another thing than what the budgets say.
func TestRandomDescriptorsAgainstThePureDecision(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var budgets strings.Builder
	for i := range randomTenants {
		for _, text := range []string{
			`{"budget":"t/%d","unit":"requests","limit":60,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"t%d"},"allocation":{"policy":"home","region":"us-east"}}`,
			`{"budget":"tokens/%d","unit":"tokens","limit":900,"window":{"calendar":"day"},"match":{"tenant":"t%d","route":"/chat"},"allocation":{"policy":"home","region":"us-east"}}`,
			`{"budget":"user/%d/{user}","unit":"requests","limit":12,"window":{"calendar":"day"},"match":{"tenant":"t%d"},"missing_label":"unchecked","admission_id":"generated","allocation":{"policy":"home","region":"us-east"}}`,
			`{"budget":"open/%d","unit":"requests","limit":30,"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"admission_id":"generated","match":{"tenant":"nobody-t%d","route":"/search"},"allocation":{"policy":"home","region":"us-east"}}`,
		} {
			fmt.Fprintf(&budgets, text+"\n", i, i)
		}
	}
	w := newWorld(t, budgets.String())
	catalogue := w.node.Catalogue()
	var all sync.WaitGroup
	reasons := make([]map[allocation.Reason]int, randomTenants)
	for i := range randomTenants {
		reasons[i] = map[allocation.Reason]int{}
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			m := &model{catalogue: catalogue, usage: map[allocation.UsageKey]*allocation.Usage{}, ids: map[allocation.IDKey]*allocation.Admission{}}
			for serial := range randomCalls {
				d := draw(random, fmt.Sprint("t", i), serial)
				if d.request.Generated {
					d.request.Key.ID = fmt.Sprint("made-", serial)
				}
				want := m.answer(d)
				reasons[i][want.Reason]++
				if problem := w.compare(d, want); problem != "" {
					t.Errorf("tenant %d, call %d: %s\n%v", i, serial, problem, d.wire)
					return
				}
			}
			if problem := w.account(m, i); problem != "" {
				t.Error(problem)
			}
		})
	}
	all.Wait()
	sum := map[allocation.Reason]int{}
	for _, one := range reasons {
		for reason, n := range one {
			sum[reason] += n
		}
	}
	t.Logf("%d calls: %v", randomTenants*randomCalls, sum)
	for _, reason := range []allocation.Reason{
		allocation.Allow, allocation.CeilingReached, allocation.NoBudget, allocation.CostUnknown, allocation.CostExceedsLimit,
		allocation.AdmissionIDConflict, allocation.AdmissionIDMissing,
	} {
		if sum[reason] < 20 {
			t.Errorf("%s: only %d times; the calls are too tame", reason, sum[reason])
		}
	}
}

// notTried says whether a call was told that it may ask again and that nothing was charged: where the machine is slow, a
// transaction may not get as far as its locks in time.
func notTried(err error) bool {
	return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), string(allocation.DatabaseUnavailable))
}

// compare asks, and holds the answer against the model's. A region whose share is spent says ceiling_reached or
// region_share_spent by what it has heard of elsewhere; both are the same refusal.
func (w *world) compare(d drawn, want allocation.Decision) string {
	r, err := w.tried(d.wire)
	if err != nil {
		return err.Error()
	}
	reason := r.GetDynamicMetadata().GetFields()["reason"].GetStringValue()
	if same := func(s string) string { return strings.Replace(s, "region_share_spent", "ceiling_reached", 1) }; same(reason) != same(string(want.Reason)) {
		return fmt.Sprintf("%s, want %s %s", reason, want.Reason, want.Detail)
	}
	if (r.GetOverallCode() == ok) != want.Admitted() || len(r.GetStatuses()) != len(d.wire.GetDescriptors()) {
		return fmt.Sprintf("%v, want %s", r, want.Reason)
	}
	over := false
	for i, s := range r.GetStatuses() {
		over = over || s.GetCode() == servicev3.RateLimitResponse_OVER_LIMIT
		if s.GetCurrentLimit() == nil {
			continue
		}
		remaining, named := int64(-1), s.GetCurrentLimit().GetName()
		for _, b := range want.Budgets {
			if b.Budget == named {
				remaining = b.Remaining
			}
		}
		if int64(s.GetLimitRemaining()) != remaining {
			return fmt.Sprintf("status %d: %d left of %s, want %d", i, s.GetLimitRemaining(), named, remaining)
		}
	}
	if over == want.Admitted() {
		return fmt.Sprintf("the statuses say otherwise than the whole: %v", r)
	}
	return ""
}

// account holds what the owner has charged a tenant against the model's account.
func (w *world) account(m *model, tenant int) string {
	want := map[string][2]int64{}
	for key, u := range m.usage {
		sum := want[key.Budget]
		want[key.Budget] = [2]int64{sum[0] + u.Spent, sum[1] + u.Reserved}
	}
	for _, format := range []string{"t/%d", "tokens/%d", "user/%d/{user}", "open/%d"} {
		name := fmt.Sprintf(format, tenant)
		account, err := w.node.Export(w.t.Context(), strings.TrimSuffix(name, name[len(name)-1:]), 100)
		if err != nil {
			return err.Error()
		}
		var got [2]int64
		for _, u := range account.Usage {
			if u.Budget == name {
				got[0], got[1] = got[0]+u.Spent, got[1]+u.Reserved
			}
		}
		if got != want[name] {
			return fmt.Sprintf("%s: charged %v, want %v", name, got, want[name])
		}
	}
	return ""
}
