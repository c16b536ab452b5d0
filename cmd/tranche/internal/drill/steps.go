package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

const (
	interactive = string(allocation.Interactive)
	batch       = string(allocation.Batch)
	essential   = string(allocation.Essential)

	enough = 6  // refusals in a row of interactive requests, after which a node's part of the burst is over
	spent  = 25 // the same, if only the region's share is spent: more may come
	denied = 20 // requests with the revoked key, at each node that has denied one
)

// issue makes the suspect's key and that of the essential traffic, waits until every node takes them, and lets that begin.
func (d *drill) issue(ctx context.Context) (string, []string, error) {
	began := time.Now()
	var err error
	if d.suspect, err = d.issueKey(ctx, "suspect", false, d.Capability); err != nil {
		return "", nil, err
	}
	if d.essential, err = d.issueKey(ctx, "essential", true, d.Essential, d.Capability); err != nil {
		return "", nil, err
	}
	ready, broken := d.untilEach(ctx, began, "takes both keys", func(ctx context.Context, n *node) (answer, error) {
		a, err := d.ask(ctx, d.suspect, n, string(allocation.Check), d.Capability, interactive, "")
		if err != nil || !a.admitted() {
			return a, err
		}
		return d.ask(ctx, d.essential, n, string(allocation.Check), d.Essential, essential, "")
	}, answer.admitted)
	d.record.Issued = ready
	if len(broken) == len(d.nodes) {
		return "", broken, errors.New("no node takes the keys: " + broken[0])
	}
	d.beginEssential(ctx)
	return fmt.Sprintf("keys %s and %s; %s", d.suspect.fingerprint, d.essential.fingerprint, times(ready)), broken, nil
}

// beginEssential sends essential traffic of the other capability to every node, until it is stopped.
func (d *drill) beginEssential(ctx context.Context) {
	ctx, d.stopEssential = context.WithCancel(ctx)
	var sent atomic.Int64
	for _, n := range d.nodes {
		d.essentials.Go(func() {
			for ctx.Err() == nil && sent.Add(1) <= essentialMost {
				began := time.Now()
				a, err := d.ask(ctx, d.essential, n, string(allocation.Spend), d.Essential, essential, "")
				if ctx.Err() == nil || err == nil {
					d.mu.Lock()
					d.calm.note(n, a, err, time.Since(began))
					d.mu.Unlock()
				}
				if pause(ctx, essentialEach) != nil {
					return
				}
			}
		})
	}
}

// tally is what became of the essential traffic.
type tally struct {
	sent, admitted int
	slowest        time.Duration
	wrong          []string
}

func (t *tally) note(n *node, a answer, err error, took time.Duration) {
	t.sent++
	t.slowest = max(t.slowest, took)
	switch {
	case err != nil:
		t.wrong = append(t.wrong, err.Error())
	case a.admitted():
		t.admitted++
	default:
		t.wrong = append(t.wrong, n.name+": "+a.words())
	}
}

// endEssential judges the essential traffic.
func (d *drill) endEssential(context.Context) (string, []string, error) {
	d.stopEssential()
	d.essentials.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &d.record.Essential
	e.Sent, e.Admitted, e.SlowestMS = d.calm.sent, d.calm.admitted, d.calm.slowest.Milliseconds()
	broken := few(d.calm.wrong)
	if e.Sent == 0 {
		broken = append(broken, "no essential request was sent")
	}
	return fmt.Sprintf("%d of %d requests for %s admitted; the slowest took %d ms", e.Admitted, e.Sent, d.Essential, e.SlowestMS), broken, nil
}

// few are the first of many alike.
func few(list []string) []string {
	const most = 5
	if len(list) <= most {
		return slices.Clone(list)
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// burst sends interactive and batch requests with the suspect's key, to each region in proportion to its share, until the
// budget is exhausted.
func (d *drill) burst(ctx context.Context) (string, []string, error) {
	rate := cmp.Or(d.Rate, float64(d.target.limit)/burstOver)
	var total int64
	nodesOf := map[string]int64{}
	for _, n := range d.nodes {
		nodesOf[n.region]++
	}
	for region := range nodesOf {
		total += d.target.shares[region]
	}
	within, cancel := context.WithTimeout(ctx, burstAtMost)
	defer cancel()
	var left atomic.Int64
	left.Store(3 * d.target.limit)
	errs := make([]error, len(d.nodes))
	together(len(d.nodes), func(i int) {
		n := d.nodes[i]
		part := rate / float64(len(d.nodes))
		if total > 0 {
			part = rate * float64(d.target.shares[n.region]) / float64(total*nodesOf[n.region])
		}
		errs[i] = d.burstAt(within, n, max(part, 1), &left)
	})
	if err := errors.Join(errs...); err != nil && ctx.Err() != nil {
		return "", nil, err
	}
	broken := d.sequence()
	for i, err := range errs {
		if err != nil {
			broken = append(broken, fmt.Sprintf("%s: the budget was not exhausted: %v", d.nodes[i].name, err))
		}
	}
	if left.Load() <= 0 {
		broken = append(broken, fmt.Sprintf("%d requests did not exhaust a budget of %d", 3*d.target.limit, d.target.limit))
	}
	return fmt.Sprintf("%d requests, %d admitted: %s", len(d.heard), d.suspect.admitted.Load(), d.record.sequenceWords()), broken, nil
}

// burstAt sends at a rate, one after the other, interactive and batch in turn.
func (d *drill) burstAt(ctx context.Context, n *node, rate float64, left *atomic.Int64) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	refused, short := 0, 0
	for turn := 0; refused < enough && short < spent && left.Add(-1) >= 0; turn++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		priority := interactive
		if turn%2 == 1 {
			priority = batch
		}
		a, err := d.spend(ctx, d.suspect, n, priority)
		if err != nil {
			return err
		}
		switch {
		case priority == batch:
		case a.Reason == string(allocation.RegionShareSpent):
			short++
		case a.Action == allocation.ActionRefused:
			refused++
		default:
			refused, short = 0, 0
		}
	}
	return nil
}

// sequence notes when each action was heard first, and says whether they came in the promised order.
func (d *drill) sequence() (broken []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := map[string]time.Time{}
	for _, e := range d.heard {
		action := e.Action
		// That one region's share is spent is no verdict on the budget; others may have some.
		if e.Reason == string(allocation.RegionShareSpent) {
			continue
		}
		if _, known := first[action]; !known {
			first[action] = e.at
			d.record.Sequence = append(d.record.Sequence, ActionRecord{
				Action: action, Priority: e.priority, Reason: e.Reason, Route: e.Route, Node: e.node.name, AtMS: e.at.Sub(d.record.Started).Milliseconds(),
			})
		}
	}
	preferred, refused := first[allocation.ActionPreferred], first[allocation.ActionRefused]
	between := first[allocation.ActionDegraded]
	if deferred := first[allocation.ActionDeferred]; between.IsZero() || !deferred.IsZero() && deferred.Before(between) {
		between = deferred
	}
	switch {
	case preferred.IsZero():
		broken = append(broken, "nothing was admitted as preferred")
	case between.IsZero():
		broken = append(broken, "nothing was degraded or deferred before it was refused")
	case refused.IsZero():
		broken = append(broken, "nothing was refused")
	case between.Before(preferred) || refused.Before(between):
		broken = append(broken, "the order was "+d.record.sequenceWords())
	}
	return broken
}

// protected waits until the regions have stated what the burst spent, sees that it spared the protected permits, and that
// essential requests of every region get at them.
func (d *drill) protected(ctx context.Context) (string, []string, error) {
	spare := d.target.limit - d.target.budget.Protected
	var broken []string
	if admitted := d.suspect.admitted.Load() + d.target.before; admitted > spare {
		broken = append(broken, fmt.Sprintf("%d permits are spent by requests that are not essential, and only %d of %d are not protected", admitted, spare, d.target.limit))
	}
	stated, err := d.stated(ctx, d.target.before+d.suspect.admitted.Load())
	if err != nil {
		broken = append(broken, err.Error())
	}
	d.record.Budget.ProtectedLeft = min(d.target.budget.Protected, max(0, d.target.limit-stated))
	asked := map[string]bool{}
	for _, n := range d.nodes {
		if asked[n.region] || d.target.shares[n.region] == 0 {
			continue
		}
		asked[n.region] = true
		a, err := d.spend(ctx, d.essential, n, essential)
		switch {
		case err != nil:
			broken = append(broken, err.Error())
		case !a.admitted():
			broken = append(broken, fmt.Sprintf("%s: an essential request for %s is not admitted while %d permits are protected: %s", n.name, d.Capability, d.record.Budget.ProtectedLeft, a.words()))
		}
	}
	return fmt.Sprintf("%d of %d protected permits are left; one essential request in each region passed", d.record.Budget.ProtectedLeft, d.target.budget.Protected), broken, ctx.Err()
}

// stated waits until the regions have stated that so much is spent, and answers what they did.
func (d *drill) stated(ctx context.Context, want int64) (spent int64, err error) {
	for end := time.Now().Add(d.Patience); ; {
		t, err := d.running(ctx, d.target.budget.Name)
		if err == nil {
			if spent = spentOf(t); spent == want {
				return spent, nil
			}
			err = fmt.Errorf("the regions state that %d permits of %s are spent; the clients were told of %d", spent, d.target.budget.Name, want)
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return spent, err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return spent, err
		}
	}
}

// times are how long the nodes took.
func times(list []NodeTime) string {
	var parts []string
	for _, t := range list {
		if t.AfterMS == nil {
			parts = append(parts, t.Node+" never")
			continue
		}
		parts = append(parts, fmt.Sprintf("%s after %d ms", t.Node, *t.AfterMS))
	}
	return strings.Join(parts, ", ")
}
