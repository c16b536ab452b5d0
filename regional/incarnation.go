package regional

import (
	"tranche/allocation"
)

// sees notes the lineage of a transaction. While nobody vouches for the node in it, every lane looks at the other writers.
func (n *Node) sees(seen *Loaded) {
	if n.voucher.see(seen.Lineage) && !n.voucher.standing() {
		n.log.Info("starting: the database, or the server behind it, may have gone back", "lineage", seen.Lineage)
		n.kick()
	}
}

// another says whether the owner is another incarnation than the catalogue is of. The catalogue is then forgotten: the
// former one's terms are gone, and no change tells so. Whoever hears it loads all of it.
func (n *Node) another(incarnation string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.incarnation
	n.incarnation = incarnation
	if before == "" || before == incarnation {
		return false
	}
	n.catalogue.Store(allocation.NewCatalogue(n.cfg.Region))
	return true
}

// closedDetail tells callers why the region's owner admits nothing, in words that name no address.
func (n *Node) closedDetail(r allocation.Reason) string {
	owner, contact := n.synced.closed()
	switch {
	case r == allocation.HistoryLost:
		return "the region's database lost history: the region waits for the coordinator to begin anew" + contact
	case r == allocation.Sealed:
		return "the region was sealed: it waits for the coordinator to begin anew" + contact
	case owner.Handover.ID != "":
		return ErrHandedOver.Error()
	case owner.Stopped == allocation.Starting:
		return "the coordinator does not take the region's database for the one that counts yet"
	case owner.Incarnation == "":
		return "the region has no incarnation yet: it waits for the coordinator" + contact
	case n.voucher.waiting():
		return "the coordinator vouches for the region's database: the node waits a moment for the region's other nodes, which may know of more"
	}
	return "it is not known yet that the region's database holds all that was committed: the node waits for the coordinator" + contact
}

// closed is the owner's row as last read, and in words whether the coordinator is away.
func (s *syncState) closed() (Loaded, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != "" {
		return s.loaded, ", which it cannot reach"
	}
	return s.loaded, ""
}
