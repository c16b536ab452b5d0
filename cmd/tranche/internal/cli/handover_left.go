package cli

import (
	"context"
	"fmt"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/regional/postgres"
)

// leftBehind says whether a database was stopped for a handover that nobody ended before its region was removed, or started
// anew elsewhere. Its incarnation is a former one. It was stopped where it is: a copy of it would be another database.
func (m *mover) leftBehind(l regional.Loaded) bool {
	return m.cancel && l.Handover.ID != "" && l.Incarnation != m.region.Incarnation && l.Handover.From == l.Home
}

// callOffLeft lets it go on. It was not handed over, so no other database ever goes on as its incarnation: what it holds is
// spent here or nowhere.
func (m *mover) callOffLeft(ctx context.Context, old *postgres.Store, l regional.Loaded) error {
	m.left = true
	m.result.Incarnation, m.result.From = l.Incarnation, l.Home
	if m.stands(l.Handover); m.result.State == handoverHanded {
		return fmt.Errorf("this database was handed over for good to %s: nothing is ever admitted in it", homeText(l.Handover.To))
	}
	if !m.yes {
		return nil
	}
	// It is said first: afterwards the database knows nothing of the stop.
	if _, err := m.tell(ctx, coordinator.HandoverRequest{Step: coordinator.HandoverEnd, ID: l.Handover.ID, Incarnation: l.Incarnation}); err != nil {
		return fmt.Errorf("say that the handover is called off: %w", err)
	}
	if _, err := old.HandOver(ctx, regional.HandoverResume, l.Handover, l.Home); err != nil {
		return fmt.Errorf("%w; run the same command again", onceEach(err))
	}
	m.stands(regional.Handover{})
	return nil
}

// unheard says whether the coordinator knows of no incarnation, and the database is stopped for a handover: etcd went back to before
// the region had one. A stopped owner makes no call, so nobody hears of it, and nothing comes right by itself.
func (m *mover) unheard(l regional.Loaded) bool {
	return m.region.Incarnation == "" && l.Incarnation != "" && l.Handover.ID != "" && l.Handover.From == l.Home
}

// goOnUnheard lets the new database go on, if the old one was handed over to it for good: no other one ever goes on as this
// incarnation. With its next call the coordinator hears of it.
func (m *mover) goOnUnheard(ctx context.Context, l regional.Loaded) error {
	m.stands(l.Handover)
	m.region.Incarnation, m.region.Home = l.Incarnation, l.Handover.To
	m.result.Incarnation, m.result.From = l.Incarnation, l.Home
	if m.result.State != handoverHanded {
		return fmt.Errorf("the coordinator knows of no incarnation of region %s, and this database is stopped for a handover of %s. "+
			"If etcd lost that, let the owner go on with --cancel: %s", m.region.Region, l.Incarnation, beginsAnew)
	}
	if done, err := m.moved(ctx); done || err != nil {
		m.left = done
		return err
	}
	return fmt.Errorf("the coordinator knows of no incarnation of region %s, and this database was handed over for good to %s: name that one with --to-url", m.region.Region, homeText(l.Handover.To))
}

// beginsAnew is what becomes of an incarnation that etcd lost.
const beginsAnew = "its nodes' next call tells the coordinator of an incarnation that etcd lost; the region begins anew, with nothing, and what it held stays stranded to the end of its periods"

// leftText says what becomes of it.
func (m *mover) leftText() string {
	if m.result.State == handoverMoved {
		return "the new database is not stopped any more; start nodes on it: " + beginsAnew
	}
	if m.region.Home == (allocation.Home{}) && !m.region.Registered.IsZero() {
		return "this database is not stopped any more. If etcd lost the region's incarnation: " + beginsAnew
	}
	if m.region.Home == (allocation.Home{}) {
		return fmt.Sprintf("region %s lives nowhere now, and this database is not stopped any more: it begins anew, with nothing, when the region is registered and a node on it calls", m.region.Region)
	}
	return fmt.Sprintf("region %s lives elsewhere, and this database is not stopped any more: it is refused while the recorded one calls", m.region.Region)
}
