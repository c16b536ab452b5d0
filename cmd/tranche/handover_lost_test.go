package main

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// unheard makes etcd what it was before a region had called.
func (m *mover) unheard(region string) {
	m.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: m.Etcd.Endpoints(), DialTimeout: 5 * time.Second})
	if err != nil {
		m.t.Fatal(err)
	}
	defer client.Close()
	key := coordinator.Root + "regions/" + region
	got, err := client.Get(m.t.Context(), key)
	if err != nil || len(got.Kvs) != 1 {
		m.t.Fatal(got, err)
	}
	var d map[string]json.RawMessage
	if err := json.Unmarshal(got.Kvs[0].Value, &d); err != nil {
		m.t.Fatal(err)
	}
	for _, lost := range []string{"incarnation", "home", "confirmed", "handover"} {
		delete(d, lost)
	}
	text, err := json.Marshal(d)
	if err == nil {
		_, err = client.Put(m.t.Context(), key, string(text))
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

// Etcd goes back to before a region had an incarnation, while its owner is stopped for a handover. A stopped owner makes no call,
// so nobody hears of it: both before and after the old database was handed over for good, the command must bring the region back.
func TestHandoverWhoseIncarnationEtcdLost(t *testing.T) {
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, EtcdMembers: 1, Unreachable: 3 * time.Second})
	server, err := cluster.Start(t.Context(), cluster.Options{Dir: filepath.Join(clustertest.Dir(t), "new")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	database, err := server.CreateDatabase(t.Context(), "tranche")
	if err != nil {
		t.Fatal(err)
	}
	r := th.Regions["us-east"]
	m := &mover{th, r.Database, database}
	life, err := incarnationOf(t.Context(), r.Database)
	if err != nil {
		t.Fatal(err)
	}
	th.declare(fixed("ops/a", 10, "a", allocation.Window{Calendar: "year"}))
	th.answers(r.Nodes[0], "a", allocation.Allow)
	begins := func(url, before string) (now string) {
		t.Helper()
		err := stage.Until(t.Context(), progressWait, "us-east has begun anew, and nothing is frozen", func() (bool, error) {
			var err error
			if now, err = incarnationOf(t.Context(), url); err != nil || now == before || now == "" {
				return false, err
			}
			status, err := th.status()
			return err == nil && status.Frozen == nil, err
		})
		if err != nil {
			t.Fatal(err)
		}
		th.answers(r.Nodes[0], "a", allocation.RegionShareSpent) // it holds nothing
		return now
	}

	m.run(0, forReal...)
	m.unheard("us-east")
	m.says(m.run(1, forReal...), "knows of no incarnation of region us-east", "--cancel")
	m.says(m.run(0, append(forReal, "--cancel")...), "is not stopped any more", "begins anew, with nothing")
	life = begins(m.old, life)

	m.run(0, forReal...)
	m.copyOver()
	m.handFor(t)
	m.unheard("us-east")
	m.says(m.run(1, append(forReal, "--cancel")...), "for good")
	m.says(m.run(1, forReal...), "--to-url")
	m.says(m.run(0, append(forReal, "--to-url", m.new)...), "the new database is not stopped any more", "begins anew, with nothing")
	r.Move(m.new)
	r.Nodes[0].Kill()
	th.start(r.Nodes[0])
	begins(m.new, life)
}

// handFor does what the command does right before it records the new home, and no more.
func (m *mover) handFor(t *testing.T) {
	t.Helper()
	open := func(url string) (*postgres.Store, regional.Loaded) {
		store, loaded, err := postgres.Attach(t.Context(), postgres.Config{URL: url, Region: "us-east", MaxConns: 4, LockTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Shut() })
		return store, loaded
	}
	old, here := open(m.old)
	_, there := open(m.new)
	if _, err := old.HandOver(t.Context(), regional.HandoverHand, regional.Handover{ID: here.Handover.ID, To: there.Home}, here.Home); err != nil {
		t.Fatal(err)
	}
}
