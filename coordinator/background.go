package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	backgroundTick = 500 * time.Millisecond
	sweepEvery     = time.Minute
	markSweepEvery = 5 * time.Minute
	// skewRecent is how lately a region must have called for its clock to count.
	skewRecent = 10 * time.Minute
)

// lead does the background work while this replica leads. Leadership only saves double work: every change is compared,
// so two leaders at once do no harm. A replica that cannot do it all, by its clock or its time-zone data, leaves it to another.
func (s *Service) lead(ctx context.Context) error {
	s.setLeading(true)
	defer s.setLeading(false)
	var swept, marks time.Time
	var fit fitness
	for ctx.Err() == nil {
		started := s.now()
		if !s.isTrusted() {
			s.awaitNudge(ctx, rest(s.runtime, started, backgroundTick))
			continue
		}
		if err := s.round(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("background work is not done", "error", err)
		}
		if err := fit.judge(s.unfit(), s.now()); err != nil {
			return err
		}
		if err := s.noticeEvents(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("events are not told yet", "error", err)
		}
		if s.now().Sub(swept) >= sweepEvery {
			swept = s.now()
			if err := s.tidy(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("store is not tidied", "error", err)
			}
		}
		if s.now().Sub(marks) >= markSweepEvery {
			marks = s.now()
			if err := s.commits.SweepMarks(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("marks are not swept", "error", err)
			}
		}
		s.awaitNudge(ctx, rest(s.runtime, started, backgroundTick))
	}
	return nil
}

func (s *Service) awaitNudge(ctx context.Context, most time.Duration) {
	ctx, cancel := s.runtime.WithTimeout(ctx, most)
	defer cancel()
	s.nudge.Wait(ctx)
}

func (s *Service) setLeading(leading bool) {
	s.mu.Lock()
	s.leading = leading
	s.mu.Unlock()
	s.log.Info("leadership", "leading", leading)
}

// round is one turn of all duties. Lowered limits and new members come first: they were promised; opening is ahead of
// time by design.
func (s *Service) round(ctx context.Context) error {
	trust := s.trustClock()
	if trust == clockWrong {
		return nil
	}
	if _, err := s.bringOn(ctx); err != nil {
		return fmt.Errorf("bring ledgers on: %w", err)
	}
	if err := s.finishRebalances(ctx); err != nil {
		return fmt.Errorf("finish rebalances: %w", err)
	}
	if err := s.endOverrides(ctx); err != nil {
		return fmt.Errorf("end overrides: %w", err)
	}
	if err := s.strandedWork(ctx); err != nil {
		return err
	}
	if trust != clockGood {
		return nil
	}
	opened, err := s.openTerms(ctx)
	s.metrics.opened.Add(float64(opened))
	if err != nil {
		return fmt.Errorf("open terms: %w", err)
	}
	if _, err := s.closeTerms(ctx); err != nil {
		return fmt.Errorf("close terms: %w", err)
	}
	if err := s.followDemand(ctx); err != nil {
		return fmt.Errorf("follow demand: %w", err)
	}
	if opened > 0 {
		s.nudgeBackground() // a budget may need more than one term
	}
	return nil
}

// tidy removes what is no longer kept, and lets the store forget revisions that no watch needs.
func (s *Service) tidy(ctx context.Context) error {
	if s.trustClock() == clockGood {
		if err := s.sweep(ctx); err != nil {
			return fmt.Errorf("sweep: %w", err)
		}
	}
	if err := s.sweepVouches(ctx); err != nil {
		return fmt.Errorf("sweep questions of coordinators: %w", err)
	}
	revision, _ := s.mirror.Evidence()
	if to := s.compactTo(revision); to > 0 {
		if err := s.config.Store.Compact(ctx, to); err != nil {
			return fmt.Errorf("compact: %w", err)
		}
	}
	return nil
}

// What stays of the latest revisions, for the watches of replicas that are a little behind. One that is further behind reads
// everything again.
//
// A revision may hold 1 MiB, so it is the time that bounds what etcd keeps: with many regions that state much, 10,000
// revisions are an hour and a half, and more bytes than etcd takes.
const (
	compactKeep   = 10_000 // revisions, at most
	compactSweeps = 5      // those of so many sweeps, at most: as many minutes
)

// compactTo is the revision before which all is forgotten now; 0: nothing yet.
func (s *Service) compactTo(revision int64) int64 {
	to := max(0, revision-compactKeep)
	if len(s.sweeps) == compactSweeps {
		to = max(to, min(s.sweeps[0], revision)) // etcd may have gone back meanwhile
		s.sweeps = s.sweeps[1:]
	}
	s.sweeps = append(s.sweeps, revision)
	return to
}

// clockTrust says how this replica's clock compares with the median of the regions' clocks, as seen when they called.
type clockTrust int

const (
	clockGood    clockTrust = iota
	clockUnknown            // regions hold shares, and none has called lately: it cannot be compared
	clockWrong              // it lies too far away
)

// trustClock compares the clocks, and logs when the outcome changes. While it is unknown no term is opened or closed,
// which harms nobody: no region is there to fetch one.
func (s *Service) trustClock() clockTrust {
	skew, known, needed := s.medianSkew()
	trust, word := clockGood, ""
	switch {
	case known && skew.Abs() > maxClockSkew:
		trust = clockWrong
		word = fmt.Sprintf("this coordinator's clock lies %s from the median of the regions' clocks: it does no background work", skew.Abs().Round(time.Second))
	case !known && needed:
		trust = clockUnknown
		word = "no region has called lately, so this coordinator's clock cannot be compared: it opens and closes no terms until one does"
	}
	s.mu.Lock()
	changed := s.trust != trust
	s.trust, s.clockWord = trust, word
	s.mu.Unlock()
	switch {
	case changed && word != "":
		s.log.Warn("clock is not trusted", "why", word)
	case changed:
		s.log.Info("clock is trusted again")
	}
	return trust
}

// clockNoted is what was last found of the clock; it takes no lock of the state.
func (s *Service) clockNoted() clockTrust {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trust
}

// medianSkew is the median of the regions' clocks less ours, known if some called lately, and needed if some hold shares.
func (s *Service) medianSkew() (skew time.Duration, known, needed bool) {
	now := s.now()
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	var skews []time.Duration
	for _, r := range s.state.regions {
		if r.doc == nil || !r.doc.value.Confirmed {
			continue
		}
		needed = true
		// After our clock jumped, in either direction, what was measured before is not recent.
		if !r.skewAt.IsZero() && now.Sub(r.skewAt).Abs() < skewRecent {
			skews = append(skews, r.skew)
		}
	}
	if len(skews) == 0 {
		return 0, false, needed
	}
	slices.Sort(skews)
	return skews[len(skews)/2], true, needed
}
