package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// stage declares budgets until there are n, lets all regions store them, and measures what calls and changes cost then.
func (w *world) stage(ctx context.Context, n int) (Stage, error) {
	s := Stage{Budgets: n}
	if err := w.declareMany(ctx, n-lastDeclared); err != nil {
		return s, err
	}
	last, err := w.declareTimed(ctx, n)
	if err != nil {
		return s, err
	}
	s.Declare = median(last)
	for i, r := range w.regions {
		sum, err := r.untilStored(ctx)
		if err != nil {
			return s, err
		}
		w.o.Progress("%s has stored its shares of %d budgets: %d calls, %.3f ms for each budget", r.name, n, sum.calls, 1000*sum.took.Seconds()/float64(n))
		if i == 0 {
			s.FirstCalls, s.FirstBytes, s.First = sum.calls, sum.bytes, sum.took.Seconds()
		}
	}
	w.o.Progress("calls with %d budgets", n)
	w.resting.rest()
	defer w.resting.wake()
	return s, w.measure(ctx, &s)
}

// lastDeclared are measured.
const lastDeclared = 100

// declareMany declares budgets until there are n, one after the other: each raises the configuration's number, so the
// coordinator takes them in turn anyhow.
func (w *world) declareMany(ctx context.Context, n int) error {
	began, first := time.Now(), w.declared
	for ; w.declared < n; w.declared++ {
		if err := w.declare(ctx, w.declared, 1000*int64(w.o.Regions)); err != nil {
			return err
		}
		if so := w.declared + 1; so%1000 == 0 {
			w.o.Progress("%d of %d budgets are declared, %.2f ms each", so, w.o.Budgets, 1000*time.Since(began).Seconds()/float64(so-first))
		}
	}
	return nil
}

// declareTimed is declareMany that says how long each took.
func (w *world) declareTimed(ctx context.Context, n int) (times []time.Duration, err error) {
	for w.declared < n {
		at := time.Now()
		if err := w.declareMany(ctx, w.declared+1); err != nil {
			return nil, err
		}
		times = append(times, time.Since(at))
	}
	return times, nil
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
	for _, name := range w.names {
		weights[name] = 1
	}
	body := map[string]any{
		"budget": name, "unit": "requests", "limit": limit, "match": map[string]string{"tenant": fmt.Sprintf("tenant-%06d", number)},
		"window": map[string]string{"every": "1m"}, "allocation": map[string]any{"policy": "fixed", "weights": weights},
	}
	method, path, headers := http.MethodPost, "/v1/budgets", []string(nil)
	if v := w.versions[name]; v > 0 {
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
	w.versions[name] = answer.Version
	return err
}
