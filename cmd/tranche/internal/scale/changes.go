package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

// ChangesOptions says how often a change is measured.
type ChangesOptions struct {
	Changes  int // 0: 50
	Progress func(format string, args ...any)
}

// Changes is the time from the answer of the admin API to a change until a node enforces it: its next spend is decided by
// it. All runs on this machine, over loopback: a region elsewhere adds its distance.
type Changes struct {
	Changes int                  `json:"changes"`
	Nodes   int                  `json:"nodes"`
	Lowered Percentiles          `json:"lowered_to_zero"` // until the slowest of all nodes refuses
	Raised  Percentiles          `json:"raised"`          // until the slowest of all nodes admits again
	ByNode  map[string]float64   `json:"median_ms_by_node"`
	Round   Percentiles          `json:"one_spend"` // a request to a node and its answer, which all of these contain
	Answer  Percentiles          `json:"answer"`    // of the admin API: it contains a write to etcd
	times   map[string][]float64 // by node
	mu      sync.Mutex
}

// Percentiles are milliseconds.
type Percentiles struct {
	Median float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Most   float64 `json:"max_ms"`
}

const (
	changePatience = 20 * time.Second
	changedBudget  = "scale/requests"
	changedLimit   = int64(1) << 40
)

// MeasureChanges runs a whole deployment of two regions with two nodes each, and changes a limit again and again.
func MeasureChanges(ctx context.Context, o ChangesOptions) (*Changes, error) {
	if o.Changes <= 0 {
		o.Changes = 50
	}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	s, err := stage.Start(ctx, stage.Options{Regions: []string{"eu-west", "us-east"}, NodesEach: 2, Coordinators: 1, Unreachable: 10 * time.Second, Progress: o.Progress})
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	c := &Changes{Changes: o.Changes, ByNode: map[string]float64{}, times: map[string][]float64{}}
	err = c.measure(ctx, s, o)
	return c, errors.Join(err, s.Stop())
}

func (c *Changes) measure(ctx context.Context, s *stage.Stage, o ChangesOptions) error {
	admin, err := s.Admin(0)
	if err != nil {
		return err
	}
	nodes := map[string]*api.Client{}
	for _, r := range s.Regions {
		for _, n := range r.Nodes {
			if nodes[n.Name], err = s.Gateway(stage.Edge1, n); err != nil {
				return err
			}
		}
	}
	c.Nodes = len(nodes)
	version, err := setLimit(ctx, admin, 0, changedLimit)
	if err != nil {
		return err
	}
	if _, err := c.until(ctx, nodes, true); err != nil { // all have a share
		return err
	}
	c.times = map[string][]float64{}
	var lowered, raised, answers []float64
	for i := range o.Changes {
		if i%10 == 0 {
			o.Progress("%d of %d changes", i, o.Changes)
		}
		for _, up := range []bool{false, true} {
			limit := int64(0)
			if up {
				limit = changedLimit
			}
			at := time.Now()
			if version, err = setLimit(ctx, admin, version, limit); err != nil {
				return err
			}
			answers = append(answers, since(at))
			slowest, err := c.until(ctx, nodes, up)
			if err != nil {
				return err
			}
			if up {
				raised = append(raised, slowest)
			} else {
				lowered = append(lowered, slowest)
			}
		}
	}
	for name, times := range c.times {
		c.ByNode[name] = percentiles(times).Median
	}
	var round []float64
	for range o.Changes {
		for name, client := range nodes {
			at := time.Now()
			if _, err := admits(ctx, client, name); err != nil {
				return err
			}
			round = append(round, since(at))
		}
	}
	c.Lowered, c.Raised, c.Round, c.Answer = percentiles(lowered), percentiles(raised), percentiles(round), percentiles(answers)
	return nil
}

// until asks all nodes at the same time until each admits, or refuses, and returns the milliseconds that the slowest took.
func (c *Changes) until(ctx context.Context, nodes map[string]*api.Client, up bool) (slowest float64, err error) {
	at := time.Now()
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	var wait sync.WaitGroup
	for name, client := range nodes {
		wait.Go(func() {
			for {
				admitted, failed := admits(ctx, client, name)
				if failed == nil && admitted != up {
					continue
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				took := since(at)
				c.times[name] = append(c.times[name], took)
				slowest = max(slowest, took)
				if failed != nil {
					err = errors.Join(err, fmt.Errorf("%s: %w", name, failed))
				}
				return
			}
		})
	}
	wait.Wait()
	return slowest, err
}

// admits spends one permit at a node, or is refused.
func admits(ctx context.Context, node *api.Client, name string) (bool, error) {
	d, err := api.Admit(ctx, node, api.Admission{
		ID: fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), Op: "spend", Labels: map[string]string{"tenant": "scale"}, Deadline: 5 * time.Second,
	})
	return d.Status == http.StatusOK, err
}

func setLimit(ctx context.Context, admin *api.Client, version, limit int64) (int64, error) {
	call := api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: map[string]any{
		"budget": changedBudget, "unit": "requests", "limit": limit, "match": map[string]string{"tenant": "scale"},
		"window": map[string]string{"every": "1h"}, "allocation": map[string]any{"policy": "fixed", "weights": map[string]int{"eu-west": 1, "us-east": 1}},
	}}
	if version > 0 {
		call.Method, call.Path = http.MethodPut, call.Path+"/"+changedBudget
		call.Header = http.Header{"If-Match": {fmt.Sprintf("\"%d\"", version)}}
	}
	var answer struct {
		Version int64 `json:"version"`
	}
	_, err := admin.Do(ctx, call, &answer)
	return answer.Version, err
}

func since(at time.Time) float64 { return float64(time.Since(at).Microseconds()) / 1000 }

func percentiles(times []float64) Percentiles {
	if len(times) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(times))
	return Percentiles{Median: sorted[len(sorted)/2], P99: sorted[len(sorted)*99/100], Most: sorted[len(sorted)-1]}
}
