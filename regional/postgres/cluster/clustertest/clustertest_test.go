//go:build unix

package clustertest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"tranche/regional/postgres/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// If this failed, tests would see each other's rows.
func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := pgx.Connect(t.Context(), clustertest.Database(t))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if _, err := conn.Exec(t.Context(), "create table same_name (n int)"); err != nil {
				t.Fatal(err)
			}
		})
	}
}
