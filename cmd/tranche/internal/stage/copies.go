package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"tranche/regional/postgres/cluster"
)

// Dump makes a logical backup of the region's database with pg_dump.
func (r *Region) Dump(ctx context.Context, file string) error {
	return postgresProgram(ctx, "", "pg_dump", "--format=custom", "--file="+file, r.Database)
}

// Schema makes the region's schema in another database, with nothing in it; file takes it in between.
func (r *Region) Schema(ctx context.Context, file, to string) error {
	if err := postgresProgram(ctx, "", "pg_dump", "--format=custom", "--schema-only", "--schema=tranche", "--file="+file, r.Database); err != nil {
		return err
	}
	return postgresProgram(ctx, "", "pg_restore", "--no-publications", "--single-transaction", "--dbname="+to, file)
}

// Restore puts a dump in the place of what the region's database holds, as pg_restore does it under running nodes. Its
// locks and theirs can wait for each other, and Postgres ends the one that looks for a deadlock first: that must be a node,
// which tries again.
func (r *Region) Restore(ctx context.Context, file string) error {
	return postgresProgram(ctx, "-c deadlock_timeout=1min", "pg_restore", "--clean", "--if-exists", "--single-transaction", "--dbname="+r.Database, file)
}

// postgresProgram runs one of Postgres' own programs, of the version of its server, with options for its session.
func postgresProgram(ctx context.Context, options, name string, arguments ...string) error {
	with, err := cluster.Find()
	if err != nil {
		return err
	}
	program := exec.CommandContext(ctx, filepath.Join(with.Dir, name), arguments...)
	program.Env = append(os.Environ(), "PGOPTIONS="+options)
	if out, err := program.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, out)
	}
	return nil
}

// CopyTree copies a folder with its owners and times.
func CopyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// KeepEtcd copies what etcd holds now. It needs EtcdMembers: 1.
func (s *Stage) KeepEtcd(ctx context.Context, to string) error {
	if err := s.Etcd.Kill(0); err != nil {
		return err
	}
	if err := CopyTree(ctx, s.Etcd.Dir(0), to); err != nil {
		return err
	}
	return s.Etcd.Restart(ctx, 0)
}

// TakeBackEtcd puts a copy in the place of what etcd holds, or nothing, as an empty etcd. prepare, unless it is nil, may
// change the copy first.
func (s *Stage) TakeBackEtcd(ctx context.Context, copied string, prepare func(dir string)) error {
	if err := s.Etcd.Kill(0); err != nil {
		return err
	}
	if err := os.RemoveAll(s.Etcd.Dir(0)); err != nil {
		return err
	}
	if copied != "" {
		if err := CopyTree(ctx, copied, s.Etcd.Dir(0)); err != nil {
			return err
		}
	}
	if prepare != nil {
		prepare(s.Etcd.Dir(0))
	}
	return s.Etcd.Restart(ctx, 0)
}

// Move lets the region's nodes find another database from their next start on.
func (r *Region) Move(database string) {
	r.Database = database
	for _, n := range r.Nodes {
		n.env = []string{"TRANCHE_POSTGRES_URL=" + database}
	}
}
