//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

const region = "eu"

// patient is for tests that are about something else than timeouts, on a busy machine.
const patient = 20 * time.Second

// owner is a database with an owner in it, and what a test needs to play coordinator and node.
type owner struct {
	t     testing.TB
	url   string
	store *Store
	w     regional.Writer
	first allocation.Instant // a minute's start, some minutes before now

	made map[allocation.UsageKey]bool // rows that charge need not make
}

// newOwner opens a fresh database with an incarnation.
func newOwner(t testing.TB) *owner {
	t.Helper()
	return ownerAt(t, clustertest.Database(t))
}

func ownerAt(t testing.TB, url string) *owner {
	t.Helper()
	o := &owner{t: t, url: url, store: open(t, url)}
	o.w = o.writer(o.store)
	now := allocation.At(time.Now())
	o.first = now - now%60 - 600
	o.apply(allocation.SyncAnswer{Incarnation: "life-1"})
	return o
}

func open(t testing.TB, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{URL: url, Region: region, LockTimeout: patient, CommitPatience: patient})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shut)
	return s
}

func (o *owner) writer(s *Store) regional.Writer {
	o.t.Helper()
	w, err := s.NewWriter(o.t.Context(), "test")
	if err != nil {
		o.t.Fatal(err)
	}
	return w
}

func (o *owner) apply(a allocation.SyncAnswer) {
	o.t.Helper()
	if err := o.store.Apply(o.t.Context(), o.w, a, 1); err != nil {
		o.t.Fatal(err)
	}
}

// conn is a connection of the test's own, to look and to disturb.
func (o *owner) conn() *pgx.Conn {
	o.t.Helper()
	c, err := pgx.Connect(o.t.Context(), o.url)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { c.Close(context.WithoutCancel(o.t.Context())) })
	return c
}

func (o *owner) exec(sql string, args ...any) {
	o.t.Helper()
	c := o.conn()
	if _, err := c.Exec(o.t.Context(), sql, args...); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
}

// name is the database's.
func (o *owner) name() (name string) {
	o.t.Helper()
	if err := o.conn().QueryRow(o.t.Context(), "select current_database()").Scan(&name); err != nil {
		o.t.Fatal(err)
	}
	return name
}

// number reads one number.
func (o *owner) number(sql string, args ...any) (n int64) {
	o.t.Helper()
	c, err := pgx.Connect(o.t.Context(), o.url)
	if err != nil {
		o.t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(o.t.Context()))
	if err := c.QueryRow(o.t.Context(), sql, args...).Scan(&n); err != nil {
		o.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// grant is a share of minute periods from first on.
func (o *owner) grant(budget string, generation, granted, target int64) allocation.ShareGrant {
	periods := allocation.Periods{First: o.first, Step: 60, Count: 60}
	return allocation.ShareGrant{
		Budget: budget, Version: 1, Policy: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{region: 1}},
		Regions: []string{region}, Periods: periods, Generation: allocation.Generation{Number: generation, Stamp: fmt.Sprint("g", generation)},
		Entries: []allocation.GrantEntry{{From: o.first, Until: periods.End(), Class: allocation.General, Limit: granted, Granted: granted, Target: target}},
	}
}

// give grants so many permits of each period.
func (o *owner) give(budget string, granted int64) {
	o.t.Helper()
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{o.grant(budget, 1, granted, granted)}})
}

func (o *owner) key(budget string, minute int) allocation.UsageKey {
	return allocation.UsageKey{Budget: budget, Period: o.first + allocation.Instant(60*minute), Class: allocation.General}
}

func (o *owner) wanted(k allocation.UsageKey, make bool) regional.WantedUsage {
	return regional.WantedUsage{UsageKey: k, Until: k.Period + 60, Term: o.first, Make: make}
}

func id(name string) allocation.IDKey {
	return allocation.IDKey{Credential: "gateway", Tenant: "acme", ID: name}
}

// spend is one batch that spends one permit of each key for one id. It says whether it was admitted.
func (o *owner) spend(s *Store, w regional.Writer, name string, keys ...allocation.UsageKey) (bool, error) {
	return o.charge(o.t.Context(), s, w, allocation.Spend, name, keys...)
}

func (o *owner) charge(ctx context.Context, s *Store, w regional.Writer, op allocation.Op, name string, keys ...allocation.UsageKey) (bool, error) {
	want := regional.Want{IDs: []allocation.IDKey{id(name)}, Changes: noChanges}
	for _, k := range keys {
		want.Usage = append(want.Usage, o.wanted(k, !o.made[k]))
	}
	b, err := s.Begin(ctx, w, want)
	if err != nil {
		return false, err
	}
	seen := b.Seen()
	if seen.IDs[id(name)] != nil {
		b.Abandon()
		return false, nil
	}
	writes, ok := chargeAll(seen, op, name, keys)
	if !ok {
		b.Abandon()
		return false, nil
	}
	return true, b.Commit(ctx, writes)
}

// chargeAll charges one permit of each key, or nothing.
func chargeAll(seen *regional.Seen, op allocation.Op, name string, keys []allocation.UsageKey) (regional.Writes, bool) {
	var w regional.Writes
	a := &allocation.Admission{
		IDKey: id(name), Payload: "0123456789abcdef", Op: op, State: allocation.StateSpent, At: seen.Now,
		First: allocation.Evidence{Incarnation: seen.Incarnation, Correlation: `"\{}`},
	}
	if op == allocation.Reserve {
		a.State, a.ExpiresAt, a.Latest = allocation.StateReserved, seen.Now+60_000_000, seen.Now+120_000_000
	}
	for _, k := range keys {
		u := seen.Usage[k]
		if u == nil || u.Spendable(1<<40) < 1 {
			return w, false
		}
		line := allocation.AdmissionLine{UsageKey: k, Until: u.Until, Unit: "requests", Version: 1, Generation: u.Generation, Limit: 10, Requested: 1, OnLapse: "spend"}
		if op == allocation.Reserve {
			u.Reserved, line.Held = u.Reserved+1, 1
		} else {
			u.Spent, line.Spent = u.Spent+1, 1
		}
		line.Remaining = u.Spendable(1 << 40)
		a.Lines = append(a.Lines, line)
		w.Usage = append(w.Usage, u)
	}
	w.Inserted = []*allocation.Admission{a}
	return w, true
}

// mustMake makes usage rows, and remembers that they are there.
func (o *owner) mustMake(keys ...allocation.UsageKey) {
	o.t.Helper()
	want := regional.Want{Changes: noChanges}
	for _, k := range keys {
		want.Usage = append(want.Usage, o.wanted(k, true))
	}
	b, err := o.store.Begin(o.t.Context(), o.w, want)
	if err != nil {
		o.t.Fatal(err)
	}
	if err := b.Commit(o.t.Context(), regional.Writes{}); err != nil {
		o.t.Fatal(err)
	}
	if o.made == nil {
		o.made = map[allocation.UsageKey]bool{}
	}
	for _, k := range keys {
		o.made[k] = true
	}
}

// mustSpend fails the test unless the permit was spent.
func (o *owner) mustSpend(name string, keys ...allocation.UsageKey) {
	o.t.Helper()
	if ok, err := o.spend(o.store, o.w, name, keys...); err != nil || !ok {
		o.t.Fatalf("spend %s: admitted %v, %v", name, ok, err)
	}
}

// usage reads a row as it stands.
func (o *owner) usage(k allocation.UsageKey) allocation.Usage {
	o.t.Helper()
	seen, err := o.store.Peek(o.t.Context(), regional.Want{Usage: []regional.WantedUsage{o.wanted(k, false)}, Changes: noChanges})
	if err != nil {
		o.t.Fatal(err)
	}
	if seen.Usage[k] == nil {
		o.t.Fatalf("no usage of %v", k)
	}
	return *seen.Usage[k]
}

// idCount is how many rows an id has in all tables.
func (o *owner) idCount(name string) int64 {
	o.t.Helper()
	return o.number(`select count(*) from (`+allTables(`select id from tranche.admission_ids_{n}`)+`) as a where id = $1`, name)
}

// waitFor asks until it is so. There is nothing that would tell a test when another session begins to wait.
func waitFor(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for: %s", what)
		case <-tick.C:
		}
	}
}

// waiters is how many sessions of the owner's database wait for a lock.
func (o *owner) waiters(c *pgx.Conn) (n int64) {
	if err := c.QueryRow(o.t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`).Scan(&n); err != nil {
		o.t.Error(err)
	}
	return n
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func sorted[K comparable, V any](m map[K]V, compare func(K, K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

func isAny(err error, targets ...error) bool {
	return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
}
