package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/regional/postgres"
)

// What a command allows a region's database, which nobody else may be using.
const (
	ownerPatience    = 15 * time.Second
	ownerConnections = 2
)

// ownerDatabase is the flag of a command that reads a region's database itself.
type ownerDatabase struct {
	flag, url string
}

func (d *ownerDatabase) flags(c *cobra.Command, flag, what string) {
	d.flag = flag
	c.Flags().StringVar(&d.url, flag, "", what)
}

// given says whether there is a URL.
func (d *ownerDatabase) given() bool { return d.url != "" }

// orVariable takes the URL from the environment, which keeps a password out of process lists.
func (d *ownerDatabase) orVariable() { d.url = cmp.Or(d.url, os.Getenv(postgresVariable)) }

// open attaches to the database of a region and says of a failure what an operator can do.
func (d *ownerDatabase) open(ctx context.Context, region, deployment string) (*postgres.Store, regional.Loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, ownerPatience)
	defer cancel()
	store, loaded, err := postgres.Attach(ctx, postgres.Config{
		URL: d.url, Region: region, Deployment: deployment, MaxConns: ownerConnections, LockTimeout: ownerPatience,
	})
	switch {
	case errors.Is(err, regional.ErrNotReady):
		return nil, loaded, fmt.Errorf("%w; correct --%s", err, d.flag)
	case err != nil:
		return nil, loaded, fmt.Errorf("%w; --%s must name the region's database, and it must answer", onceEach(err), d.flag)
	}
	return store, loaded, nil
}

// homeText names a database as people compare it.
func homeText(h allocation.Home) string {
	return fmt.Sprintf("database %d of system %s, timeline %d", h.Database, h.System, h.Timeline)
}

// deploymentAndRegion reads how a region stands.
func deploymentAndRegion(ctx context.Context, client *api.Client, name string) (coordinator.Status, coordinator.RegionAnswer, error) {
	var s coordinator.Status
	if _, err := client.Do(ctx, api.Call{Method: "GET", Path: "/v1/status"}, &s); err != nil {
		return s, coordinator.RegionAnswer{}, err
	}
	if s.Deployment == "" {
		return s, coordinator.RegionAnswer{}, client.Mistaken(client.Address(), "")
	}
	for _, r := range s.Regions {
		if r.Region == name {
			return s, r, nil
		}
	}
	return s, coordinator.RegionAnswer{}, usagef("there is no region %q; `tranche regions list` shows those that are registered", name)
}

// knownOwner is what the database of a region says that etcd lost.
func (a *App) knownOwner(c *cobra.Command, region string, database ownerDatabase) (*coordinator.KnownOwner, error) {
	client, _, err := a.coordinator(c)
	if err != nil {
		return nil, err
	}
	var s coordinator.Status
	if _, err := client.Do(c.Context(), api.Call{Method: "GET", Path: "/v1/status"}, &s); err != nil {
		return nil, err
	}
	if s.Deployment == "" {
		return nil, client.Mistaken(client.Address(), "")
	}
	store, loaded, err := database.open(c.Context(), region, s.Deployment)
	if err != nil {
		return nil, err
	}
	defer store.Shut()
	if loaded.Incarnation == "" || loaded.Lost {
		return nil, fmt.Errorf("that database holds nothing that could go on: register region %s without --%s", region, database.flag)
	}
	return &coordinator.KnownOwner{Incarnation: loaded.Incarnation, Home: loaded.Home}, nil
}
