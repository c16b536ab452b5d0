package ownertwin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// stage is one database and a node, in simulated time.
type stage struct {
	t     *testing.T
	ctx   context.Context
	world *world.World
	net   *network.Net
	db    *Database
	at    *Endpoint
	node  *world.Process
	owner *Owner
	w     regional.Writer
	term  allocation.Instant
}

func play(t *testing.T, seed uint64, run func(s *stage)) {
	t.Helper()
	w := world.New(world.Options{Seed: seed})
	defer w.Close()
	s := &stage{t: t, world: w, net: network.New(w)}
	s.db = New(s.net, w, NewTruth(), "pg", "eu")
	s.at = NewEndpoint(s.db)
	s.node = w.Process("node")
	s.node.Start(func(ctx context.Context) {
		s.ctx, s.owner = ctx, NewOwner(s.at, s.node, "eu")
		s.w = s.writer()
		s.term = allocation.At(w.Now())
		periods := allocation.Periods{First: s.term, Step: 60, Count: 100}
		s.must(s.owner.Apply(ctx, s.w, allocation.SyncAnswer{Incarnation: "life", Shares: []allocation.ShareGrant{{
			Budget: "a", Version: 1, Periods: periods, Generation: allocation.Generation{Number: 1, Stamp: "g"},
			Entries: []allocation.GrantEntry{{From: s.term, Until: periods.End(), Class: allocation.General, Limit: 100, Granted: 100, Target: 100}},
		}}}, 1))
		run(s)
	})
	if err := w.Run(24 * time.Hour); err != nil {
		t.Fatal(err)
	}
}

func (s *stage) writer() regional.Writer {
	w, err := s.owner.NewWriter(s.ctx, "test")
	s.must(err)
	return w
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%s: %v", s.world, err)
	}
}

func (s *stage) mustBe(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Errorf("%s: got %v, want %v", s.world, err, want)
	}
}

func (s *stage) key() allocation.UsageKey {
	return allocation.UsageKey{Budget: "a", Period: s.term, Class: allocation.General}
}

func (s *stage) begin(name string) (regional.Batch, error) {
	return s.owner.Begin(s.ctx, s.w, regional.Want{
		Usage:   []regional.WantedUsage{{UsageKey: s.key(), Until: s.term + 60, Term: s.term, Make: true}},
		IDs:     []allocation.IDKey{{ID: name}},
		Changes: math.MaxInt64,
	})
}

func writesOf(seen *regional.Seen, name string, op allocation.Op) regional.Writes {
	a := &allocation.Admission{IDKey: allocation.IDKey{ID: name}, Op: op, State: allocation.StateSpent}
	var w regional.Writes
	for k, u := range seen.Usage {
		line := allocation.AdmissionLine{UsageKey: k}
		if op == allocation.Reserve {
			a.State, line.Held = allocation.StateReserved, 1
			u.Reserved++
		} else {
			u.Spent++
		}
		a.Lines, w.Usage = append(a.Lines, line), append(w.Usage, u)
	}
	w.Inserted = []*allocation.Admission{a}
	return w
}

func (s *stage) charge(name string, op allocation.Op) error {
	b, err := s.begin(name)
	if err != nil {
		return err
	}
	return b.Commit(s.ctx, writesOf(b.Seen(), name, op))
}

func (s *stage) spend(name string) error { return s.charge(name, allocation.Spend) }

func (s *stage) held() int64 { return s.at.db.tables.usage[s.key()].Spent }

// A crash of either side between the two round trips must leave nothing; one that comes later keeps what was answered.
func TestCrash(t *testing.T) {
	kept := map[string]int{}
	for seed := range uint64(60) {
		play(t, seed, func(s *stage) {
			s.must(s.spend("one"))
			when := s.world.Random("when")
			s.world.After(time.Duration(when.IntN(6000))*time.Microsecond, s.db.Crash)
			s.world.After(time.Second, s.db.Start)
			err := s.spend("two")
			known := err == nil
			for i := 0; errors.Is(err, regional.ErrUnknownOutcome) && i < 100; i++ {
				s.node.Sleep(s.ctx, 100*time.Millisecond)
				if known, err = s.w.Resolve(s.ctx); err != nil {
					err = fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, err)
				}
			}
			s.node.Sleep(s.ctx, 2*time.Second)
			if want := map[bool]int64{true: 2, false: 1}[known]; s.held() != want || s.db.truth.Total(s.key()).Spent != want {
				s.t.Errorf("seed %d: told %v, %v; held %d, truth %d", seed, known, err, s.held(), s.db.truth.Total(s.key()).Spent)
			}
			kept[fmt.Sprint(known)]++
			s.must(s.spend("three"))
		})
	}
	if len(kept) != 2 {
		t.Fatal(kept)
	}
}

// A node that crashes in the middle must leave its locks to nobody, and its writes neither.
func TestClientCrash(t *testing.T) {
	for seed := range uint64(30) {
		play(t, seed, func(s *stage) {
			other := s.world.Process("other")
			other.Start(func(ctx context.Context) {
				o := &stage{t: t, ctx: ctx, world: s.world, net: s.net, at: s.at, node: other, owner: NewOwner(s.at, other, "eu"), term: s.term}
				o.w = o.writer()
				if _, err := o.begin("one"); err == nil {
					other.Sleep(ctx, time.Hour)
				}
			})
			s.world.After(100*time.Millisecond, other.Crash)
			s.node.Sleep(s.ctx, 200*time.Millisecond)
			err := s.spend("two")
			for errors.Is(err, regional.ErrRaced) { // the lock of a machine that died without a word
				err = s.spend("two")
			}
			if s.must(err); s.held() != 1 || len(s.db.openTransactions) != 0 {
				t.Errorf("seed %d: held %d, %d open", seed, s.held(), len(s.db.openTransactions))
			}
		})
	}
}

// A lost answer leaves three endings, and Resolve must find out which it was.
func TestLostAnswer(t *testing.T) {
	endings := map[bool]int{}
	for seed := range uint64(60) {
		play(t, seed, func(s *stage) {
			b, err := s.begin("one")
			s.must(err)
			there, back := s.net.Link("node", "pg"), s.net.Link("pg", "node")
			there.Lose, back.Lose, there.Late, there.LateMost = 0.3, 0.3, 0.3, 700*time.Millisecond
			err = b.Commit(s.ctx, writesOf(b.Seen(), "one", allocation.Spend))
			there.Lose, back.Lose, there.Late = 0, 0, 0
			committed := err == nil
			if err != nil {
				if !errors.Is(err, regional.ErrUnknownOutcome) {
					return // it was late, and the server said that it had ended the transaction
				}
				if _, err := s.begin("two"); !errors.Is(err, regional.ErrUnknownOutcome) {
					t.Errorf("seed %d: it went on: %v", seed, err)
				}
				committed, err = s.w.Resolve(s.ctx)
				s.must(err)
				endings[committed]++
			}
			s.node.Sleep(s.ctx, time.Minute)
			if (s.held() == 1) != committed {
				t.Errorf("seed %d: told %v, held %d", seed, committed, s.held())
			}
		})
	}
	if len(endings) != 2 {
		t.Fatal(endings)
	}
}

// Whatever takes commits away must be noticed by the writer that made them; what takes none away, by nobody. The truth
// remembers both.
func TestLostHistory(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *stage, before Backup)
		lost   bool
	}{
		"restarted":          {func(s *stage, _ Backup) { s.db.Crash(); s.db.Start() }, false},
		"failed over whole":  {func(s *stage, _ Backup) { s.db.Failover(0) }, false},
		"failed over behind": {func(s *stage, _ Backup) { s.db.Failover(1) }, true},
		"a disk that lies":   {func(s *stage, _ Backup) { s.db.LoseTail(1) }, true},
		"restored logically": {func(s *stage, b Backup) { s.db.RestoreLogically(b) }, true},
		"restored physically": {func(s *stage, b Backup) {
			s.db.RestorePhysically(b)
			if s.db.Home().Timeline != 2 {
				s.t.Error("the same timeline")
			}
		}, true},
		"a copy of before": {func(s *stage, b Backup) {
			c := s.db.Clone(s.world, "copy")
			c.RestoreCopy(b)
			s.at.Point(c)
			s.db.Destroy()
			if c.Home() != s.db.Home() {
				s.t.Error("the copy has another identity")
			}
		}, true},
		"a copy of now": {func(s *stage, _ Backup) { s.at.Point(s.db.Clone(s.world, "copy")); s.db.Destroy() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 1, func(s *stage) {
				s.must(s.spend("one"))
				before := s.db.Backup()
				s.must(s.charge("two", allocation.Reserve))
				s.must(s.spend("three"))
				test.change(s, before)
				err := s.spend("four")
				want := int64(3)
				if test.lost {
					s.mustBe(err, regional.ErrHistoryLost)
					s.w = s.writer()
					s.must(s.spend("five"))
				} else {
					s.must(err)
				}
				truth := s.db.truth
				if truth.Total(s.key()).Spent != want {
					t.Errorf("the truth is %+v", truth.Total(s.key()))
				}
				if total := truth.Total(s.key()).LostReserved + truth.Reserved(s.key()); total != 1 {
					t.Errorf("%d reserved", total)
				}
			})
		})
	}
}

// Two copies that both run spend one share twice: the twin must let them, and the truth must say so.
func TestCloneSpendsTwice(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.must(s.spend("one"))
		c := s.db.Clone(s.world, "copy")
		other := NewOwner(NewEndpoint(c), s.node, "eu")
		s.must(s.spend("two"))
		s.owner = other
		s.w = s.writer()
		s.must(s.spend("two"))
		s.must(s.spend("three"))
		if spent := s.db.truth.Total(s.key()).Spent; spent != 4 || s.held() != 2 {
			t.Errorf("spent %d, held %d", spent, s.held())
		}
		s.db.Destroy()
		if spent := s.db.truth.Total(s.key()).Spent; spent != 4 {
			t.Errorf("spent %d", spent)
		}
	})
}

// A commit that only the primary has is visible, comes with a warning, and is gone after a failover to the replica.
func TestLocalOnly(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.db.SetReplica(true, false)
		s.must(s.spend("one"))
		s.db.SetReplica(true, true)
		bounded, cancel := s.node.WithTimeout(s.ctx, time.Second)
		b, err := s.begin("two")
		s.must(err)
		s.mustBe(b.Commit(bounded, writesOf(b.Seen(), "two", allocation.Spend)), regional.ErrUnknownOutcome)
		cancel()
		if s.held() != 1 {
			t.Error("visible while it waits")
		}
		s.db.CancelReplicaWaits(true)
		s.node.Sleep(s.ctx, time.Second)
		if s.held() != 2 {
			t.Error("not visible after the wait was cancelled")
		}
		if _, err := s.w.Resolve(s.ctx); !errors.Is(err, regional.ErrUnknownOutcome) {
			t.Errorf("resolved without a replica: %v", err)
		}
		s.db.FailoverSynchronous()
		s.db.CancelReplicaWaits(false)
		s.db.SetReplica(false, false)
		// It was seen to be committed, so that it is gone is lost history.
		if _, err := s.w.Resolve(s.ctx); !errors.Is(err, regional.ErrHistoryLost) || s.held() != 1 || s.db.truth.Total(s.key()).Spent != 1 {
			t.Errorf("%v, held %d, truth %d", err, s.held(), s.db.truth.Total(s.key()).Spent)
		}
		s.w = s.writer()
		s.must(s.spend("two"))
	})
}

// A copy is on another server, with a disk and a replica of its own: what is wrong with the first one's, when it is made, is
// not wrong with the copy's, where nobody would ever end it.
func TestCopyHasItsOwnFaults(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.db.SetReplica(true, false)
		s.must(s.spend("one"))
		usual := s.db.Disk
		s.db.Disk = 10 * time.Second
		s.db.SetReplica(true, true)
		s.db.CancelReplicaWaits(true)
		c := s.db.Clone(s.world, "copy")
		if c.Disk != usual || !c.SyncReplica || c.ReplicaAway || c.CancelWaits {
			t.Errorf("the copy: %+v", c.Faults)
		}
		s.db.Destroy()
		s.at.Point(c)
		s.w = s.writer()
		s.must(s.spend("two"))
		if !c.log[len(c.log)-1].replica {
			t.Error("the copy's own replica lacks a commit that was acknowledged")
		}
	})
}

// A node that stands still between its round trips finds its transaction ended.
func TestPausedInBatch(t *testing.T) {
	play(t, 1, func(s *stage) {
		b, err := s.begin("one")
		s.must(err)
		s.world.After(0, s.node.Pause)
		s.world.After(time.Minute, s.node.Resume)
		s.node.Sleep(s.ctx, time.Millisecond)
		if err := b.Commit(s.ctx, writesOf(b.Seen(), "one", allocation.Spend)); err == nil || errors.Is(err, regional.ErrUnknownOutcome) || s.held() != 0 {
			t.Errorf("%v, held %d", err, s.held())
		}
		s.must(s.spend("one"))
	})
}
