package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/coordinator/archive"
)

// Bounds of a month, and how fast it goes.
const (
	MinMonthBudgets, MaxMonthBudgets = 10, 20_000
	MaxMonthDays                     = 62

	monthStep  = time.Hour // by which it is driven ahead, less than a term
	stepWithin = 10 * time.Minute
	stepLook   = 10 * time.Millisecond
	// sweepWithin bounds the wait for what the coordinator clears away in its own time.
	sweepWithin = time.Minute
	sweepLook   = 250 * time.Millisecond
	usedOneIn   = 10 // each region spends in one period of so many
)

// MonthOptions says how long how many minute budgets roll over.
type MonthOptions struct {
	Budgets  int
	Regions  int
	Days     int
	Progress func(format string, args ...any) // nil: nobody hears it
}

// Check says what is wrong with the options.
func (o MonthOptions) Check() error {
	switch {
	case o.Budgets < MinMonthBudgets || o.Budgets > MaxMonthBudgets:
		return fmt.Errorf("--month-budgets %d: use %d to %d", o.Budgets, MinMonthBudgets, MaxMonthBudgets)
	case o.Days < 3 || o.Days > MaxMonthDays:
		return fmt.Errorf("--month-days %d: use 3 to %d; records of closed terms stay in etcd for a day", o.Days, MaxMonthDays)
	case o.Regions < MinRegions || o.Regions > MaxRegions:
		return fmt.Errorf("--regions %d: use %d to %d", o.Regions, MinRegions, MaxRegions)
	}
	return nil
}

// Month is what minute budgets cost etcd over a long time: the real coordinator, on a real etcd, whose clock is driven ahead
// by an hour at a time. After each hour the regions call until everything that it brought is done, so every term is
// opened, granted, stated, closed, and its record moved to the archive a day later, as if the time had passed.
type Month struct {
	Budgets int        `json:"budgets"`
	Regions int        `json:"regions"`
	Days    []MonthDay `json:"days"` // at the end of each

	// Of the days from the third on, when the records of the first have begun to leave etcd.
	Terms        int                `json:"terms"`                             // that were opened
	LedgerWrites float64            `json:"ledger_writes_per_budget_and_term"` // to open it; one more document is deleted when it is closed
	Writes       map[string]Written `json:"written"`                           // by kind of document
	Growth       float64            `json:"growth_bytes_per_term"`             // of what etcd holds, less than one document of any kind where it is steady
	Archived     int64              `json:"archive_bytes"`
	Records      int                `json:"archived_records"`
	Seconds      float64            `json:"seconds"`       // that the whole took
	StartSeconds float64            `json:"start_seconds"` // of one more replica at the end
	HeapBytes    int64              `json:"heap_bytes"`    // that it takes
}

// MonthDay is what etcd holds at the end of a day.
type MonthDay struct {
	Day      int             `json:"day"`
	Kinds    map[string]Held `json:"kinds"`
	Held     Held            `json:"held"`
	Database int64           `json:"database_bytes"` // as large as its file is
	Archive  int64           `json:"archive_bytes"`
}

// MeasureMonth measures it.
func MeasureMonth(ctx context.Context, o MonthOptions) (m Month, err error) {
	if err := o.Check(); err != nil {
		return m, err
	}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	folder, err := os.MkdirTemp("", "tranche-month-")
	if err != nil {
		return m, fmt.Errorf("make a folder for the archive: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	file := filepath.Join(folder, "closings")
	closings, err := archive.Open(file, func(*os.File) error { return nil }) // nobody else knows of the folder
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, closings.Close()) }()

	return measureMonth(ctx, o, closings, file)
}

// measureMonth does, with an archive that is a file.
func measureMonth(ctx context.Context, o MonthOptions, closings coordinator.ClosingArchive, file string) (m Month, err error) {
	w, c := newWorld(Options{Budgets: o.Budgets, Regions: o.Regions, Progress: o.Progress}), &clock{}
	w.now, w.used = c.Now, usedOf
	w.config = coordinator.Config{Runtime: c, ClosingArchive: closings, ReportUnreachableAfter: 48 * time.Hour}
	defer func() { err = errors.Join(err, w.stop()) }()
	if err := w.start(ctx, o.Regions); err != nil {
		return m, err
	}
	if err := w.declareMany(ctx, o.Budgets); err != nil {
		return m, err
	}
	m = Month{Budgets: o.Budgets, Regions: o.Regions}
	began := time.Now()
	r := &roll{world: w, clock: c, month: &m, archive: file}
	err = r.run(ctx, o)
	m.Seconds = time.Since(began).Seconds()
	if err != nil {
		return m, err
	}
	w.resting.rest() // nothing is opened meanwhile
	m.StartSeconds, m.HeapBytes, err = w.second(ctx)
	return m, err
}

// usedOf is what a region spent of a share. It says so when the term is over: what etcd holds of it then is the same.
func usedOf(s allocation.Share, closed allocation.Instant) (used []allocation.Usage) {
	if s.Periods.End() > closed {
		return nil
	}
	for i := 0; i < s.Periods.Len(); i += usedOneIn {
		used = append(used, allocation.Usage{
			UsageKey: allocation.UsageKey{Budget: s.Budget, Period: s.Periods.At(i).Start, Class: allocation.General}, Spent: 7 + int64(i%3),
		})
	}
	return used
}

// roll drives the clock of a world ahead.
type roll struct {
	world   *world
	clock   *clock
	month   *Month
	archive string
	from    map[string]Written // that was written before what is counted
}

func (r *roll) run(ctx context.Context, o MonthOptions) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	for hour := 1; hour <= 24*o.Days; hour++ {
		r.clock.drive(monthStep)
		if err := r.settle(ctx); err != nil {
			return fmt.Errorf("hour %d: %w", hour, err)
		}
		if hour%6 == 0 {
			o.Progress("%d hours of %d days", hour, o.Days)
		}
		if hour%24 == 0 {
			if err := r.look(ctx, hour/24); err != nil {
				return err
			}
		}
	}
	r.sum()
	return nil
}

// settle lets the regions call until all that the hour brought is done: new terms reach ahead again and are stored, what is
// over is stated and closed. The last of what was stated may be written to etcd within the next hour.
func (r *roll) settle(ctx context.Context) error {
	until := time.Now().Add(stepWithin)
	for ctx.Err() == nil {
		now, done := allocation.At(r.clock.Now()), true
		for _, one := range r.world.regions {
			one.endTerms(now - allocation.Instant(closeGrace/time.Second))
			_, news, err := one.sync(ctx)
			if err != nil {
				return err
			}
			done = done && !news
		}
		if done && r.rolledOver(now) {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the terms of an hour are not opened and closed within %s", stepWithin)
		}
		select {
		case <-ctx.Done():
		case <-time.After(stepLook):
		}
	}
	return ctx.Err()
}

// rolledOver says whether all regions have terms of each budget for as long as they are to run alone, and none that they
// closed.
func (r *roll) rolledOver(now allocation.Instant) bool {
	for _, one := range r.world.regions {
		budgets, ahead := one.reach(now)
		if budgets < r.world.o.Budgets || ahead < now+allocation.Instant(allocation.DefaultRunsAloneFor) {
			return false
		}
	}
	return true
}

// sweep waits a while for the coordinator to move records that are old enough to the archive, which it does beside all else. What
// stays is counted.
func (r *roll) sweep(ctx context.Context) error {
	before := r.clock.Now().Add(-coordinator.DefaultClosingRetention)
	for until := time.Now().Add(sweepWithin); time.Now().Before(until); {
		items, _, err := r.world.store.Range(ctx, coordinator.Root+"closings/")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(items, func(i coordinator.Item) bool {
			var c coordinator.Closing
			return json.Unmarshal(i.Value, &c) == nil && c.Closed.Before(before)
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sweepLook):
		}
	}
	return nil
}

// look notes what etcd holds at the end of a day.
func (r *roll) look(ctx context.Context, day int) error {
	if err := r.sweep(ctx); err != nil {
		return err
	}
	items, _, err := r.world.store.Range(ctx, coordinator.Root)
	if err != nil {
		return err
	}
	d := MonthDay{Day: day}
	d.Kinds, d.Held = held(items)
	if d.Database, err = r.world.file(ctx); err != nil {
		return err
	}
	info, err := os.Stat(r.archive)
	if err != nil {
		return fmt.Errorf("look at the archive: %w", err)
	}
	d.Archive = info.Size()
	r.month.Days = append(r.month.Days, d)
	if day == 2 {
		r.from = r.world.resting.counted()
	}
	return nil
}

// sum is what the days from the third on cost.
func (r *roll) sum() {
	m := r.month
	m.Writes = map[string]Written{}
	for kind, w := range r.world.resting.counted() {
		from := r.from[kind]
		m.Writes[kind] = Written{Puts: w.Puts - from.Puts, Deletes: w.Deletes - from.Deletes, Bytes: w.Bytes - from.Bytes}
	}
	first, last := m.Days[1], m.Days[len(m.Days)-1]
	// Each term that is closed leaves one record, and each that was opened was one write of its budget's document.
	m.Terms = m.Writes["budgets"].Puts
	m.LedgerWrites = float64(m.Writes["ledgers"].Puts) / float64(max(1, m.Terms))
	m.Growth = float64(last.Held.Bytes-first.Held.Bytes) / float64(max(1, m.Terms))
	m.Archived, m.Records = last.Archive, m.Writes["closings"].Deletes
}
