package regional

import (
	"time"

	"tranche/allocation"
)

// ownTurn is how recent this node's own last call must be to speak for the region's contact.
const ownTurn = 10 * time.Second

const warnStranger = "the coordinator does not know this region's token: the region goes on with what it holds, and refuses when its terms are over"

// Status tells how the node and its region are, from memory.
func (n *Node) Status() NodeStatus {
	now, catalogue := n.now(), n.catalogue.Load()
	s := NodeStatus{
		Region: n.cfg.Region, Node: n.cfg.Name, Deployment: n.cfg.Deployment, Version: n.cfg.Version, Changes: catalogue.Number,
		Fullest: n.fullest(),
	}
	s.Ready, s.Reasons = n.health.ready(now)
	s.LastCommitAt, s.LastCommitError = n.health.last()
	n.synced.status(&s, now, n.clock.now())
	if own := n.stoppedBy(); own != "" {
		s.Stopped = own
	}
	if setting := n.health.unsafe(); setting != "" && s.Stopped == "" {
		s.Stopped, s.StoppedDetail = allocation.UnsafeSettings, setting
	}
	if c, ok := n.cfg.Coordinator.(interface{ Address() string }); ok {
		s.Sync.Coordinator = c.Address()
	}
	if s.Stopped == "" && (s.Incarnation == "" || !n.voucher.standing()) {
		s.Stopped, s.StoppedDetail = allocation.Starting, n.closedDetail(allocation.Starting)
	}
	if s.Stopped != "" {
		s.Ready = false
		s.Reasons = append(s.Reasons, admitsNothing+string(s.Stopped))
	}
	if s.Sync.TokenUnknown {
		s.Warnings = append(s.Warnings, warnStranger)
	}
	s.Runway = runway(catalogue, n.clock.instant())
	for _, b := range catalogue.Budgets() {
		if !b.Deleted {
			s.Budgets++
		}
	}
	return s
}

// runway is the budget whose opened terms end first.
func runway(c *allocation.Catalogue, now allocation.Instant) *Runway {
	var least *Runway
	for _, b := range c.Budgets() {
		if b.Deleted || !runs(b.Budget.Window, now) {
			continue // nothing of it can be spent now, with or without the coordinator
		}
		until := c.CoveredUntil(b.Budget.Name, now)
		if until == allocation.Never {
			continue
		}
		seconds := max(0, int64(until-now))
		if least == nil || seconds < least.Seconds {
			least = &Runway{Seconds: seconds, Budget: b.Budget.Name}
		}
	}
	return least
}

// runs says whether a window has a period now. Only {once} may have none: of a calendar a node computes nothing, since its
// time-zone data may be another than the coordinator's.
func runs(w allocation.Window, now allocation.Instant) bool {
	if w.Once == nil {
		return true
	}
	_, running := w.PeriodAt(now)
	return running
}

// fullest shows the usage that watch last read.
func (n *Node) fullest() []BudgetStatus {
	usage := n.fullestRows.Load()
	if usage == nil {
		return nil
	}
	catalogue := n.catalogue.Load()
	var out []BudgetStatus
	for _, u := range *usage {
		b, ok := catalogue.Budget(u.Budget)
		if !ok {
			continue
		}
		limit := b.Budget.LimitOrZero()
		if b.Deleted {
			limit = 0
		}
		out = append(out, BudgetStatus{
			Budget: u.Budget, Instance: u.Instance, Class: u.Class, Unit: b.Budget.Unit, Period: u.Period, Until: u.Until,
			Limit: limit, Share: u.Granted - u.Returned, Spent: u.Spent, Reserved: u.Reserved, Spendable: u.Spendable(limit), Protected: u.Protected,
		})
	}
	return out
}

// status fills in what is known of the contact with the coordinator and of the owner's row.
func (s *syncState) status(out *NodeStatus, now time.Time, databaseNow int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.loaded
	out.Incarnation, out.Config = l.Incarnation, l.Config
	out.Stopped, out.StoppedDetail = l.Stopped, l.Detail
	out.Reservations.Open = l.OpenReservations
	out.OldestSnapshotSeconds = l.OldestSnapshot.Seconds()
	if l.OldestReservation != 0 {
		out.Reservations.Oldest = time.UnixMicro(l.OldestReservation).UTC()
		out.Reservations.OldestSeconds = max(0, float64(databaseNow-l.OldestReservation)/1e6)
	}
	out.Sync = SyncStatus{LastSuccess: s.last, LastError: s.err, TokenUnknown: s.stranger, Draining: s.draining, Revision: l.Revision}
	if l.ObservedAt != 0 {
		age := float64(databaseNow-l.ObservedAt) / 1e6
		out.Sync.EvidenceAgeSeconds = &age
	}
	switch sinceMine := now.Sub(s.last); {
	case !s.last.IsZero() && (sinceMine < ownTurn || l.ObservedAt == 0):
		out.Sync.AgeSeconds = sinceMine.Seconds()
	case l.ObservedAt != 0: // another node has the turn: the age of what it stored is all that is known here
		out.Sync.AgeSeconds = *out.Sync.EvidenceAgeSeconds
	}
}
