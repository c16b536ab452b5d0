// Package scenario runs what-if stories for users: regions, budgets, demand, and what breaks when, from a YAML file; and
// says what came of it, with Tranche and with the alternatives, for the same requests.
//
//	s, err := scenario.Load("worst-moment.yaml")      // every error is file:line: field: problem; fix
//	r, err := scenario.Run(ctx, s, scenario.Options{Seed: 1})
//	err = r.Table(os.Stdout)                          // Tranche, the static split, the single home
//	err = r.WriteFiles("out")                         // report.html with charts, report.json with everything
//
// # A file
//
//	look_for: what a reader should see in the result
//	start: 2026-03-02T18:00:00Z
//	duration: 4h
//	step: 1m                  # of what is recorded
//	tick: 1s                  # arrivals within one are taken together; a second unless the run is long
//	on_refusal: give_up       # or retry_once: after the answer's Retry-After
//	regions:
//	  - {name: us-east, round_trip: 12ms, utc_offset: "-05:00", nodes: 2, to: {eu-west: 85ms}}
//	  - {name: eu-west, round_trip: 88ms}
//	budgets:                  # declared as everywhere; no templates
//	  - {budget: llm/requests, unit: requests, limit: 200000, window: {every: 1h},
//	     allocation: {policy: fixed, weights: {us-east: 5, eu-west: 4}}}
//	demand:
//	  - budget: llm/requests
//	    rate: 60              # requests per second, all regions together, the mean over a day; or
//	                          # trace: {file: t.csv, every: 1m}, lines of time,region,units
//	    skew: {us-east: 3, eu-west: 1}                   # none: evenly
//	    daily: {peak: 14:00, hours: 12, low: 0.2}        # in each region's own time: it follows the sun
//	    noise: 0.1            # standard deviation of each minute's factor
//	    growth_per_day: 0.05
//	    cost: 1               # or {uniform: [1, 9]}, {median: 300, p99: 4000}, {choices: {100: 8, 1000: 2}}
//	    bursts: [{at: 20m, until: 30m, times: 12, regions: [eu-west]}]
//	events:                   # at and until are times since the start
//	  - {event: partition, region: eu-west, at: 25m, until: 2h30m, from: everything, direction: both, down: 20s, up: 40s}
//	  - {event: coordinator_loss, at: 1h, until: 2h}
//	  - {event: database_loss, region: eu-west, at: 3h, until: 3h5m, data: lost}
//	  - {event: node_crash, region: us-east, nodes: 1, at: 10m, until: 12m}
//	  - {event: change_budget, budget: llm/requests, at: 3h, limit: 100000, weights: {us-east: 1, eu-west: 1}}
//	  - {event: rebalance, budget: llm/requests, region: eu-west, to: us-east, units: 35000, at: 30m}
//	  - {event: drain, region: eu-west, at: 3h}
//	  - {event: resume, region: eu-west, at: 3h30m}
//	alternatives: {home: us-east, static_weights: {us-east: 1, eu-west: 1}, row_per_second: 2500, row_timeout: 1s, sync_every: 30s}
//
// # How it is judged
//
// An Engine runs the demand. Protocol drives the real protocol of package allocation; other engines may run the real
// services. The alternatives are models: each one's doc comment, and the report, say what it takes for granted. The
// yardstick, "possible", is one perfect counter that everybody reaches at no cost: nothing with a hard cap admits more of
// the same demand, but for the order of requests.
//
// The same scenario, seed and engine give the same bytes.
//
// # Files
//
//	scenario, load*, check*, trace   the file
//	arrivals, timeline, retry        demand, what is broken, and callers that try again
//	engine, engine_protocol          engines and the series that they record
//	alternatives*                    what it is compared with
//	report, summary, verdict         the result
//	table, page, pictures, files     how it is shown; Report is the schema of report.json
//	protocol/                        the coordinator and the owners of the protocol engine
package scenario
