// Package cluster starts and stops a Postgres instance of our own: for the
// demo, for tests and for `tranche node --dev`. It is no part of production,
// where an operator brings the owner's database.
//
// "Cluster" is Postgres' own word: one data directory and the postmaster that
// serves it, with any number of databases inside.
//
//	Dir/
//	  data/           the data directory, made by initdb, kept across starts
//	  data/tranche.conf   our settings, written anew at every start
//	  password        the superuser's password, mode 0600
//	  postgres.log    what Postgres says; its tail is part of our errors
//	  postgres.log.1  the log before, once the log had grown past its bound
//
// Each cluster is made by an initdb of its own (half a second) rather than by
// copying a template, because a copy would share the template's system
// identifier: two owners would then seem to live in one home, and the rule that
// a share is spent in one home only would rest on nothing.
//
// The postmaster listens on 127.0.0.1 only and asks for a password. Durability
// is never traded for speed: fsync, full_page_writes and synchronous_commit stay
// on, and settings that turn them off are refused. A test that needs an unsafe
// database says `alter system set fsync = off` itself.
//
// # Who ends whom
//
// Postgres refuses to run as root. When we are root, it runs as the user
// postgres, or nobody, and Dir must be reachable for that user.
//
// On Linux the postmaster asks the kernel for SIGQUIT when its parent dies, so a
// killed test or demo leaves no server behind; what was committed is there after
// the next start. On other systems a killed parent leaves the postmaster
// running, and the next Start on that directory says so.
package cluster
