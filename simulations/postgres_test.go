//go:build unix

package simulations

import (
	"testing"
	"time"

	"tranche/regional/ownertest"
	"tranche/regional/postgres"
	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// The store on Postgres must keep the contract that its twin keeps. It is tested here, since nothing below this package may
// import both.
func TestOwnerOnPostgres(t *testing.T) {
	ownertest.Run(t, func(t *testing.T, idle bool) ownertest.Opened {
		url := clustertest.Database(t)
		open := func() *postgres.Store {
			cfg := postgres.Config{URL: url, Region: ownertest.Region, MaxConns: 10}
			if !idle {
				cfg.LockTimeout = 2 * time.Minute
			}
			s, err := postgres.Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shut)
			return s
		}
		return ownertest.Opened{Owner: open(), Other: open(), Idle: idle}
	})
}
