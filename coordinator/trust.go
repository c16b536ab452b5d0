package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
)

const (
	// vouchWait is how long a coordinator without memory waits for one that has some.
	vouchWait = 3 * time.Second
	// recallPause is the wait between two attempts to compare the memory with a store that does not answer.
	recallPause = 200 * time.Millisecond
	// trustTick is how often somebody who has nothing to do looks whether somebody asks.
	trustTick = 5 * time.Second
	// vouchKept is how long an answer stays that nobody takes away.
	vouchKept = time.Hour
)

// VouchDocument is a coordinator's question whether etcd went back before it started, and the answer of one that knows.
// Nobody has answered while By is empty.
type VouchDocument struct {
	Format int `json:"format"`
	allocation.Vouch
	At time.Time `json:"at"`
}

// coldStart is why all is frozen although nobody knows of a loss.
const coldStart = "no coordinator that runs remembers what it wrote (a cold start), so nobody knows whether etcd went back"

// errNotSure: this replica does not know yet whether etcd went back before it started.
var errNotSure = problem(http.StatusServiceUnavailable, CodeUnavailable, "the coordinator makes sure that etcd did not go back", "try again in a moment")

// keepTrust makes sure, before anything else is written, that etcd did not go back while this process was away, or did so
// under it, and lets others know that it did not:
//
//	start ──▶ memory ──mark in place────────────────────────────────────▶ trusted ──own mark gone──┐
//	             │                                                           ▲                     │
//	             ├─ none ──▶ ask ──a trusted one vouches─────────────────────┤                     │
//	             │            └──nobody within vouchWait──▶ a new history ───┤                     │
//	             └─ mark gone ──▶ a new history began since? ──yes──▶ ask    │ ◀───────────────────┘
//	                                     └─ no ──▶ a new history, at once ───┘
//
// While it is not trusted, nothing is written but questions and histories, and every call is told to come again. It never
// takes longer than that: in the end there is a new history, and grants go on when every region has stated under it.
//
// Of two that start at once without memory, one begins the new history; the other sees it, and is vouched for. Trusted is
// called once, the first time.
func (s *Service) keepTrust(ctx context.Context, trusted func()) error {
	found, err := s.recallUntilKnown(ctx)
	if err != nil {
		return err
	}
	if err := s.ensureDeployment(ctx, found.Deployment); err != nil {
		return err
	}
	switch {
	case found.held:
		s.setTrusted(true)
	default:
		if err := s.makeSure(ctx, found.lost, found.History); err != nil {
			return err
		}
	}
	trusted()
	for ctx.Err() == nil {
		if s.commits.Lost() {
			if err := s.startOver(ctx); err != nil {
				return err
			}
		}
		if err := s.vouchForOthers(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("nobody is vouched for", "error", err)
		}
		s.awaitTrustNews(ctx)
	}
	return nil
}

func (s *Service) awaitTrustNews(ctx context.Context) {
	ctx, cancel := s.runtime.WithTimeout(ctx, trustTick)
	defer cancel()
	if !s.commits.Lost() {
		s.trustNews.Wait(ctx)
	}
}

func (s *Service) recallUntilKnown(ctx context.Context) (recollection, error) {
	for {
		found, err := s.commits.Recall(ctx)
		switch {
		case err == nil:
			return found, nil
		case !errors.Is(err, ErrUnavailable) && ctx.Err() == nil:
			s.log.Warn("memory is not compared with etcd", "error", err)
		}
		if ctx.Err() != nil {
			return recollection{}, ctx.Err()
		}
		s.runtime.Sleep(ctx, recallPause)
	}
}

// startOver goes on after the own mark was found to be gone: as a new writer, with a picture that is read anew.
func (s *Service) startOver(ctx context.Context) error {
	lost := s.commits.LostDetail()
	s.state.mu.Lock()
	known := s.state.newest
	s.state.mu.Unlock()
	if _, err := s.commits.Renew(ctx); err != nil {
		return err
	}
	if err := s.mirror.Reread(ctx); err != nil {
		return err
	}
	deployment, _ := s.around()
	if err := s.ensureDeployment(ctx, deployment); err != nil {
		return err
	}
	return s.makeSure(ctx, lost, known)
}

// makeSure returns when this replica is trusted. Lost says what the memory misses, known under which history it wrote.
func (s *Service) makeSure(ctx context.Context, lost string, known allocation.History) error {
	for ctx.Err() == nil {
		err := s.makeSureOnce(ctx, lost, known)
		if err == nil {
			return nil
		}
		if s.commits.Lost() {
			if _, err := s.commits.Renew(ctx); err != nil {
				return err
			}
			if err := s.mirror.Reread(ctx); err != nil {
				return err
			}
		}
		s.log.Warn("etcd's history is not made sure of yet", "error", err)
		s.runtime.Sleep(ctx, recallPause)
	}
	return ctx.Err()
}

func (s *Service) makeSureOnce(ctx context.Context, lost string, known allocation.History) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	s.state.mu.Lock()
	history, empty := s.state.descent().History, len(s.state.members().Regions)+len(s.state.removed()) == 0
	s.state.mu.Unlock()
	switch {
	case lost != "" && history.Number <= known.Number:
		if err := s.freezeAsNew(ctx, "etcd lost history, or was replaced: "+lost, history, known); err != nil {
			return err
		}
	case lost == "" && empty:
		// Nobody was granted anything in what etcd holds. A region that was in what is lost is unheard when it calls.
	case lost == "" && s.config.TrustEtcd:
		if err := s.actFreely(ctx, func() (Change, error) {
			return Change{Puts: []Item{s.auditLine(background, "coordinator.trust-etcd", s.commits.Mark().Writer, nil, history)}}, nil
		}); err != nil {
			return err
		}
		s.log.Warn("etcd is trusted without a proof that it did not go back: cold_start is trust-etcd")
	default:
		if err := s.askOthers(ctx, history); err != nil {
			return err
		}
	}
	s.setTrusted(true)
	return nil
}

// freezeAsNew begins a new history as a writer that is not trusted yet, unless somebody has since `under`.
func (s *Service) freezeAsNew(ctx context.Context, why string, under, heard allocation.History) error {
	began := false
	err := s.actFreely(ctx, func() (Change, error) {
		if began = s.state.descent().History == under; !began {
			return Change{}, nil
		}
		return s.freezeChange(background, s.newHistory(why, heard, 0)), nil
	})
	if err == nil && !began {
		err = errors.New("another coordinator has begun a new history meanwhile")
	}
	return err
}

// askOthers asks whether somebody with memory vouches for etcd, and begins a new history if nobody does.
func (s *Service) askOthers(ctx context.Context, history allocation.History) error {
	writer := s.commits.Mark().Writer
	key := vouchPrefix + writer
	ask := VouchDocument{Format: documentFormat, Vouch: allocation.Vouch{For: writer, History: history}, At: s.now().UTC()}
	if err := s.actFreely(ctx, func() (Change, error) {
		return Change{Reads: []Item{s.state.vouches[writer].known(key)}, Puts: []Item{put(key, ask)}}, nil
	}); err != nil {
		return err
	}
	answered := s.awaitVouch(ctx, writer)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !answered {
		if err := s.freezeAsNew(ctx, coldStart, history, allocation.History{}); err != nil {
			return err
		}
	}
	return s.actFreely(ctx, func() (Change, error) {
		d := s.state.vouches[writer]
		if d == nil {
			return Change{}, nil
		}
		return Change{Reads: []Item{d.item}, Deletes: []string{key}}, nil
	})
}

// awaitVouch says whether somebody has vouched for the writer, under the history that etcd shows.
func (s *Service) awaitVouch(ctx context.Context, writer string) bool {
	ctx, cancel := s.runtime.WithTimeout(ctx, vouchWait)
	defer cancel()
	for {
		s.state.mu.Lock()
		var vouches []allocation.Vouch
		if d := s.state.vouches[writer]; d != nil {
			vouches = append(vouches, d.value.Vouch)
		}
		trusted := s.state.descent().Trusts(writer, vouches)
		s.state.mu.Unlock()
		if trusted || ctx.Err() != nil {
			return trusted
		}
		s.trustNews.Wait(ctx)
	}
}

// vouchForOthers answers those who ask, in a transaction that finds the own mark in place.
func (s *Service) vouchForOthers(ctx context.Context) error {
	if !s.isTrusted() {
		return nil
	}
	s.state.mu.Lock()
	var asking []string
	for writer, d := range s.state.vouches {
		if d.value.By.Count == 0 && writer != s.commits.Mark().Writer {
			asking = append(asking, writer)
		}
	}
	s.state.mu.Unlock()
	slices.Sort(asking)
	for _, writer := range asking {
		if err := s.act(ctx, func() (Change, error) {
			d := s.state.vouches[writer]
			if d == nil || d.value.By.Count > 0 {
				return Change{}, nil
			}
			next := d.value
			next.By, next.History, next.At = s.commits.Mark(), s.state.descent().History, s.now().UTC()
			next.By.Count++ // as this transaction leaves it
			change := Change{Reads: []Item{d.item}, Puts: []Item{put(d.item.Key, next)}}
			s.state.onStanding(&change)
			return change, nil
		}); err != nil {
			return fmt.Errorf("vouch for writer %s: %w", writer, err)
		}
	}
	return nil
}

// sweepVouches removes what a coordinator left behind that ended before it was answered.
func (s *Service) sweepVouches(ctx context.Context) error {
	before := s.now().Add(-vouchKept)
	s.state.mu.Lock()
	var due []Item
	for _, d := range s.state.vouches {
		if d.value.At.Before(before) {
			due = append(due, d.item)
		}
	}
	s.state.mu.Unlock()
	slices.SortFunc(due, func(a, b Item) int { return cmp.Compare(a.Key, b.Key) })
	_, err := eachOf(ctx, s, due, func(item Item) (Change, error) {
		return Change{Reads: []Item{item}, Deletes: []string{item.Key}, aged: true}, nil
	})
	return err
}

// actFreely is act for a replica that is not trusted yet.
func (s *Service) actFreely(ctx context.Context, decide func() (Change, error)) error {
	return s.actWith(ctx, s.commits.Life(), decide)
}

// around is what the memory keeps beside the mark.
func (s *Service) around() (deployment string, h allocation.History) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.deployment == nil {
		return s.deployment, h
	}
	s.deployment = s.state.deployment.value.ID
	return s.deployment, s.state.newest
}

// lostTrust hears from the committer that the own mark is gone. Whatever was decided before is refused from here on.
func (s *Service) lostTrust() { s.setTrusted(false) }

func (s *Service) setTrusted(trusted bool) {
	life := 0
	if trusted {
		life = s.commits.Life()
		s.commits.Trust()
	}
	s.mu.Lock()
	s.trustLife = life
	s.mu.Unlock()
	s.trustNews.Notify()
	if trusted {
		s.nudgeBackground()
	}
}

// trustedLife is the writer's life in which this replica is trusted; 0: it is not.
func (s *Service) trustedLife() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trustLife
}

func (s *Service) isTrusted() bool { return s.trustedLife() > 0 }
