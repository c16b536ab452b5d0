package coordinator_test

import (
	"slices"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// A shard that is too large for its document leaves usage out, and another replica reads the document. A record that it makes
// of that would say that nothing was spent, for good, and nobody would ever know: it says that all that was held may have been.
func TestClosingFromADocumentWithoutRoom(t *testing.T) {
	for name, closer := range map[string]int{"by the replica that was told": 0, "by one that read the document": 1} {
		t.Run(name, func(t *testing.T) {
			w, east, west, first := overTerm(t, 2)
			hears := w.replicas[0]
			west.sync(hears)
			call := east.call()
			call.CompleteThrough = first.Until
			for i, st := range call.Statements {
				for k, share := range st.Shares {
					if share.Budget != acmeBudget || len(share.Usage) == 0 {
						continue
					}
					last := share.Usage[len(share.Usage)-1]
					last.Spent, last.Reserved, last.Overdraft = 0, 0, 0
					call.Statements[i].Shares[k].Usage = append(slices.Clone(share.Usage), slices.Repeat([]allocation.UsageStatement{last}, 2500)...)
				}
			}
			if _, err := hears.Sync(t.Context(), call); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				w.persist(hears)
			}
			w.notice()
			closes := w.replicas[closer]
			if n := w.closeTerms(closes); n != 1 {
				t.Fatalf("%d terms are closed", n)
			}
			w.settle(closes)
			var east1 coordinator.ClosedRegion
			closing := get[coordinator.LedgersPage](w, closes, "/v1/ledgers/acme/requests").Closings[0].Closing
			for _, r := range closing.Regions {
				if r.Region == "us-east" {
					east1 = r
				}
			}
			told := closer == 0
			if east1.Held == 0 || east1.Unstated == told || told && east1.Spent != 12 || !told && east1.Spent != east1.Held {
				t.Errorf("%+v", closing)
			}
			if p := closing.ByPeriod(); told && p[0].Regions[0].Spent+p[0].Regions[1].Spent == 0 || !told && p[len(p)-1].Unused != 0 && east1.Spent < east1.Held {
				t.Errorf("by period: %+v", p)
			}
		})
	}
}

// What a replica read without its usage is not written on as if it were whole; a whole statement mends it.
func TestPartialIsPassedOn(t *testing.T) {
	var shares []allocation.ShareStatement
	for term := range 900 {
		st := allocation.ShareStatement{Budget: "b", Term: allocation.Instant(60 * term), Generation: allocation.Generation{Number: 1, Stamp: "0123456789abcdef"}}
		if term%2 == 0 {
			st.Usage = slices.Repeat([]allocation.UsageStatement{{Period: st.Term, Class: allocation.General, Spent: 1}}, 4)
		}
		shares = append(shares, st)
	}
	small := coordinator.Statement(coordinator.StatementValue(shares[:20]))
	if small.Trimmed || small.LeftOut || small.Shares[0].Partial {
		t.Errorf("a small one: %+v", small)
	}
	without := coordinator.Statement(coordinator.StatementValue(shares[:400]))
	for _, st := range without.Shares {
		if st.Term%120 != 0 && st.Partial || st.Term == 0 && !st.Partial {
			t.Fatalf("%+v", st)
		}
	}
	if !without.Trimmed || without.LeftOut || len(without.Shares) != 400 {
		t.Errorf("%d shares, trimmed %v, left out %v", len(without.Shares), without.Trimmed, without.LeftOut)
	}
	if again := coordinator.Statement(coordinator.StatementValue(without.Shares[:20])); !again.Trimmed || !again.Shares[0].Partial || again.LeftOut {
		t.Errorf("written on as whole: %+v", again)
	}
	if large := coordinator.Statement(coordinator.StatementValue(shares)); !large.LeftOut || !large.Trimmed {
		t.Errorf("%d of 900 shares, and nothing is said to be left out", len(large.Shares))
	}
}
