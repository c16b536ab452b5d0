//go:build long && linux

package main

import (
	"context"
	"net/http"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/netns"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional/postgres/cluster/clustertest"
)

const (
	flaps     = 10
	flapEvery = 700 * time.Millisecond
)

// apartTheatre is a deployment of which each region is in a network namespace of its own.
func apartTheatre(t *testing.T) (*theatre, *netns.Network) {
	t.Helper()
	regions := []string{"us-east", "eu-west"}
	network, err := netns.New(regions)
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	cert, key := certificate(t, clustertest.Dir(t), network.Meet(regions[0]), network.Meet(regions[1]))
	s, err := stage.Start(t.Context(), stage.Options{
		Regions: regions, NodesEach: 2, Coordinators: 1, Unreachable: 3 * time.Second, Apart: network, Certificate: cert, Key: key,
	})
	t.Cleanup(func() {
		if t.Failed() {
			tellLogs(t, s.Dir)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	th := &theatre{s, t}
	th.declareAll()
	return th, network
}

// stated waits until a region has stated so much spent.
func (th *theatre) stated(budget, region string, spent int64) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, region+" has stated what it spent", func() (bool, error) {
		admin, err := th.Admin(0)
		if err != nil {
			return false, err
		}
		var shares coordinator.SharesAnswer
		_, err = admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/shares/" + budget}, &shares)
		for _, term := range shares.Terms {
			for _, r := range term.Regions {
				if r.Region == region && r.Spent == spent {
					return true, err
				}
			}
		}
		return false, err
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

// strandedIs waits until the report says so many permits of a budget, behind one region and no other.
func (th *theatre) strandedIs(budget, region string, want int64) {
	th.t.Helper()
	var last map[string]int64
	err := stage.Until(th.t.Context(), progressWait, "the report is right", func() (ok bool, err error) {
		last, err = th.stranded(budget)
		if want == 0 {
			return err == nil && len(last) == 0, err
		}
		return err == nil && len(last) == 1 && last[region] == want, err
	})
	if err != nil {
		th.t.Fatalf("%s: stranded %v, want %d behind %s: %v", budget, last, want, region, err)
	}
}

// A link to the coordinator that is cut, heals, flaps, and loses one direction only, between real network namespaces: no
// admission is lost, nothing is charged twice, no share is exceeded, and the report is right to the permit.
func TestRegionsApart(t *testing.T) {
	th, network := apartTheatre(t)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pause := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		<-timer.C
	}
	url := th.Regions["us-east"].Database
	share := func(limit int64) int64 { return limit * 3 / 5 }

	// A first load of the big budgets, which ends, so that the region's last statement says all.
	first, end := context.WithCancel(t.Context())
	l := startLoad(first, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")
	end()
	l.done.Wait()
	spent := readCharged(t.Context(), t, url).spent["faults/all"]
	th.stated("faults/all", "us-east", spent)
	do(network.Cut("us-east"))
	th.strandedIs("faults/all", "us-east", share(1_000_000)-spent)
	th.strandedIs("faults/small", "us-east", share(smallLimit))

	// What the region spends alone is not known elsewhere: the report does not move, and is never too low.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	more := startLoad(ctx, t, th.Stage, "big", "small")
	more.progress(t, someMore, "us-east", "eu-west")
	th.strandedIs("faults/small", "us-east", share(smallLimit))
	do(network.Heal("us-east"))
	th.strandedIs("faults/all", "us-east", 0)

	for range flaps {
		do(network.Cut("us-east"))
		pause(flapEvery)
		do(network.Heal("us-east"))
		pause(flapEvery)
	}
	more.progress(t, someMore, "us-east", "eu-west")
	for _, lose := range []func(string) error{network.LoseCalls, network.LoseAnswers} {
		do(lose("us-east"))
		more.progress(t, someMore, "us-east", "eu-west")
		pause(flapEvery)
		do(network.Heal("us-east"))
		th.strandedIs("faults/all", "us-east", 0)
		more.progress(t, someMore, "us-east", "eu-west")
	}
	stop()
	more.admittedToo(l)
	more.judge(t, charges)
	th.small()
	th.account()
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// admittedToo adds what an earlier load was told.
func (l *load) admittedToo(earlier *load) {
	l.done.Wait()
	for region, ids := range earlier.admitted {
		for id, tries := range ids {
			l.admitted[region][id] = tries
		}
	}
	l.unknown = append(l.unknown, earlier.unknown...)
	l.strange = append(l.strange, earlier.strange...)
}
