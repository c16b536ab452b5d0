package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/cmd/tranche/internal/stage"
)

// The deployment of a drill of its own.
const (
	demoTenant      = "drill"
	demoUnreachable = 2 * time.Second
)

// Demo brings up a deployment of two regions with two nodes each, declares the synthetic budgets there, drills, and leaves nothing
// behind.
func Demo(ctx context.Context, o Options) (r *Record, err error) {
	stage.Sweep()
	regions := []string{"us-east", "eu-west"}
	s, err := stage.Start(ctx, stage.Options{Regions: regions, NodesEach: 2, Coordinators: 1, Unreachable: demoUnreachable, Progress: o.Tell})
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err != nil {
		return nil, err
	}
	admin, err := s.Admin(0)
	if err != nil {
		return nil, err
	}
	o.Coordinator, o.Nodes = admin, map[string][]string{}
	for name, region := range s.Regions {
		for _, n := range region.Nodes {
			o.Nodes[name] = append(o.Nodes[name], n.Address)
		}
	}
	o.Tenant, o.Capability, o.Essential = demoTenant, Expendable, Precious
	if err := declare(ctx, admin, Budgets(demoTenant, regions), s.Regions); err != nil {
		return nil, err
	}
	return Run(ctx, o)
}

// declare declares the budgets, in a window that does not end meanwhile, and waits until the regions hold them.
func declare(ctx context.Context, admin *api.Client, text string, regions map[string]*stage.Region) error {
	list, err := manifest.Load(strings.NewReader(text), "-")
	if err != nil {
		return err
	}
	for _, b := range list {
		b.Budget.Window = allocation.Window{Once: &allocation.Once{From: allocation.At(time.Now()), Until: allocation.Never}}
		if _, err := admin.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: b.Budget}, nil); err != nil {
			return fmt.Errorf("declare %s: %w", b.Name, err)
		}
	}
	d := &drill{Options: Options{Coordinator: admin}}
	return stage.Until(ctx, 15*time.Second, "every region holds its share", func() (bool, error) {
		for _, b := range list {
			t, err := d.running(ctx, b.Name)
			if err != nil {
				return false, err
			}
			for _, r := range t.Regions {
				if r.StatedGeneration != t.Generation {
					return false, nil
				}
			}
			if len(t.Regions) < len(regions) {
				return false, nil
			}
		}
		return true, nil
	})
}
