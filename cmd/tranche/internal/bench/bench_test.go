//go:build unix

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/process"
	"tranche/regional/postgres/cluster"
)

// TestMain lets this binary stand in for tranche, as which the case of two client processes runs it again.
func TestMain(m *testing.M) {
	if os.Args[0] != process.Program {
		os.Exit(m.Run())
	}
	var o ClientOptions
	f := flag.NewFlagSet("client", flag.ExitOnError)
	f.StringVar(&o.Address, "address", "", "")
	f.IntVar(&o.Connections, "connections", 0, "")
	f.DurationVar(&o.For, "for", 0, "")
	if err := errors.Join(f.Parse(os.Args[3:]), RunClient(context.Background(), o, os.Stdin, os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A benchmark that measures nothing, or whose account of itself is wrong, is worse than none: each case runs, quickly, and
// everything that its report promises is there.
func TestEveryCaseMeasures(t *testing.T) {
	var out, progress bytes.Buffer
	err := Run(t.Context(), Options{Out: &out, Err: &progress, JSON: true, Version: "v", All: true, Each: 60 * time.Millisecond, Rounds: 1})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	var r Report
	d := json.NewDecoder(&out)
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Format != 1 || r.Machine.Postgres == "" || r.Machine.CPUs == 0 || len(r.Cases) != len(cases()) {
		t.Errorf("the report is not whole: %+v", r)
	}
	for _, c := range r.Cases {
		if len(c.Figures) == 0 || len(c.Books) == 0 {
			t.Errorf("%s has %d figures and %d books", c.Name, len(c.Figures), len(c.Books))
		}
		for _, m := range c.Measured {
			if m.Admitted+m.Replayed+m.Refused == 0 || m.P50 <= 0 || m.P99 < m.P50 || m.Max < m.P999 || len(m.Rounds) != 1 || m.Unknown != 0 {
				t.Errorf("%s, %s: %+v", c.Name, m.Arm, m)
			}
		}
		for _, f := range c.Figures {
			if f.Value < 0 || (f.AtLeast != nil || f.AtMost != nil) != (f.Reached != nil) {
				t.Errorf("%s: %+v", c.Name, f)
			}
		}
		for _, k := range c.Books {
			if !k.Agree || k.Told == 0 {
				t.Errorf("%s: %+v", c.Name, k)
			}
		}
	}
	if !strings.Contains(progress.String(), "hot, round 1 of 1: 256 callers: ") {
		t.Errorf("no progress:\n%s", progress.String())
	}
}

// Books that could not differ would prove nothing.
func TestBooksCanDiffer(t *testing.T) {
	for _, k := range []struct {
		told, open, spent, ids int64
		agree                  bool
	}{
		{10, 0, 10, 10, true},
		{10, 0, 11, 11, false},
		{10, 0, 9, 10, false},
		{10, 0, 10, 9, false},
		{10, 2, 12, 12, true},
		{10, 2, 13, 12, false},
	} {
		if agree := agrees(k.told, k.open, 1, k.spent, k.ids); agree != k.agree {
			t.Errorf("%+v: %v", k, agree)
		}
	}
	if !agrees(10, 0, 3, 30, 10) || agrees(10, 0, 3, 10, 10) {
		t.Error("three budgets a request are not charged three times")
	}
}

// A quantile that is too low hides what callers wait for.
func TestHistogram(t *testing.T) {
	var h histogram
	var all []time.Duration
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		h.add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, part := range []float64{0, 0.5, 0.99, 0.999} {
		exact, got := all[int(part*float64(len(all)))], h.quantile(part)
		if got < exact || float64(got) > float64(exact)*(1+1.0/16) {
			t.Errorf("quantile %g: %s, exactly %s", part, got, exact)
		}
	}
	if most := h.most(); most < all[len(all)-1] {
		t.Errorf("the greatest is %s, exactly %s", most, all[len(all)-1])
	}
}

// A verdict that is turned around would praise what is missed.
func TestVerdicts(t *testing.T) {
	var c Case
	c.atLeast("a", 0.8, 0.8)
	c.atLeast("b", 0.79, 0.8)
	c.atMost("c", 1.5, "", 1.5)
	c.atMost("d", 1.6, "", 1.5)
	c.shown("e", 3, "")
	for i, want := range []string{"PASS (at least 0.8)", "below (at least 0.8)", "PASS (at most 1.5)", "above (at most 1.5)", ""} {
		if got := c.Figures[i].verdict(); got != want {
			t.Errorf("%s: %q, want %q", c.Figures[i].Name, got, want)
		}
	}
}

// What `tranche size` says of disks must be what a database takes.
func TestSizeIsWhatWasMeasured(t *testing.T) {
	c, err := cluster.Start(t.Context(), cluster.Options{Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop(context.WithoutCancel(t.Context())) //nolint:errcheck // the folder goes with it
	b := &bench{cluster: c}
	texts, labels := firms(endless)
	w, err := b.newWorld(t.Context(), forEver(), texts...)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	before, err := w.look.Written(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids atomic.Int64
	w.counted(callersOf(256, func(_ int, n note) {
		names := newIDs(true)
		for next := ids.Add(1); next <= 12_000; next = ids.Add(1) {
			id := names.next()
			ask := inProcess(w.nodes[0], patience, spend(labels[next%int64(len(labels))]))
			n(truth(t.Context(), ask, id, ask(t.Context(), id)), 0, 0, true)
		}
	}))
	after, err := w.look.Written(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	disk, err := w.look.Disk(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := w.told.counts[admitted]
	for _, x := range []struct {
		what         string
		is, expected float64
	}{
		{"bytes of an id", float64(disk.IDs) / float64(n), bytesPerID},
		{"bytes of a usage row", float64(disk.Usage) / float64(disk.Rows), bytesPerUsage},
		{"bytes of log an admission", float64(after-before) / float64(n), logPerID * logFullPages},
	} {
		t.Logf("%s: %.0f, said %.0f", x.what, x.is, x.expected)
		if x.is > 1.3*x.expected || x.is < x.expected/1.6 {
			t.Errorf("%s: %.0f, `tranche size` says %.0f", x.what, x.is, x.expected)
		}
	}
}

// A load that cannot be must be refused, and twice the load takes twice the rows.
func TestSize(t *testing.T) {
	l := Load{Admissions: 1000, Regions: 3, Nodes: 2, Pool: 8, Budgets: 100, Rows: 1440, Retention: 24 * time.Hour}
	one, err := SizeOf(l)
	if err != nil {
		t.Fatal(err)
	}
	l.Admissions = 2000
	two, err := SizeOf(l)
	if err != nil || two.IDBytes != 2*one.IDBytes || one.Connections != 29 || one.Load.Peak != 3000 {
		t.Errorf("%+v and %+v, %v", one, two, err)
	}
	l.Peak = 1
	if _, err := SizeOf(l); err == nil {
		t.Error("a peak below the mean is sized")
	}
}
