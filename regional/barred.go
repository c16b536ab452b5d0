package regional

import "tranche/allocation"

// barred is why a request is refused whatever the owner would say, as far as this node remembers: a block, or a key that is over.
// Nobody who is cut off is to hear that it is worth another try, and blocks win over everything (DESIGN.md, Decisions). It is told
// without evidence, since no database was read. Three things are not told from memory:
//
//	an unknown key     it may have been issued a moment ago
//	a scope            the routes table may have given the request another capability since
//	an outcome         what was begun before a block may have been charged
//
// Who is turned away at a full node hears only that it is full: that must cost nothing.
func (n *Node) barred(r allocation.Request, reason allocation.Reason) (allocation.Reason, string) {
	if reason == allocation.OutcomeUnknown || reason == allocation.Overloaded {
		return "", ""
	}
	known, why := n.catalogue.Load().Bars(r, allocation.Instant(n.clock.now()/1_000_000))
	if known != allocation.Blocked && known != allocation.KeyRevoked {
		return "", ""
	}
	return known, why + "; as this node remembers it, without its database"
}
