package simulations

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"testing"
	"time"
)

// What the simulator once found must stay found: each seed of the list, with its reason.
func TestSeeds(t *testing.T) {
	for _, s := range Seeds() {
		if raceEnabled && s.Seed%3 != 0 {
			continue
		}
		r, err := Run(t.Context(), Options{Seed: s.Seed, Kind: s.Kind, For: s.For})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %d violations: %s", s.Seed, r.Violations, s.Reason)
		for _, v := range r.Found {
			t.Errorf("seed %d (%s): at %.3f s invariant %d: %s\n%s", s.Seed, s.Reason, v.At, v.Invariant, v.Detail, v.World)
		}
	}
}

// Runs of fresh seeds: if this fails, an invariant of the design does not hold under some fault, and the message says how
// to see it again.
func TestFreshRuns(t *testing.T) {
	o := Options{Seed: 20_000, Runs: 20, For: 30 * time.Second}
	if raceEnabled {
		o.Runs = 3
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Found {
		t.Errorf("at %.3f s invariant %d: %s\nreplay: %s\n%s", v.At, v.Invariant, v.Detail, v.Replay, v.World)
	}
	for _, invariant := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13} {
		if r.Checked[invariant] == 0 {
			t.Errorf("invariant %d was never judged: nothing is said of it", invariant)
		}
	}
	if r.Exhausted == 0 || r.Admitted == 0 {
		t.Errorf("no period was spent to its limit, of %d admissions: the cap was never touched", r.Admitted)
	}
	t.Logf("%d runs, %.0f times real time", r.Runs, r.Speed)
}

// If a seed did not name one run, to the byte, nothing that the simulator finds could be looked at again.
func TestSameSeedSameTrace(t *testing.T) {
	trace := func(seed uint64) [sha256.Size]byte {
		var out bytes.Buffer
		if _, err := Run(context.Background(), Options{Seed: seed, For: 20 * time.Second, Trace: &out}); err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(out.Bytes())
	}
	seen := map[[sha256.Size]byte]uint64{}
	for seed := range uint64(6) {
		first := trace(seed)
		if trace(seed) != first {
			t.Errorf("seed %d: two runs differ", seed)
		}
		if other, same := seen[first]; same {
			t.Errorf("seeds %d and %d: the same run", seed, other)
		}
		seen[first] = seed
		if raceEnabled && seed == 1 {
			return
		}
	}
}

// Faults that lose history are no part of what today's services survive. They are run all the same: each ends as its entry
// says, so that neither a new hole nor a new answer to one goes unnoticed.
func TestExpectedFailures(t *testing.T) {
	for i, e := range ExpectedFailures() {
		if raceEnabled && i > 0 {
			break
		}
		t.Run(e.Name, func(t *testing.T) {
			r, err := Run(t.Context(), Options{Seed: 1, Runs: 2, For: 30 * time.Second, Kind: e.Name, Go: true})
			if err != nil {
				t.Fatal(err)
			}
			for end := range r.Ends {
				if !slices.Contains(e.Ends, end) {
					t.Errorf("a run ended as %q, expected was one of %v: %+v", end, e.Ends, r.Found)
				}
			}
			for _, v := range r.Found {
				if v.Invariant != 0 && !slices.Contains(e.Breaks, v.Invariant) {
					t.Errorf("seed %d breaks invariant %d, expected were %v: %s", v.Seed, v.Invariant, e.Breaks, v.Detail)
				}
			}
			t.Logf("%s: %v", e.What, r.Ends)
		})
	}
}

// BenchmarkRuns measures how much faster than real time one core makes runs of faults, in worlds of two to four regions.
func BenchmarkRuns(b *testing.B) {
	r, err := Run(b.Context(), Options{Seed: 1, Runs: b.N, Parallel: 1, Go: true})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(r.Simulated/r.Took, "times-real-time")
	b.ReportMetric(float64(r.Runs)/r.Took, "runs/s")
}
