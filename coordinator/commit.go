package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tranche/allocation"
)

// Bounds of one act's transaction. The Committer takes 60 documents and 1 MiB; the rest is left for the act's own other
// documents and for what it gathers beside them.
const (
	maxAttempts     = 16 // of an act whose documents others keep changing
	maxLedgersAct   = 50
	maxLedgerBytes  = 64 << 10
	maxActBytes     = 300 << 10 // each document counts twice: as compared and as put
	maxBackground   = 32        // commits in flight from background work; the Committer gathers them
	refreshDeadline = 10 * time.Second
)

// actor is who does an act: the name of the token and the caller's address; node is a region's, as it names itself.
type actor struct{ name, from, node, reason string }

// nodeOf is the actor of what a region's call brings about. From is its address, where one is known.
func nodeOf(call allocation.SyncCall, from string) actor {
	return actor{name: regionToken(call.Region), from: cmp.Or(from, "-"), node: call.Node}
}

// background is the actor of what the coordinator does by itself.
var background = actor{name: "coordinator", from: "-"}

// act reads the picture, decides, and writes what was decided in one transaction that rests on what was read; if somebody
// else changed that meanwhile, it reads and decides anew. When it returns, the picture shows what it wrote.
//
// decide runs under the state's lock and must be pure; a change without puts and deletes writes nothing.
func (s *Service) act(ctx context.Context, decide func() (Change, error)) error {
	life := s.trustedLife()
	if life == 0 {
		return errNotSure
	}
	return s.actWith(ctx, life, decide)
}

// actWith is act for the writer of one life: see trust.go.
func (s *Service) actWith(ctx context.Context, life int, decide func() (Change, error)) error {
	for range maxAttempts {
		s.state.mu.Lock()
		change, err := decide()
		if err == nil {
			err = s.state.knows(change)
		}
		shown := s.shown()
		s.state.mu.Unlock()
		if err != nil || len(change.Puts)+len(change.Deletes) == 0 {
			return err
		}
		err = s.commit(ctx, life, change, shown)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if err := s.refresh(ctx); err != nil {
			return err
		}
	}
	return ErrConflict
}

// shown is a revision up to which the picture shows everything: while the lock of the state is held, it is no newer than that.
func (s *Service) shown() int64 {
	revision, _ := s.mirror.Evidence()
	return revision
}

// commit writes one change, which was decided by the picture of a revision, and waits until the picture shows it.
func (s *Service) commit(ctx context.Context, life int, change Change, shown int64) error {
	seen := s.shown()
	revision, err := s.commits.commitIn(ctx, life, change)
	var differs *conflict
	switch {
	case errors.As(err, &differs) && !change.aged && differs.revision > 0 && differs.revision <= shown:
		// The picture was as new as that, and shows another document: it is wrong, and without this it would be for good.
		s.metrics.conflicts.Inc()
		if reread := s.mirror.Reread(ctx); reread != nil {
			return fmt.Errorf("the picture is wrong: %w", reread)
		}
		return err
	case errors.Is(err, ErrConflict):
		s.metrics.conflicts.Inc()
		return err
	case err != nil:
		return err
	}
	if revision <= seen {
		// No write is older than what was seen before it: etcd went back, and came up again before a read could tell. The watch
		// goes on behind what was seen, and never shows what was written since.
		err = s.mirror.Reread(ctx)
	} else {
		err = s.mirror.WaitFor(ctx, revision)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotShown, err)
	}
	return nil
}

// errNotShown: a change stands, and this replica could not yet read what it would tell of it. It is not ErrUnknownOutcome,
// which asks for a look at the store; but whoever is told must not take it for undone.
var errNotShown = errors.New("it was written, and could not be read back in time")

// refresh makes the picture at least as new as the store is now. Whatever looks contradicted in an older picture may be
// the word of another replica that this one has not heard yet.
func (s *Service) refresh(ctx context.Context) error {
	ctx, cancel := s.runtime.WithTimeout(ctx, refreshDeadline)
	defer cancel()
	_, revision, err := s.config.Store.Range(ctx, deploymentKey)
	if err != nil {
		return fmt.Errorf("read the store's revision: %w", err)
	}
	return s.mirror.WaitFor(ctx, revision)
}

// knows refuses to touch a document of an unknown format.
func (s *state) knows(change Change) error {
	for _, p := range change.Puts {
		if why := s.strange[p.Key]; why != "" {
			return fmt.Errorf("write %s: %s: %w", p.Key, why, errFormat)
		}
	}
	for _, key := range change.Deletes {
		if why := s.strange[key]; why != "" {
			return fmt.Errorf("delete %s: %s: %w", key, why, errFormat)
		}
	}
	return nil
}

// auditLine is the line that stands in the transaction of its act. Old and new are what is worth knowing later.
func (s *Service) auditLine(who actor, act, object string, old, new any) Item {
	at := s.auditTime()
	line := AuditLine{Format: documentFormat, At: at.UTC(), Who: who.name, From: who.from, Node: who.node, Act: act, Object: object, Old: raw(old), New: raw(new), Reason: who.reason}
	return put(fmt.Sprintf("%s%020d-%s", auditPrefix, at.UnixMicro(), s.random.hex(6)), line)
}

// auditTime is now, or just after this replica's last line: lines of one microsecond keep their order.
func (s *Service) auditTime() time.Time {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !now.After(s.audited) {
		now = s.audited.Add(time.Microsecond)
	}
	s.audited = now
	return now
}

func raw(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	return encode(v)
}

// generation is the one after a ledger's present one.
func (s *Service) generation(l allocation.Ledger) allocation.Generation {
	return allocation.Generation{Number: l.Generation.Number + 1, Stamp: s.random.hex(8)}
}
