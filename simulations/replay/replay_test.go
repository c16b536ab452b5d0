package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/allocation"
)

func budget(t *testing.T, text string) allocation.Budget {
	t.Helper()
	b, err := allocation.ParseBudget([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func policy(t *testing.T) []allocation.Budget {
	return []allocation.Budget{
		budget(t, `{"budget":"acme/requests","unit":"requests","limit":20,"window":{"every":"1m"},"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"a":1,"b":1}}}`),
		budget(t, `{"budget":"tokens/{caller}","unit":"tokens","limit":100,"window":{"every":"1h"},"match":{"kind":"llm"},"allocation":{"policy":"fixed","weights":{"a":1,"b":1}}}`),
		budget(t, `{"budget":"home","unit":"requests","limit":100,"window":{"every":"1h"},"match":{"tenant":"home"},"allocation":{"policy":"home","region":"b"}}`),
	}
}

func line(at time.Duration, region, rest string) string {
	t := time.Date(2026, 3, 2, 13, 0, 0, 0, time.UTC).Add(at)
	return fmt.Sprintf(`{"time":%q,"region":%q,%s}`, t.Format(time.RFC3339Nano), region, rest) + "\n"
}

func replayed(t *testing.T, log string) Report {
	t.Helper()
	r, err := Run(t.Context(), strings.NewReader(log), policy(t), Options{Name: "log.ndjson"})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What would have been refused, to whom, and why: the numbers can be counted by hand.
func TestRefusals(t *testing.T) {
	var log strings.Builder
	for i := range 15 { // a's part is 10 a minute
		caller := "search"
		if i >= 8 {
			caller = "crawler"
		}
		log.WriteString(line(time.Duration(i)*time.Second, "a", fmt.Sprintf(`"labels":{"tenant":"acme","caller":%q},"priority":"batch"`, caller)))
	}
	for i := range 3 { // a's part is 50 an hour for each caller
		log.WriteString(line(time.Minute+time.Duration(i)*time.Second, "a", `"labels":{"kind":"llm","caller":"bot"},"costs":{"tokens":20}`))
	}
	log.WriteString(line(2*time.Minute, "a", `"labels":{"kind":"llm","caller":"bot"}`))
	log.WriteString(line(2*time.Minute, "a", `"labels":{"kind":"llm"}`))
	log.WriteString(line(2*time.Minute, "a", `"labels":{"tenant":"home","caller":"x"}`))
	log.WriteString(line(2*time.Minute, "b", `"labels":{"tenant":"home","caller":"x"}`))
	log.WriteString("\n")
	log.WriteString(line(2*time.Minute, "b", `"labels":{"tenant":"nobody"}`))
	r := replayed(t, log.String())
	if r.Requests != 23 || r.Refused != 10 || r.Admitted != 13 {
		t.Errorf("%d requests, %d refused", r.Requests, r.Refused)
	}
	want := "map[cost_unknown:1 label_missing:1 no_budget:1 not_home:1 region_share_spent:6]"
	if got := fmt.Sprint(r.Reasons); got != want {
		t.Errorf("%s", got)
	}
	if e := r.ToWhom["caller"]; len(e) != 3 || e[0] != (Entry{"crawler", 7, 5, 0}) || e[1] != (Entry{"bot", 4, 2, 0}) {
		t.Errorf("%+v", e)
	}
	if e := r.Priorities; len(e) != 1 || e[0].Refused != 5 {
		t.Errorf("%+v", e)
	}
	b := r.Budgets[0]
	if b.Refused != 5 || b.RefusedPeriods != 1 || b.HighestDemand != 15 || b.Periods[0].Name != "2026-03-02T13:00:00Z" || b.AdmittedUnits != 10 {
		t.Errorf("%+v", b)
	}
	if b := r.Budgets[1]; b.Refused != 3 || b.Instances[0] != (Entry{"bot", 3, 1, 20}) {
		t.Errorf("%+v", b)
	}
	var table bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"23 requests from 2026-03-02T13:00:00Z", "crawler", "20 requests every 1m", "region_share_spent"} {
		if !strings.Contains(table.String(), must) {
			t.Errorf("the table does not say %q:\n%s", must, table.String())
		}
	}
	one, _ := r.JSON()
	two, _ := replayed(t, log.String()).JSON()
	if !bytes.Equal(one, two) {
		t.Error("the same log made another report")
	}
}

// A line that is wrong is told with file, line and fix, and nothing is skipped in silence.
func TestBadLines(t *testing.T) {
	good := line(0, "a", `"labels":{"tenant":"acme"}`)
	for text, want := range map[string]string{
		"{":                                     "log.ndjson:2: is no request: it ends too early; write {",
		`{"time":"noon","region":"a"}`:          "log.ndjson:2: is no request: ",
		`{"region":"a"}`:                        "log.ndjson:2: has no time",
		`{"time":"2026-03-02T13:00:00Z"}`:       "log.ndjson:2: has no region",
		line(0, "c", `"labels":{}`):             "log.ndjson:2: region \"c\" is not one of the budgets' or the deployment's; use a, b",
		line(0, "a", `"tenant":"acme"`):         "unknown field \"tenant\"",
		line(0, "a", `"costs":{"tokens":-1}`):   "log.ndjson:2: costs.tokens is -1; use 0 to",
		line(0, "a", `"labels":{"Tenant":"x"}`): "log.ndjson:2: labels: name \"Tenant\" is not valid; use 1 to 64",
		strings.TrimSpace(good) + " {}":         "log.ndjson:2: goes on behind the request",
		strings.Repeat("x", MaxLine+1):          "log.ndjson:2: is longer than 65536 bytes",
	} {
		_, err := Run(t.Context(), strings.NewReader(good+text+"\n"+good), policy(t), Options{Name: "log.ndjson"})
		var faults Faults
		if !errors.As(err, &faults) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if _, err := Run(t.Context(), strings.NewReader(strings.Repeat("{\n", 100)), policy(t), Options{}); strings.Count(err.Error(), "\n") != MaxFaults-1 {
		t.Errorf("%v", err)
	}
	for _, c := range []struct {
		log    string
		policy []allocation.Budget
		want   string
	}{{"\n", policy(t), "holds no request"}, {good, nil, "no budget is declared"}} {
		if _, err := Run(t.Context(), strings.NewReader(c.log), c.policy, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v", err)
		}
	}
}

// Logs of several nodes are only nearly in order: what is near is put right, what is not is said.
func TestOrder(t *testing.T) {
	late := line(0, "a", `"labels":{"tenant":"acme"}`)
	next := line(time.Hour, "a", `"labels":{"tenant":"acme"}`)
	if r := replayed(t, next+late); r.Until-r.From != 3600 {
		t.Errorf("from %s to %s", r.From, r.Until)
	}
	_, err := Run(t.Context(), strings.NewReader(strings.Repeat(next, Reordered+5)+late), policy(t), Options{Name: "log.ndjson"})
	if err == nil || !strings.Contains(err.Error(), "log.ndjson:10006: is 1h earlier than a line before it; sort the log by time") {
		t.Errorf("%v", err)
	}
}

// endless writes requests of ever new callers.
type endless struct {
	lines, n int
	rest     []byte
}

func (e *endless) Read(p []byte) (int, error) {
	for len(e.rest) < len(p) && e.n < e.lines {
		e.rest = append(e.rest, line(time.Duration(e.n)*20*time.Millisecond, "b", fmt.Sprintf(`"labels":{"tenant":"acme","caller":"c%d","kind":"llm"},"costs":{"tokens":1}`, e.n))...)
		e.n++
	}
	if len(e.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// A log longer than memory goes through; whoever waits sees that it goes on, and can stop it.
func TestLongLog(t *testing.T) {
	budgets := policy(t)
	budgets[1].Window.Every = 60
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, most, calls := held(), int64(0), 0
	r, err := Run(t.Context(), &endless{lines: 100_000}, budgets, Options{Progress: func(int64, int64) {
		calls++
		most = max(most, held()-before)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 100_000 || calls < 10 || !r.Approximate {
		t.Errorf("%d requests, %d calls", r.Requests, calls)
	}
	if most > 48<<20 {
		t.Errorf("%d bytes are held", most)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, &endless{lines: 100_000}, budgets, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A list never says more than was, and keeps what was refused most.
func TestTally(t *testing.T) {
	c := newTally()
	for i := range 3 * maxKeys {
		c.add(fmt.Sprint("k", i), false, 0)
		if i%10 == 0 {
			c.add("most", true, 2)
		}
	}
	if top := c.top(false); len(top) != 1 || top[0] != (Entry{"most", 3 * maxKeys / 10, 3 * maxKeys / 10, 3 * maxKeys / 5}) || !c.forgot {
		t.Errorf("%+v", top)
	}
	if len(c.of) > maxKeys {
		t.Errorf("%d keys are held", len(c.of))
	}
}

// No log can make the protocol break a promise, nor the counts disagree.
func TestAnyLog(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var log strings.Builder
		at := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(r, "lines") {
			at += time.Duration(rapid.IntRange(0, 40_000).Draw(r, "later")) * time.Millisecond
			labels := rapid.SampledFrom([]string{`"tenant":"acme"`, `"kind":"llm"`, `"kind":"llm","tenant":"acme","caller":"x"`, `"tenant":"home","kind":"llm","caller":"y"`}).Draw(r, "labels")
			cost := rapid.IntRange(0, 60).Draw(r, "cost")
			log.WriteString(line(at, rapid.SampledFrom([]string{"a", "b"}).Draw(r, "region"), fmt.Sprintf(`"labels":{%s},"costs":{"tokens":%d}`, labels, cost)))
		}
		out, err := Run(context.Background(), strings.NewReader(log.String()), policy(t), Options{SyncEvery: time.Second})
		if err != nil {
			r.Fatal(err)
		}
		var refused int64
		for _, n := range out.Reasons {
			refused += n
		}
		if out.Admitted+out.Refused != out.Requests || refused != out.Refused {
			r.Errorf("%+v", out)
		}
	})
}
