package drill

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// ceiling lowers the limit to nothing, sees every node enforce it, and raises it to a little more than it was: what the
// clients that are released later may share.
func (d *drill) ceiling(ctx context.Context) (string, []string, error) {
	name := d.target.budget.Name
	d.later("bring the limit of "+name+" back to "+fmt.Sprint(d.target.budget.LimitOrZero()), "tranche budgets apply FILE, with the declaration as it was", d.restoreLimit)
	asked := func(ctx context.Context, n *node) (answer, error) {
		return d.ask(ctx, d.essential, n, string(allocation.Check), d.Capability, essential, "")
	}
	raised := d.target.budget.LimitOrZero() + int64(d.Held)/2
	var broken []string
	change := func(limit int64, what string, wanted func(answer) bool) ([]NodeTime, error) {
		began := time.Now()
		if _, err := d.setLimit(ctx, limit); err != nil {
			return nil, err
		}
		took, wrong := d.untilEach(ctx, began, what, asked, wanted)
		broken = append(broken, wrong...)
		return took, nil
	}
	lowered, err := change(0, "refuses an essential request once the limit is 0", func(a answer) bool {
		return a.Action == allocation.ActionRefused && a.status == http.StatusTooManyRequests
	})
	if err != nil {
		return "", broken, err
	}
	d.record.Lowered = lowered
	// A region where all is spent has nothing to show that the limit was raised, but for its protected permits.
	back, err := change(raised, "admits an essential request once the limit is raised", answer.admitted)
	if err != nil {
		return "", broken, err
	}
	d.record.Raised = back
	return fmt.Sprintf("to 0: %s; to %d: %s", times(lowered), raised, times(back)), broken, nil
}

// revoked revokes the suspect's key. Once a node has denied it, it must never serve it again, not even a replay of what it
// admitted before.
func (d *drill) revoked(ctx context.Context) (string, []string, error) {
	began := time.Now()
	var list coordinator.KeysList
	call := api.Call{Method: http.MethodPost, Path: "/v1/keys/" + url.PathEscape(d.suspect.name) + "/revoke", Body: coordinator.EndRequest{Reason: "drill " + d.id}}
	if _, err := d.Coordinator.Do(ctx, call, &list); err != nil {
		return "", nil, err
	}
	no := func(a answer) bool { return a.refusedFor(allocation.KeyRevoked) }
	took, broken := d.untilEach(ctx, began, "denies the revoked key", func(ctx context.Context, n *node) (answer, error) {
		return d.ask(ctx, d.suspect, n, string(allocation.Check), d.Capability, interactive, "")
	}, no)
	d.record.Revoked = took
	var mu sync.Mutex
	together(len(d.nodes), func(i int) {
		n := d.nodes[i]
		for again := range denied {
			if took[i].AfterMS == nil {
				return // it was told above
			}
			id := ""
			if was := d.suspect.first.Load(); again == 0 && was != nil {
				id = was.id
			}
			a, err := d.ask(ctx, d.suspect, n, string(allocation.Spend), d.Capability, interactive, id)
			if err != nil || no(a) {
				continue
			}
			if a.admitted() {
				d.suspect.admitted.Add(1)
			}
			mu.Lock()
			broken = append(broken, fmt.Sprintf("%s: having denied the key it answers %s", n.name, a.words()))
			mu.Unlock()
		}
	})
	return times(took), broken, nil
}

// surge releases clients together, with a key of their own: of what is left they get no more than that.
func (d *drill) surge(ctx context.Context) (string, []string, error) {
	var err error
	if d.fresh, err = d.issueKey(ctx, "next", false, d.Capability); err != nil {
		return "", nil, err
	}
	_, broken := d.untilEach(ctx, time.Now(), "takes the next key", func(ctx context.Context, n *node) (answer, error) {
		return d.ask(ctx, d.fresh, n, string(allocation.Check), d.Capability, interactive, "")
	}, func(a answer) bool { return a.Reason != string(allocation.KeyUnknown) })
	left := max(0, d.target.limit-d.target.budget.Protected-d.target.before-d.suspect.admitted.Load()-d.essential.admitted.Load())
	release := make(chan struct{})
	errs := make([]error, d.Held)
	var held sync.WaitGroup
	for i := range d.Held {
		held.Go(func() {
			<-release
			_, errs[i] = d.spend(ctx, d.fresh, d.nodes[i%len(d.nodes)], interactive)
		})
	}
	close(release)
	held.Wait()
	for _, err := range errs {
		if err != nil {
			broken = append(broken, err.Error())
		}
	}
	admitted := d.fresh.admitted.Load()
	d.record.Surge = SurgeRecord{Held: d.Held, Left: left, Admitted: admitted}
	if admitted > left {
		broken = append(broken, fmt.Sprintf("%d clients were admitted, and %d permits were left", admitted, left))
	}
	return fmt.Sprintf("%d clients released together: %d permits were left, %d admitted", d.Held, left, admitted), few(broken), ctx.Err()
}

// books compares what the regions state to have spent with what the clients were told.
func (d *drill) books(ctx context.Context) (string, []string, error) {
	told := d.target.before + d.suspect.admitted.Load() + d.essential.admitted.Load() + d.fresh.admitted.Load()
	spent, err := d.stated(ctx, told)
	d.record.Budget.Spent, d.record.Budget.SpentBefore = spent, d.target.before
	var broken []string
	if err != nil {
		broken = append(broken, err.Error())
	}
	if spent > d.target.limit {
		broken = append(broken, fmt.Sprintf("%d permits are spent of a limit of %d", spent, d.target.limit))
	}
	return fmt.Sprintf("%d spent of %d, as the clients were told", spent, d.target.limit), broken, ctx.Err()
}
