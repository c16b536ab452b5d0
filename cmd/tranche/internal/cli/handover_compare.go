package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/regional"
	"tranche/regional/postgres"
)

// complete waits until the new database holds all that the old one does.
func (m *mover) complete(ctx context.Context, old *postgres.Store) (postgres.Contents, error) {
	over := time.NewTimer(m.wait)
	defer over.Stop()
	for {
		theirs, lacks, err := m.compare(ctx, old)
		if err == nil && len(lacks) == 0 {
			return theirs, nil
		}
		if err == nil {
			err = errors.New("the new database is no complete copy: " + strings.Join(lacks, "; "))
		}
		next := time.NewTimer(compareEvery)
		defer next.Stop()
		select {
		case <-over.C:
			return theirs, err
		case <-ctx.Done():
			return theirs, ctx.Err()
		case <-next.C:
		}
	}
}

// awaitHand waits, where the new database is fed by logical replication, for the last that its old one committed: that it was
// handed over. Arriving later it would take the owner's row back to then, and stop the owner that goes on.
func (m *mover) awaitHand(ctx context.Context, store *postgres.Store, h regional.Handover) error {
	ctx, cancel := context.WithTimeout(ctx, max(m.wait, ownerPatience))
	defer cancel()
	for h.To != m.region.Home {
		switch fed, err := store.Fed(ctx); {
		case err != nil:
			return err
		case !fed:
			return nil
		}
		next := time.NewTimer(compareEvery)
		select {
		case <-ctx.Done():
			next.Stop()
			return errors.New("a subscription writes into the new database, and has not brought that the old one was handed over: " +
				"if the old one is gone, end the subscription, and run the same command again")
		case <-next.C:
		}
		again, loaded, err := m.to.open(ctx, m.region.Region, m.deployment)
		if err != nil {
			return err
		}
		again.Shut()
		h = loaded.Handover
	}
	return nil
}

// compare says in what the new database differs from the old one, which is stopped.
func (m *mover) compare(ctx context.Context, old *postgres.Store) (theirs postgres.Contents, lacks []string, err error) {
	store, loaded, err := m.to.open(ctx, m.region.Region, m.deployment)
	if err != nil {
		return theirs, nil, err
	}
	defer store.Shut()
	home := loaded.Home
	if m.result.To = &home; home == m.region.Home {
		return theirs, nil, fmt.Errorf("--%s and --%s name the same database", m.from.flag, m.to.flag)
	}
	ours, err := old.Contents(ctx)
	if err == nil {
		theirs, err = store.Contents(ctx)
	}
	if err == nil && ours.Handover.To == home && theirs.Handover.ID == "" {
		return theirs, nil, nil // it has gone on already: the coordinator had recorded it, and etcd lost that
	}
	return theirs, differences(ours, theirs), err
}

// differences names what two databases do not have in common.
func differences(ours, theirs postgres.Contents) (found []string) {
	if theirs.Handover.ID != ours.Handover.ID {
		found = append(found, "it was copied before the owner stopped")
	}
	for _, name := range sortedKeys(ours.Tables) {
		switch a, b := ours.Tables[name], theirs.Tables[name]; {
		case a == b:
		case a.Rows != b.Rows:
			found = append(found, fmt.Sprintf("table %s has %s, not %s", name, counted(b.Rows, "row"), counted(a.Rows, "row")))
		default:
			found = append(found, fmt.Sprintf("table %s holds other rows", name))
		}
	}
	for _, name := range sortedKeys(theirs.Tables) {
		if _, has := ours.Tables[name]; !has {
			found = append(found, fmt.Sprintf("table %s is one too many", name))
		}
	}
	return found
}

func (a *App) showHandover(m *mover) {
	r := m.result
	a.printf("region %s, incarnation %s: %s\n  from %s\n", r.Region, r.Incarnation, r.State, homeText(r.From))
	if r.To != nil && *r.To != r.From {
		a.printf("  to   %s\n", homeText(*r.To))
	}
	for _, l := range r.Lacks {
		a.printf("differs: %s\n", l)
	}
	a.printf("%s\n", m.nextStep())
	if r.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is\n")
	}
}

// nextStep says what was done, or would be, and what comes then.
func (m *mover) nextStep() string {
	r := m.result
	switch {
	case m.left && r.DryRun && r.State == handoverMoved:
		return "the new database would not be stopped any more; etcd lost the region's incarnation, and it begins anew, with nothing"
	case m.left && r.DryRun:
		return "the old owner would not be stopped any more; it is not the region's"
	case m.left:
		return m.leftText()
	case m.cancel && r.DryRun:
		return "the old owner would go on as if nothing had been; a copy of it is of no use then"
	case m.cancel:
		return "the old owner goes on"
	case r.State == handoverMoved:
		return "the new database is the home; start nodes on it. Nothing is ever admitted in the old one"
	case r.State == handoverAdmits && m.to.given():
		return "the owner would stop, and its nodes answer 503 (starting); the new database would be compared with it, and take over if it lacks nothing"
	case r.State == handoverAdmits:
		return "the owner would stop, and its nodes answer 503 (starting), until a copy takes over or --cancel"
	case len(r.Lacks) > 0:
		return "the copy is not complete: make it anew, or wait, and run this again; or let the old owner go on with --cancel"
	case r.DryRun && m.to.given():
		return "the copy lacks nothing: the old owner would never admit again, and the new one go on as the same incarnation"
	}
	return "the owner is stopped, and commits nothing. Copy its database now, then run this again with --to-url; or let it go on with --cancel"
}
