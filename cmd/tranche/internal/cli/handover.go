package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/regional/postgres"
)

const handoverLong = `Move a region's owner to another database, such as a new server, with nothing lost. It previews unless it is told --yes.

  1. The owner in the old database stops, durably: it commits nothing any more, and its nodes answer 503 (starting).
  2. The new database is compared with it, table by table: it must lack nothing. Without --to-url the command ends here, so
     that you can copy (pg_dump, pg_restore) what stands still now. Run it again with --to-url.
  3. The old owner never admits again, also after a restart. Then the coordinator records the new home, then the new owner
     goes on: the same incarnation, with all that it holds.

Each step is durable before the next; interrupted, it goes on when it is run again. --cancel lets the old owner go on: it
works until the two databases were found to be equal, also of a database whose region was removed meanwhile, or started anew
in another one.`

// handover is how a move stands, or what it would be.
type handover struct {
	Region      string           `json:"region"`
	Incarnation string           `json:"incarnation"`
	From        allocation.Home  `json:"from"`
	To          *allocation.Home `json:"to,omitempty"`
	State       string           `json:"state"`             // admits, stopped, handed over, moved
	ID          string           `json:"id,omitempty"`      // of the stop
	Lacks       []string         `json:"lacks,omitempty"`   // what the new database differs in
	DryRun      bool             `json:"dry_run,omitempty"` // nothing was changed
}

// The states of a handover.
const (
	handoverAdmits  = "admits"
	handoverStopped = "stopped"
	handoverHanded  = "handed over"
	handoverMoved   = "moved"
)

// compareEvery is how often a copy that is not complete is compared again.
const compareEvery = 200 * time.Millisecond

// wantedHandover is what the flags ask for.
type wantedHandover struct {
	acts
	from, to ownerDatabase
	cancel   bool
	wait     time.Duration
}

func (a *App) handoverCommand() *cobra.Command {
	var q wantedHandover
	c := &cobra.Command{
		Use: "handover REGION --from-url URL [--to-url URL]", Short: "Move a region's owner to another database, with nothing lost", Args: exactly("REGION"), Long: handoverLong,
		Example: "  tranche regions handover us-east --from-url postgres://tranche@old/tranche --yes --reason 'a new server' --by Ada\n" +
			"  tranche regions handover us-east --from-url postgres://tranche@old/tranche --to-url postgres://tranche@new/tranche --yes --reason 'a new server' --by Ada",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case q.cancel && (q.to.given() || !q.from.given()):
				return usagef("`%s --cancel` needs --from-url URL, the database that goes on, and no --to-url", c.CommandPath())
			case !q.from.given() && !q.to.given():
				return usagef("`%s` needs --from-url URL, the region's recorded database, and --to-url URL, the one that takes over", c.CommandPath())
			}
			if err := q.check(c.CommandPath()); err != nil {
				return err
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			return a.handOver(c.Context(), client, args[0], q)
		},
	}
	q.from.flags(c, "from-url", "`URL` of the region's recorded database")
	q.to.flags(c, "to-url", "`URL` of the database that takes over; without it the owner only stops")
	c.Flags().BoolVar(&q.cancel, "cancel", false, "call it off: the old owner goes on")
	c.Flags().DurationVar(&q.wait, "wait", 0, "how long to wait for the copy to be complete, such as one that is fed by logical replication")
	q.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// mover is one handover at work.
type mover struct {
	wantedHandover
	client     *api.Client
	region     coordinator.RegionAnswer
	deployment string
	result     handover
	left       bool // the database is not the region's any more
}

func (a *App) handOver(ctx context.Context, client *api.Client, name string, q wantedHandover) error {
	status, r, err := deploymentAndRegion(ctx, client, name)
	if err != nil && q.cancel && status.Deployment != "" {
		r, err = coordinator.RegionAnswer{Region: name}, nil // it may have been removed while its owner was stopped
	}
	if err != nil {
		return err
	}
	m := &mover{wantedHandover: q, client: client, region: r, deployment: status.Deployment}
	m.result = handover{Region: name, Incarnation: r.Incarnation, From: r.Home, State: handoverAdmits, DryRun: !q.yes}
	if r.Incarnation == "" && !q.from.given() {
		return fmt.Errorf("region %s has no incarnation: there is nothing to hand over. If etcd lost it, while its database was stopped for this, name that with --from-url", name)
	}
	err = m.run(ctx)
	if a.json && err == nil {
		return a.printJSON(m.result)
	}
	if err == nil {
		a.showHandover(m)
	}
	return err
}

// run does what is left to be done, or looks.
func (m *mover) run(ctx context.Context) error {
	if done, err := m.moved(ctx); done || err != nil {
		return err
	}
	if !m.from.given() {
		return fmt.Errorf("region %s has not moved: name its recorded database with --from-url", m.region.Region)
	}
	old, loaded, err := m.from.open(ctx, m.region.Region, m.deployment)
	if err != nil {
		return err
	}
	defer old.Shut()
	if m.leftBehind(loaded) {
		return m.callOffLeft(ctx, old, loaded)
	}
	if m.unheard(loaded) {
		return m.goOnUnheard(ctx, loaded)
	}
	if err := m.movable(loaded); err != nil {
		return err
	}
	m.stands(loaded.Handover)
	switch {
	case m.cancel:
		return m.callOff(ctx, old, loaded)
	case m.yes:
		return m.move(ctx, old, loaded)
	case m.to.given() && loaded.Handover.ID != "":
		return m.preview(ctx, old)
	}
	return nil
}

// moved says whether the coordinator has recorded the new database already; then it only has to go on.
func (m *mover) moved(ctx context.Context) (bool, error) {
	if !m.to.given() {
		return false, nil
	}
	store, loaded, err := m.to.open(ctx, m.region.Region, m.deployment)
	if err != nil {
		if m.from.given() {
			return false, nil // it is opened again when it is needed: the copy may have yet to be made
		}
		return false, err
	}
	defer store.Shut()
	home := loaded.Home
	m.result.To = &home
	if home != m.region.Home || loaded.Incarnation != m.region.Incarnation {
		return false, nil
	}
	m.result.State = handoverMoved
	if m.yes && loaded.Handover.ID != "" {
		if err := m.awaitHand(ctx, store, loaded.Handover); err != nil {
			return true, err
		}
	}
	if m.yes {
		_, err = store.HandOver(ctx, regional.HandoverResume, loaded.Handover, m.region.Home)
	}
	return true, err
}

// movable refuses a database that is not the one to be moved.
func (m *mover) movable(l regional.Loaded) error {
	r := m.region
	switch {
	case r.Home == allocation.Home{}:
		return fmt.Errorf("region %s is not registered, or has never called, and this database is not stopped for a handover: there is nothing to do", r.Region)
	case l.Home != r.Home && l.Incarnation == r.Incarnation && l.Handover.ID != "":
		return fmt.Errorf("this is %s, and the recorded home of region %s is %s: correct --%s. If it is a replica of that one, promoted while the owner was stopped: "+
			"a stopped owner makes no call, so declare it with `tranche regions adopt-failover %s --postgres-url URL`, and run this command again",
			homeText(l.Home), r.Region, homeText(r.Home), m.from.flag, r.Region)
	case l.Home != r.Home:
		return fmt.Errorf("this is %s, and the recorded home of region %s is %s: correct --%s", homeText(l.Home), r.Region, homeText(r.Home), m.from.flag)
	case l.Lost:
		return fmt.Errorf("the database lost history: it begins anew with the next call of a node, and then it can be handed over")
	case l.Incarnation != r.Incarnation:
		return fmt.Errorf("the database holds incarnation %s, and region %s is %s", l.Incarnation, r.Region, r.Incarnation)
	}
	return nil
}

func (m *mover) stands(h regional.Handover) {
	m.result.ID, m.result.State = h.ID, handoverAdmits
	if h.ID != "" {
		m.result.State = handoverStopped
	}
	if h.To != (allocation.Home{}) {
		m.result.State = handoverHanded
	}
}

// tell records a step at the coordinator.
func (m *mover) tell(ctx context.Context, q coordinator.HandoverRequest) (r coordinator.RegionAnswer, err error) {
	q.Reason, q.By = m.reason, m.by
	_, err = m.client.Do(ctx, api.Call{Method: http.MethodPost, Path: "/v1/regions/" + url.PathEscape(m.region.Region) + "/handover", Body: q}, &r)
	return r, err
}

func (m *mover) callOff(ctx context.Context, old *postgres.Store, l regional.Loaded) error {
	if m.result.State == handoverHanded {
		return fmt.Errorf("the old owner was handed over for good to %s: go on without --cancel", homeText(l.Handover.To))
	}
	if !m.yes {
		return nil
	}
	if _, err := old.HandOver(ctx, regional.HandoverResume, l.Handover, m.region.Home); err != nil {
		return onceEach(err)
	}
	if _, err := m.tell(ctx, coordinator.HandoverRequest{Step: coordinator.HandoverEnd, ID: l.Handover.ID}); err != nil {
		return fmt.Errorf("the owner goes on, and the coordinator does not know it: %w; run the same command again", err)
	}
	m.stands(regional.Handover{})
	return nil
}

// move does the steps that are left. Each may be repeated, and each is durable before the next.
func (m *mover) move(ctx context.Context, old *postgres.Store, l regional.Loaded) error {
	began, err := m.tell(ctx, coordinator.HandoverRequest{Step: coordinator.HandoverBegin, ID: l.Handover.ID})
	if err != nil {
		return fmt.Errorf("begin the handover: %w", err)
	}
	if began.Handover == nil {
		return fmt.Errorf("region %s was handed over meanwhile; run the same command again", m.region.Region)
	}
	h, err := old.HandOver(ctx, regional.HandoverStop, regional.Handover{ID: began.Handover.ID}, m.region.Home)
	if err != nil {
		return fmt.Errorf("stop the old owner: %w; run the same command again", onceEach(err))
	}
	if m.stands(h); !m.to.given() {
		return nil
	}
	stopped := func(err error) error {
		return fmt.Errorf("%w\nthe owner of region %s is stopped: make the copy, or complete it, and run the same command again; or let the old one go on with --cancel", err, m.region.Region)
	}
	theirs, err := m.complete(ctx, old)
	if err != nil {
		return stopped(err)
	}
	again := func(step string, err error) error {
		return fmt.Errorf("%s: %w; run the same command again, it goes on from there", step, onceEach(err))
	}
	if h, err = old.HandOver(ctx, regional.HandoverHand, regional.Handover{ID: h.ID, To: theirs.Home}, m.region.Home); err != nil {
		return again("hand the old owner over", err)
	}
	m.stands(h)
	if _, err := m.tell(ctx, coordinator.HandoverRequest{
		Step: coordinator.HandoverMove, ID: began.Handover.ID, Incarnation: theirs.Incarnation, From: m.region.Home, To: theirs.Home, Marks: theirs.Marks, Ended: theirs.Ended,
	}); err != nil {
		return again("record the new home", err)
	}
	m.region.Home = theirs.Home
	if _, err := m.moved(ctx); err != nil {
		return again("let the new owner go on", err)
	}
	return nil
}

// preview compares a copy with a stopped owner.
func (m *mover) preview(ctx context.Context, old *postgres.Store) (err error) {
	_, m.result.Lacks, err = m.compare(ctx, old)
	return err
}
