package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// stage declares budgets until there are n, lets all regions store them, and measures what calls and changes cost then.
func (w *world) stage(ctx context.Context, n int) (Stage, error) {
	s := Stage{Budgets: n}
	if err := w.declareMany(ctx, n-lastDeclared); err != nil {
		return s, err
	}
	var last []time.Duration
	for ; w.declared < n; w.declared++ {
		at := time.Now()
		if err := w.declare(ctx, w.declared, 1000*int64(w.o.Regions)); err != nil {
			return s, err
		}
		last = append(last, time.Since(at))
	}
	s.Declare = median(last)
	for i, r := range w.regions {
		w.o.Progress("%s stores its shares", r.name)
		sum, err := r.untilStored(ctx)
		if err != nil {
			return s, err
		}
		if i == 0 {
			s.FirstCalls, s.FirstBytes, s.First = sum.calls, sum.bytes, sum.took.Seconds()
		}
	}
	w.o.Progress("calls with %d budgets", n)
	return s, w.measure(ctx, &s)
}

const (
	lastDeclared = 100 // are measured, one after the other
	declarers    = 32  // declare the rest: the coordinator gathers what they ask for at once
)

// declareMany declares budgets until there are n.
func (w *world) declareMany(ctx context.Context, n int) error {
	var all sync.WaitGroup
	var next, done atomic.Int64
	next.Store(int64(w.declared))
	failed := make(chan error, declarers)
	for range declarers {
		all.Go(func() {
			for len(failed) == 0 {
				number := int(next.Add(1)) - 1
				if number >= n {
					return
				}
				if err := w.declare(ctx, number, 1000*int64(w.o.Regions)); err != nil {
					failed <- err
					return
				}
				if so := w.declared + int(done.Add(1)); so%1000 == 0 {
					w.o.Progress("%d of %d budgets are declared", so, w.o.Budgets)
				}
			}
		})
	}
	all.Wait()
	w.declared = max(w.declared, n)
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// measure takes the cost of quiet calls and of changes.
func (w *world) measure(ctx context.Context, s *Stage) error {
	var quiet, change []time.Duration
	for i := range w.o.Calls {
		one := w.regions[0]
		c, err := w.quietCall(ctx, one)
		if err != nil {
			return err
		}
		quiet, s.QuietBytes = append(quiet, c.took), c.bytes

		// A limit changes in the middle of all of them: the region stores its share, and states it.
		if err := w.declare(ctx, (w.declared/2+i)%w.declared, int64(w.o.Regions*(1001+i))); err != nil {
			return err
		}
		if c, err = one.untilStored(ctx); err != nil {
			return err
		}
		change, s.ChangeByte = append(change, c.took), c.bytes
	}
	s.Quiet, s.Change = median(quiet), median(change)
	return nil
}

// quietCall is a call of a region when nothing changed.
func (w *world) quietCall(ctx context.Context, one *region) (cost, error) {
	for range quietAttempts { // the coordinator may be opening terms
		for _, r := range w.regions {
			if err := r.untilQuiet(ctx); err != nil {
				return cost{}, err
			}
		}
		if c, news, err := one.sync(ctx); err != nil || !news {
			return c, err
		}
	}
	return cost{}, fmt.Errorf("%s is told something again and again when nothing changed", one.name)
}

// declare makes a budget, or changes its limit.
func (w *world) declare(ctx context.Context, number int, limit int64) error {
	name := fmt.Sprintf("tenant-%06d/requests", number)
	weights := map[string]int64{}
	for _, r := range w.regions {
		weights[r.name] = 1
	}
	body := map[string]any{
		"budget": name, "unit": "requests", "limit": limit, "match": map[string]string{"tenant": fmt.Sprintf("tenant-%06d", number)},
		"window": map[string]string{"every": "1m"}, "allocation": map[string]any{"policy": "fixed", "weights": weights},
	}
	method, path, headers := http.MethodPost, "/v1/budgets", []string(nil)
	w.mu.Lock()
	v := w.versions[name]
	w.mu.Unlock()
	if v > 0 {
		method, path, headers = http.MethodPut, path+"/"+name, []string{"If-Match", fmt.Sprintf("%q", fmt.Sprint(v))}
	}
	text, err := w.must(ctx, method, path, body, headers...)
	if err != nil {
		return err
	}
	var answer struct {
		Version int64 `json:"version"`
	}
	err = json.Unmarshal(text, &answer)
	w.mu.Lock()
	w.versions[name] = answer.Version
	w.mu.Unlock()
	return err
}
