package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong is told with file, line and fix: a scenario that is read differently than it was meant gives a picture
// that somebody believes.
func TestBadInput(t *testing.T) {
	const event = "  - {event: partition, region: b, at: 5m, until: 10m}\n"
	for name, c := range map[string]struct{ old, new, want string }{
		"unknown field":     {"duration: 20m", "duraton: 20m", "f.yaml:2: duraton: is not known; write duration"},
		"unknown far off":   {"duration: 20m", "colour: red\nduration: 20m", "f.yaml:2: colour: is not known; use alternatives, budgets"},
		"unknown in event":  {"until: 10m}", "until: 10m, colour: red}", "f.yaml:16: events[1].colour: is not known"},
		"other kind's":      {"until: 10m}", "until: 10m, units: 3}", "f.yaml:16: events[1].units: is not known"},
		"ends before start": {"until: 10m", "until: 4m", "f.yaml:16: events[1].until: is 4m, before it starts at 5m; give a later until"},
		"lasts no time":     {"until: 10m", "until: 5m", "lasts no time; give a later until"},
		"no end":            {", until: 10m", "", "f.yaml:16: events[1]: partition has no until; add until"},
		"after the run":     {"until: 10m", "until: 40m", "f.yaml:16: events[1]: partition lies outside the run of 20m"},
		"negative demand":   {"rate: 12", "rate: -12", "f.yaml:14: demand[1].rate: is negative; use 0 to"},
		"no demand":         {"rate: 12, ", "", "f.yaml:14: demand[1]: demand has no rate"},
		"undeclared region": {"region: b, at", "region: c, at", "f.yaml:16: events[1].region: region \"c\" is not declared; use a, b, or add it to regions"},
		"region of weights": {"weights: {a: 1, b: 1}", "weights: {a: 1, c: 1}", "f.yaml:12: budgets[1].allocation.weights.c: region \"c\" is not declared"},
		"region of to":      {"to: {a: 80ms}", "to: {z: 80ms}", "f.yaml:6: regions[2].to.z: region \"z\" is not declared"},
		"undeclared budget": {"{budget: x, rate", "{budget: y, rate", "f.yaml:14: demand[1].budget: budget \"y\" is not declared"},
		"empty duration":    {"duration: 20m", "duration: 0s", "f.yaml:2: duration: the duration is empty; give one like 24h"},
		"no duration":       {"duration: 20m\n", "", "the duration is empty"},
		"step":              {"step: 10s", "step: 7s", "f.yaml:3: step: 7s does not divide the duration of 20m"},
		"tick":              {"step: 10s", "step: 10s\ntick: 3s", "f.yaml:4: tick: 3s does not divide the step of 10s"},
		"overlap":           {event, event + event, "f.yaml:17: events[2]: it overlaps another partition of b, which begins on line 16"},
		"nobody can": {
			event, event + "  - {event: coordinator_loss, at: 1m, until: 3m}\n  - {event: drain, region: a, at: 2m}\n",
			"f.yaml:18: events[3]: nobody can make a drain during the coordinator_loss, which begins on line 17",
		},
		"resume first":     {event, "  - {event: resume, region: a, at: 2m}\n", "a is not draining; drain it first"},
		"changes nothing":  {event, "  - {event: change_budget, budget: x, at: 2m}\n", "f.yaml:16: events[1]: changes nothing"},
		"move to itself":   {event, "  - {event: rebalance, budget: x, region: a, to: a, units: 1, at: 2m}\n", "is the region that gives"},
		"more nodes":       {event, "  - {event: node_crash, region: a, nodes: 3, at: 2m, until: 3m}\n", "3 nodes of a crash, and it has 2"},
		"no such event":    {event, "  - {event: earthquake, at: 2m}\n", "f.yaml:16: events[1]: names no known event; begin it with event: and one of change_budget"},
		"half a flap":      {"until: 10m}", "until: 10m, down: 5s}", "has one of down and up"},
		"limit":            {"limit: 3000", "limit: -1", "f.yaml:10: budgets[1].limit: is negative"},
		"unknown in it":    {"limit: 3000", "limit: 3000\n    limt: 1", "f.yaml:11: budgets[1].limt: is not known"},
		"template":         {"budget: x\n", "budget: x/{caller}\n", "f.yaml:8: budgets[1].budget: is a template"},
		"two alike":        {"demand:", "  - budget: x\n    unit: tokens\n    limit: 1\n    window: {every: 1m}\n    allocation: {policy: home, region: a}\ndemand:", "x is declared twice"},
		"two that match":   {"demand:", "  - budget: y\n    unit: tokens\n    limit: 1\n    window: {every: 1m}\n    allocation: {policy: home, region: a}\ndemand:", "also hit others: x, y"},
		"cost":             {"uniform: [1, 9]", "uniform: [9, 1]", "ends before it begins"},
		"no round trip":    {"{name: a, round_trip: 10ms}", "{name: a}", "f.yaml:5: regions[1]: has no round_trip"},
		"negative trip":    {"round_trip: 10ms", "round_trip: -10ms", "f.yaml:5: regions[1].round_trip: is negative"},
		"two round trips":  {"{name: a, round_trip: 10ms}", "{name: a, round_trip: 10ms, to: {b: 1ms}}", "and b says 80ms of the way back"},
		"given twice":      {"step: 10s", "step: 10s\nstep: 20s", "f.yaml:4: step: is given twice"},
		"not YAML":         {"regions:", "regions: {", "is not YAML"},
		"an anchor":        {"limit: 3000", "limit: &a 3000", "f.yaml:10: budgets[1].limit: is an anchor"},
		"a list":           {"duration: 20m", "duration: [20m]", "f.yaml:2: duration: is a list"},
		"burst":            {"noise: 0.2", "bursts: [{at: 5m, until: 4m, times: 2}]", "f.yaml:14: demand[1].bursts[1].until: is 4m, before it starts at 5m"},
		"trace not there":  {"rate: 12", "trace: {file: nothing.csv}", "f.yaml:14: demand[1].trace.file: open "},
		"window too short": {"duration: 20m\nstep: 10s", "duration: 60h\nstep: 10m", ""},
	} {
		text := strings.Replace(small, c.old, c.new, 1)
		if text == small {
			t.Fatalf("%s changes nothing", name)
		}
		_, err := parse("f.yaml", []byte(text))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: want %q, got\n%v", name, c.want, err)
		}
	}
	for text, want := range map[string]string{"": "f.yaml:1: says nothing", small + "---\n" + small: "is a second document", "- a": "is a list"} {
		if _, err := parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// A trace is checked like the scenario, line by line.
func TestBadTrace(t *testing.T) {
	dir := t.TempDir()
	text := strings.Replace(small, "rate: 12", "trace: {file: t.csv, every: 1m}", 1)
	file := filepath.Join(dir, "s.yaml")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("s.yaml", text)
	for line, want := range map[string]string{
		"1m,a,-5":                  "t.csv:3: a demand of -5 is negative; write 0 or more",
		"1m,c,5":                   "t.csv:3: region \"c\" is not declared; use a, b",
		"1m,a":                     "t.csv:3: has 2 fields; write time,region,units",
		"noon,a,5":                 "t.csv:3: \"noon\" is no time",
		"1m,a,many":                "\"many\" is no number of units",
		"2026-03-02T01:00:00Z,a,5": "lies outside the run",
	} {
		write("t.csv", "time,region,units\n0s,a,100\n"+line+"\n")
		if _, err := Load(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", line, want, err)
		}
	}
	write("t.csv", "time,region,units\n2026-03-02T00:01:00Z,a,1000\n0s,b,7\n")
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	var sum [2]int64
	a := NewArrivals(s, 1)
	for k := range s.Ticks() {
		a.Tick(k, func(b Batch) { sum[b.Region] += b.Units() })
	}
	if sum != [2]int64{1000, 7} {
		t.Errorf("the trace made demand of %v", sum)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a file that is not there was read")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(small)
	f.Add("regions: [{name: {}}]\nevents: [{event: drain}]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parse("f.yaml", []byte(text))
		if err == nil && (s.Ticks() <= 0 || s.Steps() <= 0 || s.Ticks() > MaxTicks) {
			t.Errorf("%d ticks, %d steps", s.Ticks(), s.Steps())
		}
	})
}
