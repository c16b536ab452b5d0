// Package replay asks what declared budgets would have done to traffic that really was: a log of requests goes through the
// real protocol, region by region and second by second, and the report says what would have been refused, to whom, and why.
//
// A log is one JSON object a line, in the order of time:
//
//	{"time":"2026-03-02T13:00:00.25Z","region":"us-east","labels":{"tenant":"acme","caller":"search"},"costs":{"tokens":900},"priority":"interactive"}
//
// time and region are needed. costs are in whole units; a request costs 1 of requests if it does not say otherwise.
// priority is any word; it is counted, and decides nothing yet. Lines may be out of order by a little: see Reordered.
//
// A log may be longer than memory: lines are read one after the other, and lists keep the most refused. What grows with
// the traffic is one usage row for each instance of a template in its running period, bounded by max_instances.
//
// What is real and what is not is said in package protocol. No retries are made: a caller that is refused in the log's
// place might have come back, and nobody knows when.
package replay
