package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"tranche/allocation"
)

const (
	markFormat = 1
	// markRandom is how many random bytes a mark holds: enough that no two are ever alike.
	markRandom = 16
	// markKept is how old the mark of another process must be, by what it says, before it is swept.
	markKept = 24 * time.Hour
	// takeAwayTimeout bounds the last write of a process that ends.
	takeAwayTimeout = 2 * time.Second
	// sweepAtOnce is how many marks one change removes.
	sweepAtOnce = 50
)

// markDocument is the value of a mark's key.
type markDocument struct {
	Format int       `json:"format"`
	Count  int64     `json:"count"`
	Value  string    `json:"value"`
	At     time.Time `json:"at"` // by the writer's clock
}

func markKey(writer string) string { return markPrefix + writer }

// nextMark is the mark after the one that is known to stand.
func (c *Committer) nextMark() Item {
	value, err := json.Marshal(markDocument{
		Format: markFormat, Count: c.Mark().Count + 1, Value: c.random.hex(markRandom), At: c.runtime.Now().UTC().Truncate(time.Second),
	})
	if err != nil {
		panic(fmt.Sprintf("write a mark as JSON: %v", err)) // only a year beyond 9999 can do this
	}
	return Item{Key: c.known.Key, Value: value}
}

// hold notes that the store holds this mark of ours, at this revision.
func (c *Committer) hold(mark Item, revision int64, started time.Time) {
	var document markDocument
	if err := json.Unmarshal(mark.Value, &document); err != nil {
		panic(fmt.Sprintf("read our own mark: %v", err))
	}
	c.known = Item{Key: mark.Key, Value: mark.Value, Revision: revision}
	c.heldAt = started
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark = allocation.Mark{Writer: c.writer, Count: document.Count, Value: document.Value}
}

// lose ends this writer for good: the store holds something else where its own last write was.
func (c *Committer) lose(found Item) {
	away := c.runtime.Now().Round(0).Sub(c.heldAt) // by the wall clock: a machine that slept counts the time
	detail := missingMark(c.writer, c.markOf(c.known).Count, c.markOf(found).Count)
	err := fmt.Errorf("%w: %s", ErrHistoryLost, detail)
	// Half, because two clocks are never alike.
	if found.Revision == 0 && away > markKept/2 {
		err = fmt.Errorf("%w (not refreshed for %s)", errMarkExpired, away.Round(time.Minute))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost, c.lostDetail = err, detail
		if c.onLost != nil {
			c.onLost()
		}
		c.log.Error("writer is stopped", "writer", c.writer, "error", err)
	}
}

// missingMark says what a coordinator misses, for a person.
func missingMark(writer string, left, found int64) string {
	if found == 0 {
		return fmt.Sprintf("the last write of a coordinator is not there: its writer %s had left mark %d, and there is none", writer, left)
	}
	return fmt.Sprintf("the last write of a coordinator is not there: its writer %s had left mark %d, and there is another mark %d", writer, left, found)
}

// takeMarkAway is done at an orderly end, as well as it goes: a mark that stays is swept later.
func (c *Committer) takeMarkAway(ctx context.Context) {
	if c.ended() != nil || c.known.Revision == 0 || c.memory != nil { // with a memory it goes on as the same writer
		return
	}
	ctx, cancel := c.runtime.WithTimeout(context.WithoutCancel(ctx), takeAwayTimeout)
	defer cancel()
	_, err := c.store.Commit(ctx, Txn{Compares: []Item{c.known}, Deletes: []string{c.known.Key}})
	if err != nil {
		c.log.Debug("mark stays behind", "writer", c.writer, "error", err)
	}
}

// sweeper remembers since when this process has seen each mark of the others unchanged.
type sweeper struct {
	mu   sync.Mutex
	seen map[string]sighting
}

type sighting struct {
	revision int64
	since    time.Time
}

// SweepMarks removes the marks of crashed processes; the leader's background work calls it every few minutes. A mark
// goes only if it is older than a day by its own account, and was seen here unchanged for longer than a living process
// leaves it so: one clock that is wrong, the writer's or ours, removes nothing.
func (c *Committer) SweepMarks(ctx context.Context) error {
	items, _, err := c.store.Range(ctx, markPrefix)
	if err != nil {
		return fmt.Errorf("sweep marks: %w", err)
	}
	dead := c.deadMarks(items)
	for len(dead) > 0 {
		n := min(len(dead), sweepAtOnce)
		change := Change{Reads: dead[:n]}
		for _, item := range dead[:n] {
			change.Deletes = append(change.Deletes, item.Key)
		}
		// A conflict says that one of them lives: the next sweep sees it changed.
		if _, err := c.Commit(ctx, change); err != nil && !errors.Is(err, ErrConflict) {
			return fmt.Errorf("sweep marks: %w", err)
		}
		dead = dead[n:]
	}
	return nil
}

func (c *Committer) deadMarks(items []Item) (dead []Item) {
	own := c.Mark().Writer
	c.sweep.mu.Lock()
	defer c.sweep.mu.Unlock()
	now, seen := c.runtime.Now(), map[string]sighting{}
	for _, item := range items {
		var document markDocument
		if item.Key == markKey(own) || json.Unmarshal(item.Value, &document) != nil || document.Format != markFormat {
			continue // what we cannot read is not ours to remove
		}
		at, ok := c.sweep.seen[item.Key]
		if !ok || at.revision != item.Revision {
			at = sighting{revision: item.Revision, since: now}
		}
		seen[item.Key] = at
		if now.Sub(document.At) > markKept && now.Sub(at.since) > 3*c.refresh {
			dead = append(dead, item)
		}
	}
	c.sweep.seen = seen
	return dead
}
