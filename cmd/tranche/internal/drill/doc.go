// Package drill rehearses a leaked key on a deployment, with a tenant that exists for this alone.
//
//	check ─▶ keys ─▶ burst ─▶ protected ─▶ ceiling ─▶ revoked ─▶ surge ─▶ essential ─▶ books ─▶ clean up
//	           │                                                            ▲
//	           └──────────────── essential traffic, all the while ──────────┘
//
// It refuses a tenant whose requests are charged to any budget that is not marked synthetic: what it spends is nobody's. Each
// step has a promise; one that is broken is written down, and the drill goes on, so that one run shows all that is broken. A
// failure or Ctrl-C in the middle ends the steps, and what was changed is changed back all the same: keys are revoked, the
// limit is what it was. What could not be undone is named, with the command that does it.
package drill
