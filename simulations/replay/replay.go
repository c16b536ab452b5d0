package replay

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/simulations/scenario/protocol"
)

// Options of a replay.
type Options struct {
	// Name is the log's, for messages; "requests" if it is empty.
	Name string
	// Regions are those of the deployment. None: those that the budgets name.
	Regions []protocol.Region
	// By are the labels by whose values refusals are counted. None: tenant and caller.
	By []string
	// SyncEvery is how often regions call the coordinator. 0: 5 s; shorter tells reasons a little earlier, and takes longer.
	SyncEvery time.Duration
	// Progress, if not nil, is called from time to time with what was read.
	Progress func(lines, bytes int64)
}

const (
	defaultSync   = 5 * time.Second
	progressEvery = 10_000 // lines
)

// Run replays a log against budgets. Lines that are wrong are an error of type Faults; nothing is skipped in silence.
func Run(ctx context.Context, requests io.Reader, policy []allocation.Budget, o Options) (Report, error) {
	r, err := newRun(policy, o)
	if err != nil {
		return Report{}, err
	}
	lines := bufio.NewReaderSize(requests, MaxLine)
	var waiting queue
	var faults Faults
	for n := int64(1); len(faults) < MaxFaults; n++ {
		if n%progressEvery == 0 {
			if err := ctx.Err(); err != nil {
				return Report{}, err
			}
			if o.Progress != nil {
				o.Progress(n, r.bytes)
			}
		}
		text, err := lines.ReadSlice('\n')
		r.bytes += int64(len(text))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return Report{}, append(faults, Fault{r.o.Name, n, fmt.Sprintf("is longer than %d bytes", MaxLine), "write one request a line"})
		case err != nil && !errors.Is(err, io.EOF):
			return Report{}, fmt.Errorf("read %s: %w", r.o.Name, err)
		}
		ends := err != nil
		if text = bytes.TrimSpace(text); len(text) > 0 {
			q, problem, fix := r.read(text, n)
			if problem != "" {
				faults = append(faults, Fault{r.o.Name, n, problem, fix})
			} else if heap.Push(&waiting, q); len(waiting) > Reordered {
				faults = r.next(&waiting, faults)
			}
		}
		if ends {
			break
		}
	}
	for len(waiting) > 0 && len(faults) < MaxFaults {
		faults = r.next(&waiting, faults)
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b Fault) int { return int(a.Line - b.Line) })
		return Report{}, faults
	}
	if o.Progress != nil {
		o.Progress(r.requests, r.bytes)
	}
	return r.report()
}

// run is a replay under way.
type run struct {
	o       Options
	policy  []allocation.Budget
	regions []protocol.Region
	world   *protocol.World // made with the first request
	bytes   int64
	tallies
}

func newRun(policy []allocation.Budget, o Options) (*run, error) {
	if o.Name == "" {
		o.Name = "requests"
	}
	if len(o.By) == 0 {
		o.By = []string{"tenant", "caller"}
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = defaultSync
	}
	r := &run{o: o, policy: policy, regions: o.Regions, tallies: newTallies(policy, o.By)}
	for _, b := range policy {
		if err := b.Validate(); err != nil {
			return nil, fmt.Errorf("budget %s: %w", b.Name, err)
		}
	}
	if len(r.regions) == 0 {
		r.regions = named(policy)
	}
	if len(policy) == 0 {
		return nil, errors.New("no budget is declared: there is nothing to hold the requests against")
	}
	if len(r.regions) == 0 {
		return nil, errors.New("no budget names a region; name the deployment's regions")
	}
	return r, nil
}

// named are the regions that budgets name, with a round trip that decides nothing.
func named(policy []allocation.Budget) []protocol.Region {
	names := map[string]bool{}
	for _, b := range policy {
		for name := range b.Allocation.Weights {
			names[name] = true
		}
		if b.Allocation.Region != "" {
			names[b.Allocation.Region] = true
		}
	}
	var out []protocol.Region
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, protocol.Region{Name: name, RoundTrip: 100 * time.Millisecond})
	}
	return out
}

// read reads a line and finds its region.
func (r *run) read(text []byte, n int64) (q request, problem, fix string) {
	q, problem, fix = parseLine(text)
	if problem != "" {
		return q, problem, fix
	}
	q.line = n
	q.region = slices.IndexFunc(r.regions, func(x protocol.Region) bool { return x.Name == q.Region })
	if q.region < 0 {
		var names []string
		for _, x := range r.regions {
			names = append(names, x.Name)
		}
		return q, fmt.Sprintf("region %.70q is not one of the budgets' or the deployment's", q.Region), "use " + strings.Join(names, ", ")
	}
	return q, "", ""
}

// next decides the earliest request that waits.
func (r *run) next(waiting *queue, faults Faults) Faults {
	q := heap.Pop(waiting).(request)
	now := allocation.At(q.Time)
	switch {
	case r.world == nil:
		r.world = protocol.New(protocol.Config{Start: now, Regions: r.regions, Budgets: r.policy, SyncEvery: r.o.SyncEvery})
		r.from = now
	case now < r.until:
		return append(faults, Fault{
			r.o.Name, q.line, fmt.Sprintf("is %s earlier than a line before it", allocation.Duration(r.until-now)),
			fmt.Sprintf("sort the log by time; at most %d lines are put in order", Reordered),
		})
	}
	r.until = now
	r.world.Advance(now)
	r.enter(q, r.world.Owner(q.region).Decide(q.Labels, q.Costs))
	return faults
}
