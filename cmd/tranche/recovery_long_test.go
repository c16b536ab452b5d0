//go:build long

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"tranche/cmd/tranche/internal/stage"
)

// A region whose nodes are gone is sealed while the others are under load: they get what it had not spent, to the permit,
// within the period; its nodes come back as another incarnation, with nothing.
func TestSealUnderLoad(t *testing.T) {
	th := lostTheatre(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := th.Regions["us-east"]
	before := incarnation(t, r.Database)
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")
	for _, n := range r.Nodes {
		n.Kill()
	}
	th.silent("us-east")
	spent := readCharged(t.Context(), t, r.Database).spent["lost/all"]
	th.operate("regions", "seal", "us-east", "--postgres-url", r.Database, "--yes", "--reason", "its nodes are gone", "--by", "Ada")
	th.operate("regions", "drain", "us-east")
	l.usedUp(t, "eu-west")
	// What is kept for a region that starts with nothing stays unallocated.
	other := readCharged(t.Context(), t, th.Regions["eu-west"].Database).spent["lost/all"]
	if want := int64(lostLimit-lostKept) - spent; other < want {
		t.Errorf("us-east spent %d, and eu-west %d; it could have spent %d", spent, other, want)
	}
	th.operate("regions", "resume", "us-east")
	th.start(r.Nodes...)
	th.another("us-east", before)
	stop()
	l.capped(t, lostLimit)
	th.accountBut(1)
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// etcd is lost whole, with all memories of coordinators, under regions that hold shares and are under load. The deployment
// goes on with its id: the same incarnations, which keep what they hold, and no more than the limit.
func TestEmptyEtcdUnderLoad(t *testing.T) {
	th := lostTheatre(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")
	th.rebalance("lost/all", "us-east", "eu-west", 1000)
	th.shareIs("lost/all", "eu-west", lostShare+1000)
	before, err := th.status()
	if err != nil {
		t.Fatal(err)
	}
	th.loseEtcd("--deployment", before.Deployment, "--regions", "us-east,eu-west")
	l.progress(t, someMore, "us-east", "eu-west") // on their own
	var nodes []func(context.Context) error
	lives := map[string]string{}
	for name, r := range th.Regions {
		lives[name] = incarnation(t, r.Database)
		token := filepath.Join(th.Dir, name+".token")
		if err := os.Remove(token); err != nil {
			t.Fatal(err)
		}
		th.operate("regions", "register", name, "--postgres-url", r.Database, "--token-file", token)
		for _, n := range r.Nodes {
			nodes = append(nodes, func(ctx context.Context) error { n.Kill(); return n.Start(ctx) })
		}
	}
	th.declareLost()
	if err := stage.Together(t.Context(), nodes...); err != nil {
		t.Fatal(err)
	}
	err = stage.Until(t.Context(), progressWait, "the history is frozen no longer", func() (bool, error) {
		s, err := th.status()
		return err == nil && s.Frozen == nil && s.Deployment == before.Deployment, err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.usedUp(t, "us-east", "eu-west")
	stop()
	l.capped(t, lostLimit)
	for name, r := range th.Regions {
		if now := incarnation(t, r.Database); now != lives[name] {
			t.Errorf("%s is %s after %s", name, now, lives[name])
		}
	}
	th.account()
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// loseEtcd empties etcd and forgets what coordinators remember; they start again with these arguments.
func (th *theatre) loseEtcd(args ...string) {
	th.t.Helper()
	for _, c := range th.Coordinators {
		c.Kill()
		c.With(args...)
		if err := os.RemoveAll(filepath.Join(th.Dir, c.Name+".state")); err != nil {
			th.t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(th.Dir, "admin.token")); err != nil {
		th.t.Fatal(err)
	}
	must(th.t, th.TakeBackEtcd(th.t.Context(), "", nil))
	th.start(th.Coordinators...)
}
