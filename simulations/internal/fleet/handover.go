package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/simulations/internal/ownertwin"
)

// handovers move regions' owners to other databases, as `tranche regions handover` and the person who runs it do: the same
// steps, in the same order, at the same two APIs. In between anything may fail, the command too; it is run again then, or the
// handover is called off.
//
//	stop ──▶ copy, by hand ──▶ compare ──▶ hand ──▶ record ──▶ resume ──▶ nodes start with the new URL
//	  └────────── cancel: until here ────────┘
type handovers struct {
	fleet  *fleet
	person *operator // who runs the command
	random *rand.Rand
	every  time.Duration // the longest pause between two; 0: there are none
	moving *moving       // the one that is under way; nil: none is
	made   int           // databases, by name
}

// moving is one handover.
type moving struct {
	region   *region
	old, new *ownertwin.Database // new: nil until somebody made a copy
	ahead    bool                // its nodes are started on the copy before it takes over
}

// handoverWithin bounds one run of the command; a person stops one that hangs.
const handoverWithin = 20 * time.Second

var errStoppedAlone = errors.New("the owner is stopped, and etcd knows of no incarnation")

var errIncomplete = errors.New("the copy lacks something")

// drawHandovers gives some runs handovers.
func (p *plan) drawHandovers(r *rand.Rand) {
	if r.IntN(4) == 0 {
		p.handovers = oneOf[time.Duration](r, 5, 10, 20) * time.Second
	}
}

func newHandovers(f *fleet) *handovers {
	if f.plan.handovers == 0 || f.o.Kind != KindFaults {
		return nil
	}
	p := f.w.Process("mover")
	p.Serve()
	h := &handovers{fleet: f, random: f.w.Random("handovers"), every: f.plan.handovers}
	h.person = &operator{fleet: f, process: p, random: h.random}
	return h
}

// run makes handovers until the faults are over, and ends the one that is under way then.
func (h *handovers) run() {
	ctx, f := h.person.process.Context(), h.fleet
	for !f.faults.over {
		h.person.process.Sleep(ctx, time.Duration(h.random.Int64N(int64(h.every))))
		r := f.regions[h.random.IntN(len(f.regions))]
		if !f.faults.over && r.started {
			h.move(ctx, r)
		}
	}
}

// missing is what has yet to come right.
func (h *handovers) missing(say func(string, ...any)) {
	if h != nil && h.moving != nil {
		say("%s is being handed over", h.moving.region.name)
	}
}

// move makes one handover from its beginning to its end: by as many runs of the command as it takes.
func (h *handovers) move(ctx context.Context, r *region) {
	m := &moving{region: r, old: r.db, ahead: h.random.IntN(4) == 0}
	h.moving = m
	cancel := h.random.IntN(4) == 0
	if h.random.IntN(4) == 0 {
		h.copy(m) // too early: it is refused, and made anew
	}
	for runs := 0; ; runs++ {
		err := h.command(ctx, m, false, runs)
		h.fleet.w.Trace("handover", fmt.Sprint(r.name, " run ", runs, ": ", err))
		stands := m.old.Handover()
		switch {
		case err == nil && m.new != nil && m.new.Handover().ID == "" && r.db == m.new:
			h.goOver(m)
			h.done("handovers")
			return
		case errors.Is(err, errStoppedAlone), stands.ID == "" && (runs > 2 || h.fleet.faults.over) || cancel && runs > 0 && stands.To == (allocation.Home{}):
			if h.callOff(ctx, m) {
				return
			}
			cancel = false
			continue
		case errors.Is(err, errIncomplete) || m.new == nil && stands.ID != "":
			h.copy(m)
		}
		h.person.process.Sleep(ctx, time.Duration(h.random.IntN(3000))*time.Millisecond)
	}
}

func (h *handovers) done(what string) {
	h.fleet.notes[what]++
	h.moving = nil
}

// copy dumps and restores what the old database holds now; an earlier copy is thrown away.
func (h *handovers) copy(m *moving) {
	h.discard(m)
	h.made++
	m.new = m.old.Copy(h.fleet.w, fmt.Sprint(m.region.name, "/pg-", h.made+1))
	h.fleet.check.copied(m.region, m.new)
	h.fleet.faults.spoil(m.region, m.new, h.random)
	if m.ahead && m.new.Handover().ID != "" { // a copy of an owner that goes on is a clone of it: no node may be started there
		h.goOver(m)
	}
}

func (h *handovers) discard(m *moving) {
	if m.new == nil {
		return
	}
	h.point(m.region, m.old)
	m.new.Destroy()
	m.new = nil
}

// goOver starts the region's nodes with the new URL, one after the other.
func (h *handovers) goOver(m *moving) { h.point(m.region, m.new) }

func (h *handovers) point(r *region, to *ownertwin.Database) {
	if r.endpoint.Database() == to {
		return
	}
	r.endpoint = ownertwin.NewEndpoint(to)
	for _, n := range r.nodes {
		end := n.process.Stop
		if h.random.IntN(3) == 0 {
			end = n.process.Crash
		}
		at := r.endpoint
		h.fleet.w.After(time.Duration(h.random.IntN(2000))*time.Millisecond, func() {
			if r.endpoint == at {
				n.endpoint = at
				end()
			}
		})
	}
}

// callOff runs the command with --cancel until it says that the old owner goes on: what a run before had begun may come later
// than that run was ended. It may have handed the owner over all the same, for good: then false, and the handover goes on.
func (h *handovers) callOff(ctx context.Context, m *moving) bool {
	err := errors.New("it was not run yet")
	for runs := 0; m.old.Handover().ID != "" || err != nil; runs++ {
		if m.old.Handover().To != (allocation.Home{}) {
			return false
		}
		err = h.command(ctx, m, true, runs)
		h.fleet.w.Trace("handover", fmt.Sprint(m.region.name, " cancel ", runs, ": ", err))
		h.person.process.Sleep(ctx, time.Second)
	}
	h.discard(m)
	h.done("handovers that were called off")
	return true
}

// command is one run of it, which may hang, or end anywhere.
func (h *handovers) command(ctx context.Context, m *moving, cancel bool, runs int) error {
	within := handoverWithin
	if runs < 3 && h.random.IntN(3) == 0 {
		within = time.Duration(h.random.IntN(1000)) * time.Millisecond // ended by hand
	}
	ctx, end := h.person.process.WithTimeout(ctx, within)
	defer end()
	c := &moveCommand{handovers: h, moving: m}
	if err := c.look(ctx); err != nil {
		return err
	}
	return c.run(ctx, cancel)
}

// moveCommand is one run of `tranche regions handover`.
type moveCommand struct {
	*handovers
	*moving
	recorded coordinator.RegionAnswer
	owner    *ownertwin.Owner // of the old database
}

// look reads what the coordinator has recorded.
func (c *moveCommand) look(ctx context.Context) error {
	var status coordinator.Status
	if r := c.person.call(ctx, "GET", "/v1/status", nil, ""); r.status != http.StatusOK || json.Unmarshal(r.body, &status) != nil {
		return fmt.Errorf("the coordinator answers %d", r.status)
	}
	at := slices.IndexFunc(status.Regions, func(r coordinator.RegionAnswer) bool { return r.Region == c.region.name })
	if at < 0 {
		return errors.New("the region is not registered")
	}
	c.recorded = status.Regions[at]
	return nil
}

// tell records a step at the coordinator.
func (c *moveCommand) tell(ctx context.Context, q coordinator.HandoverRequest) (a coordinator.RegionAnswer, err error) {
	q.Reason, q.By = "a new server", "Ada"
	r := c.person.call(ctx, "POST", "/v1/regions/"+c.region.name+"/handover", q, "")
	if r.status != http.StatusOK {
		return a, fmt.Errorf("%s: %d %s", q.Step, r.status, r.body)
	}
	return a, json.Unmarshal(r.body, &a)
}

// open connects to one of the two databases.
func (c *moveCommand) open(ctx context.Context, db *ownertwin.Database) (*ownertwin.Owner, regional.Loaded, error) {
	o := ownertwin.NewOwner(ownertwin.NewEndpoint(db), c.person.process, c.region.name)
	loaded, err := o.Load(ctx, 0)
	return o, loaded, err
}

func (c *moveCommand) run(ctx context.Context, cancel bool) error {
	if done, err := c.moved(ctx); done || err != nil {
		return err
	}
	owner, loaded, err := c.open(ctx, c.old)
	switch {
	case err != nil:
		return err
	case c.recorded.Incarnation == "":
		c.owner = owner
		return c.lostByEtcd(ctx, loaded, cancel)
	case loaded.Home != c.recorded.Home && !loaded.Lost && loaded.Incarnation == c.recorded.Incarnation && loaded.Handover.ID != "":
		return c.adopt(ctx, loaded.Home)
	case loaded.Home != c.recorded.Home || loaded.Lost || loaded.Incarnation != c.recorded.Incarnation:
		return fmt.Errorf("%s is not what is recorded", loaded.Incarnation)
	}
	c.owner = owner
	if !cancel {
		return c.hand(ctx, loaded)
	}
	if _, err := owner.HandOver(ctx, regional.HandoverResume, loaded.Handover, c.recorded.Home); err != nil {
		return err
	}
	_, err = c.tell(ctx, coordinator.HandoverRequest{Step: coordinator.HandoverEnd, ID: loaded.Handover.ID})
	return err
}

// lostByEtcd lets a stopped owner, or its copy, go on, whose incarnation etcd lost: it makes no call, so nobody would hear of it.
func (c *moveCommand) lostByEtcd(ctx context.Context, loaded regional.Loaded, cancel bool) error {
	to := loaded.Handover.To
	switch {
	case loaded.Handover.ID == "":
		return errors.New("the region has no incarnation")
	case to == allocation.Home{} && !cancel:
		return errStoppedAlone
	case to == allocation.Home{}:
		if _, err := c.tell(ctx, coordinator.HandoverRequest{Step: coordinator.HandoverEnd, ID: loaded.Handover.ID, Incarnation: loaded.Incarnation}); err != nil {
			return err
		}
		_, err := c.owner.HandOver(ctx, regional.HandoverResume, loaded.Handover, loaded.Home)
		return err
	case c.new == nil || c.new.Home() != to:
		return fmt.Errorf("it was handed over to %v", to)
	}
	owner, loaded, err := c.open(ctx, c.new)
	if err == nil {
		_, err = owner.HandOver(ctx, regional.HandoverResume, loaded.Handover, to)
	}
	return err
}

// moved says whether the copy is the recorded home; then it goes on.
func (c *moveCommand) moved(ctx context.Context) (bool, error) {
	if c.new == nil {
		return false, nil
	}
	owner, loaded, err := c.open(ctx, c.new)
	if err != nil || loaded.Home != c.recorded.Home || loaded.Incarnation != c.recorded.Incarnation {
		return false, err
	}
	_, err = owner.HandOver(ctx, regional.HandoverResume, loaded.Handover, c.recorded.Home)
	return true, err
}

// hand does the steps that are left.
func (c *moveCommand) hand(ctx context.Context, loaded regional.Loaded) error {
	began, err := c.tell(ctx, coordinator.HandoverRequest{Step: coordinator.HandoverBegin, ID: loaded.Handover.ID})
	if err != nil {
		return err
	}
	if began.Handover == nil {
		return errors.New("handed over meanwhile")
	}
	stop, err := c.owner.HandOver(ctx, regional.HandoverStop, regional.Handover{ID: began.Handover.ID}, c.recorded.Home)
	if err != nil || c.new == nil {
		return err
	}
	home := c.new.Home()
	goesOn := stop.To == home && c.new.Handover().ID == "" // the coordinator had recorded it, and etcd lost that
	if lacks := c.old.Lacks(c.new); len(lacks) > 0 && !goesOn && !c.fleet.o.Seams.Uncompared {
		return fmt.Errorf("%w: %v", errIncomplete, lacks)
	}
	_, err = c.owner.HandOver(ctx, regional.HandoverHand, regional.Handover{ID: stop.ID, To: home}, c.recorded.Home)
	if c.old.Handover().To == home {
		c.fleet.check.handed(c.region, c.new)
	}
	if err != nil {
		return err
	}
	marks, ended := c.new.Marks()
	if _, err := c.tell(ctx, coordinator.HandoverRequest{
		Step: coordinator.HandoverMove, ID: stop.ID, Incarnation: c.new.Incarnation(), From: c.recorded.Home, To: home, Marks: marks, Ended: ended,
	}); err != nil {
		return err
	}
	c.recorded.Home = home
	_, err = c.moved(ctx)
	return err
}

// spoil sets what is wrong all the time with the links to a copy, too.
func (x *faults) spoil(r *region, db *ownertwin.Database, from *rand.Rand) {
	if !x.begun || x.over {
		return
	}
	for _, n := range r.nodes {
		x.worsen(x.fleet.net.Link(n.process.Name(), db.Name()), from)
		x.worsen(x.fleet.net.Link(db.Name(), n.process.Name()), from)
	}
}
