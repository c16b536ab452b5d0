//go:build unix

package regional_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster/clustertest"
)

// Without this a node with the token of one deployment would admit from the shares of another, whose database it was
// given by mistake: each deployment would keep its cap, and their callers would together exceed it.
func TestDatabaseOfAnotherDeployment(t *testing.T) {
	h, url := newHub("eu"), clustertest.Database(t)
	h.declare(t, fmt.Sprintf(shared, 10), forEver())
	ready(t, node(t, h, "eu", "n1", url), 1)

	if s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu", Deployment: "another"}); !errors.Is(err, regional.ErrNotReady) {
		if err == nil {
			s.Shut()
		}
		t.Errorf("opened: %v", err)
	}
	store, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Shut()
	stranger := regional.NewNode(regional.Config{Region: "eu", Name: "stranger", Deployment: "another", Coordinator: h}, store)
	if err := stranger.Run(t.Context()); !errors.Is(err, regional.ErrNotReady) {
		t.Errorf("a node of another deployment runs: %v", err)
	}
}

// Without this a database that was bound to another deployment while a node ran would be admitted from all the same.
func TestDatabaseChangesHands(t *testing.T) {
	url := clustertest.Database(t)
	ours, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu", Deployment: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Shut()
	w, err := ours.NewWriter(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := postgres.Open(t.Context(), postgres.Config{URL: url, Region: "eu"})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Shut()
	other, err := theirs.NewWriter(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Apply(t.Context(), other, allocation.SyncAnswer{Deployment: "theirs", Incarnation: "life"}, 1); err != nil {
		t.Fatal(err)
	}
	if b, err := ours.Begin(context.Background(), w, regional.Want{}); !errors.Is(err, regional.ErrNotReady) {
		if err == nil {
			b.Abandon()
		}
		t.Errorf("a batch began: %v", err)
	}
}
