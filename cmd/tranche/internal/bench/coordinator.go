package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tranche/allocation"
)

const (
	region     = "here"
	deployment = "bench"
)

// coordinator plays the coordinator: it keeps ledgers in memory, with the pure functions that the real one uses, and gives
// the region all of each budget.
type coordinator struct {
	mu      sync.Mutex
	number  int64 // one for each part that is told at once
	calls   int64
	budgets []allocation.ConfiguredBudget
	ledgers []allocation.Ledger
	places  map[string]int // of a budget in both
	news    chan struct{}  // closed at the next change
}

func newCoordinator() *coordinator {
	return &coordinator{places: map[string]int{}, news: make(chan struct{})}
}

// forEver is one period without an end, which began a little before.
func forEver() allocation.Periods {
	return allocation.Periods{Instants: []allocation.Instant{allocation.At(time.Now()) - 100, allocation.Never}}
}

// minutes are periods of so many seconds around now, an hour of them at least.
func minutes(seconds int64) allocation.Periods {
	now := allocation.At(time.Now())
	first := now - now%allocation.Instant(seconds)
	return allocation.Periods{First: first, Step: seconds, Count: int(max(360, 3600/seconds))}
}

// declare adds budgets, or changes them.
func (c *coordinator) declare(periods allocation.Periods, texts ...string) error {
	for part := range slices.Chunk(texts, allocation.MaxBudgetsPerAnswer) {
		if err := c.declarePart(periods, part); err != nil {
			return err
		}
	}
	return nil
}

func (c *coordinator) declarePart(periods allocation.Periods, texts []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	close(c.news)
	c.news = make(chan struct{})
	members := allocation.Members{Regions: []string{region}, Holders: []allocation.Holder{holder}}
	for _, text := range texts {
		b, err := allocation.ParseBudget([]byte(text))
		if err != nil {
			return fmt.Errorf("budget %s: %w", text, err)
		}
		if i, known := c.places[b.Name]; known {
			c.budgets[i] = allocation.ConfiguredBudget{Budget: b, Version: c.budgets[i].Version + 1, Number: c.number}
			continue
		}
		c.places[b.Name] = len(c.budgets)
		c.budgets = append(c.budgets, allocation.ConfiguredBudget{Budget: b, Version: 1, Number: c.number})
		c.ledgers = append(c.ledgers, allocation.OpenLedger(b, 1, periods, members, allocation.Generation{Number: 1, Stamp: "s1"}))
	}
	return nil
}

var holder = allocation.Holder{Region: region, Incarnation: "life-of-" + region}

// Sync answers one call of a node: with the next part of what it does not know yet. While there is nothing to say the call
// is held, as the real one holds it.
func (c *coordinator) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	c.mu.Lock()
	news, nothing := c.news, c.number == call.Config && call.Incarnation == holder.Incarnation
	c.mu.Unlock()
	if nothing {
		hold := time.NewTimer(time.Duration(call.WaitMillis) * time.Millisecond)
		defer hold.Stop()
		select {
		case <-news:
		case <-hold.C:
		case <-ctx.Done():
		}
	}
	return c.answer(ctx, call)
}

func (c *coordinator) answer(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	a := allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: deployment, Incarnation: holder.Incarnation, Now: time.Now().UnixMicro(),
		Config: min(c.number, call.Config+1), History: allocation.History{Number: 1, Stamp: "h"}, Revision: c.calls,
	}
	for _, s := range call.Statements {
		a.Acknowledged = append(a.Acknowledged, allocation.ShardAck{Shard: s.Shard, Number: s.Number})
	}
	for i, b := range c.budgets {
		if b.Number == a.Config && b.Number > call.Config {
			a.Budgets = append(a.Budgets, b)
			a.Shares = append(a.Shares, c.ledgers[i].GrantTo(holder))
		}
	}
	return a, ctx.Err()
}
