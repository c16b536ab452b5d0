// Package simulations holds the simulated world, in which the real coordinator and the real regional nodes run against
// simulated etcd, Postgres, network and clocks, under one seed.
//
//	internal/world      tasks in simulated time, one at a time, in the order that a seed decides
//	internal/network    messages between processes: lost, late, repeated, cut off
//	internal/etcdtwin   coordinator.Store, held to the contract by coordinator/storetest
//	internal/ownertwin  regional.Owner, held to the contract by regional/ownertest
//	internal/fleet      one run: both services, clients, an operator, faults, and checkers by invariant
//
// Run makes many runs, each from a seed of its own. What is judged, and when, stands at package fleet.
//
// The twins keep what real etcd and real Postgres promise, and no more: what a crash keeps, what a restore brings back,
// what a lost answer leaves open. The twin of Postgres also remembers every commit that any database ever made, so that a
// checker judges what truly happened, and not what some database remembers of it.
package simulations
