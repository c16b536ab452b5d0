package walk

import (
	"os"
	"strings"
	"testing"
)

func world_(name string) Config {
	for _, c := range base {
		if c.Name == name {
			return c
		}
	}
	panic(name)
}

var where = map[Rule][]string{
	NodeChecksMark: {"owner"}, CoordinatorChecks: {"etcd"}, StatedMarks: {"restart", "copy at home"}, NewIncarnation: {"owner"}, HoldsNothing: {"owner"},
	NoSpeakingFor: {"both"}, FormerIgnored: {"owner late", "owner", "copy at home"}, HomeRecorded: {"copy"}, NodesAreVouchedFor: {"restart", "copy at home"},
	BrokenConnections: {"two nodes"},
	ColdIsFrozen:      {"etcd cold"}, ColdBeginsHistory: {"etcd cold", "etcd cold late"}, SameHistoryCounts: {"etcd late"}, OwnerHeedsHistory: {"etcd late"},
	NoGrantWhileFrozen: {"etcd"}, NoOpenWhileFrozen: {"ahead"}, AllTermsFrozen: {"ahead"}, AllRegionsState: {"etcd"},
	StampsCompared: {"etcd", "etcd cold", "etcd late"}, LedgersStamp: {"etcd", "etcd cold"}, ReconcileByMaximum: {"etcd"}, ReturnsAreDurable: {"plain"},
	NoRegrantOnAbsence: {"plain"}, NoTaking: {"plain"}, GenerationsRise: {"late"}, StatementsOnlyRaise: {"late"}, SealLocksShares: {"seal"},
	SealFromHome: {"seal copy"}, SealShowsMarks: {"seal restored"}, SealLeavesReserved: {"seal"}, SealedTakesNoGrant: {"seal"}, AnnouncedBeforeGrant: {"join"},
}

func TestMut(t *testing.T) {
	if os.Getenv("TRY") == "" {
		return
	}
	for _, r := range Rules() {
		if only := os.Getenv("ONLY"); only != "" && !strings.Contains(only, where[r][0]) {
			continue
		}
		for _, n := range where[r] {
			c := world_(n).Without(r)
			c.MaxStates = 1_200_000
			t.Log("\n", Walk(c, nil))
		}
	}
}
