//go:build unix

package postgres

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"tranche/allocation"
)

// What is written by hand must be what is read: a replay gets its first answer from it.
func TestRestIsReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Int64Range(0, 1<<53)
		a := &allocation.Admission{
			IDKey: allocation.IDKey{Credential: "c", ID: "i"},
			First: allocation.Evidence{
				Config: number.Draw(t, "config"), LedgerRevision: number.Draw(t, "revision"), ObservedAt: number.Draw(t, "observed"),
				Incarnation: rapid.String().Draw(t, "incarnation"), Correlation: rapid.String().Draw(t, "correlation"),
				Node:        rapid.StringMatching(`[ -~]*`).Draw(t, "node"),
				Priority:    rapid.SampledFrom(append(allocation.Priorities(), "")).Draw(t, "priority"),
				Capability:  rapid.String().Draw(t, "capability"),
				Fingerprint: rapid.StringMatching(`(fp_[0-9a-f]{20})?`).Draw(t, "fingerprint"),
			},
			Ladder: rapid.SampledFrom([]*allocation.LadderStep{nil, {
				Budget: `b ["é"]`, Action: allocation.ActionDegraded, Route: "small", Percent: 83, Of: allocation.OfBudget, ObservedAt: 7,
			}}).Draw(t, "ladder"),
			Settled: rapid.MapOfN(rapid.String(), number, 0, 2).Draw(t, "settled"),
		}
		if len(a.Settled) == 0 {
			a.Settled = nil
		}
		var k keys
		for range rapid.IntRange(0, 3).Draw(t, "lines") {
			l := allocation.AdmissionLine{
				UsageKey: allocation.UsageKey{Budget: "b", Period: 60, Class: allocation.General}, Until: allocation.Instant(number.Draw(t, "until")),
				Unit: rapid.String().Draw(t, "unit"), Version: number.Draw(t, "version"), Generation: number.Draw(t, "generation"),
				Limit: number.Draw(t, "limit"), Share: number.Draw(t, "share"), Requested: number.Draw(t, "requested"),
				Remaining: number.Draw(t, "remaining"), Held: number.Draw(t, "held"), Spent: number.Draw(t, "spent"),
				Overdraft: number.Draw(t, "overdraft"), OnLapse: "spend", Enforcement: rapid.SampledFrom([]string{"", "shadow"}).Draw(t, "enforcement"),
				Would: rapid.SampledFrom([]allocation.Reason{"", allocation.CeilingReached}).Draw(t, "would"),
			}
			a.Lines = append(a.Lines, l)
			k.add(l.UsageKey)
		}
		text, err := appendRest(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		var rest storedRest
		if err := json.Unmarshal(text, &rest); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		lines, err := linesOf(rest, k)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(lines, a.Lines) || rest.First != a.First || !reflect.DeepEqual(rest.Settled, a.Settled) || !reflect.DeepEqual(rest.Ladder, a.Ladder) {
			t.Fatalf("%s is read as %+v", text, rest)
		}
	})
}
