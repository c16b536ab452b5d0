package demo

import (
	"context"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

// world is everything that runs, and what was written down about it.
type world struct {
	*stage.Stage
	tell   *teller
	record *record
	admin  *api.Client
}

// The gateways, by the names of their tokens.
const (
	edge1 = stage.Edge1
	edge2 = stage.Edge2
)

// start brings everything up. The world is never nil, so that what came up can be stopped.
func start(ctx context.Context, t *teller, o stage.Options) (*world, error) {
	w := &world{tell: t, record: newRecord()}
	stage.Sweep()
	var err error
	o.Regions, o.Unreachable, o.Progress = []string{regionA, regionB}, unreachable, t.progress
	w.Stage, err = stage.Start(ctx, o)
	if err != nil {
		return w, err
	}
	t.say("")
	w.admin, err = w.Admin(0)
	return w, err
}
