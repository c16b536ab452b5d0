package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

// undo takes back one change.
type undo struct {
	what, byHand string
	run          func(ctx context.Context) error
}

// later notes what is to be taken back at the end. It is noted before the change is asked for: its answer may be lost.
func (d *drill) later(what, byHand string, run func(ctx context.Context) error) {
	d.undo = append(d.undo, undo{what, byHand, run})
}

// cleanUp takes back all changes, the last one first, also after Ctrl-C.
func (d *drill) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin)
	defer cancel()
	began := time.Now()
	for _, u := range slices.Backward(d.undo) {
		if err := u.run(ctx); err != nil {
			d.record.Left = append(d.record.Left, fmt.Sprintf("%s: %v; do it by hand: %s", u.what, err, u.byHand))
			continue
		}
		d.record.Undone = append(d.record.Undone, u.what)
	}
	for _, k := range []*key{d.suspect, d.essential, d.fresh} {
		d.close(k)
	}
	if len(d.undo) == 0 {
		return
	}
	d.record.Steps = append(d.record.Steps, StepRecord{
		Step: "clean up", Promise: "what the drill changed is as it was", Kept: len(d.record.Left) == 0, TookMS: time.Since(began).Milliseconds(),
		Detail: fmt.Sprintf("%d changes taken back; its keys stay listed as revoked, and what it spent is spent", len(d.record.Undone)), Broken: d.record.Left,
	})
	d.Tell("%s", d.record.Steps[len(d.record.Steps)-1].line())
}

// revokeKey ends a key of the drill; one that was never made is ended.
func (d *drill) revokeKey(ctx context.Context, name string) error {
	call := api.Call{Method: http.MethodPost, Path: "/v1/keys/" + url.PathEscape(name) + "/revoke", Body: coordinator.EndRequest{Reason: "drill " + d.id}}
	_, err := d.Coordinator.Do(ctx, call, nil)
	if told, is := errors.AsType[*api.Error](err); is && told.Status == http.StatusNotFound {
		return nil
	}
	return err
}

// setLimit changes the limit of the expendable budget, on the version that the drill knows.
func (d *drill) setLimit(ctx context.Context, limit int64) (number int64, err error) {
	b := d.target.budget
	b.Limit = &limit
	var a coordinator.BudgetAnswer
	call := api.Call{
		Method: http.MethodPut, Path: budgetPath(b.Name), Body: b, Header: http.Header{"If-Match": {strconv.Quote(strconv.FormatInt(d.target.version, 10))}},
	}
	if _, err := d.Coordinator.Do(ctx, call, &a); err != nil {
		return 0, err
	}
	d.target.version, d.target.limit = a.Version, limit
	return a.Number, nil
}

// restoreLimit brings back the declaration, unless somebody else has changed it since.
func (d *drill) restoreLimit(ctx context.Context) error {
	var now coordinator.BudgetAnswer
	if _, err := d.Coordinator.Do(ctx, api.Call{Method: http.MethodGet, Path: budgetPath(d.target.budget.Name)}, &now); err != nil {
		return err
	}
	before := d.target.budget.LimitOrZero()
	if now.Budget.LimitOrZero() == before {
		return nil
	}
	// A change whose answer was lost is one version further on.
	if now.Version > d.target.version+1 || now.Version == d.target.version+1 && d.target.limit == now.Budget.LimitOrZero() {
		return fmt.Errorf("somebody else has changed it to version %d meanwhile", now.Version)
	}
	d.target.version = now.Version
	_, err := d.setLimit(ctx, before)
	return err
}

// together runs n parts at the same time.
func together(n int, part func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { part(i) })
	}
	wait.Wait()
}
