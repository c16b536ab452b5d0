package coordinator

import (
	"context"
	"fmt"
	"slices"

	"tranche/allocation"
)

// GoOn is a deployment whose regions are there, while etcd is empty. It is made again with its id, under a history that is
// frozen until each of these regions has stated what it holds: none may be forgotten, since what it holds would be granted
// once more.
type GoOn struct {
	Deployment string
	Regions    []string // all that the deployment had
}

func (g *GoOn) id() string {
	if g == nil {
		return ""
	}
	return g.Deployment
}

// fits refuses to take one deployment for another. whose says where the id is from; an empty one is of nowhere.
func (g *GoOn) fits(id, whose string) error {
	if g == nil || id == "" || id == g.Deployment {
		return nil
	}
	return fmt.Errorf("%s deployment %s, and %s is to go on in an etcd that is empty: leave out --deployment, or correct it", whose, id, g.Deployment)
}

// firstStanding is the standing of a deployment that is made: of a new one, or of one that was there before.
func (s *Service) firstStanding(g *GoOn, made *Deployment) StandingDocument {
	d := standingOf(made.History)
	if g == nil {
		return d
	}
	d.Standing = d.Contradict("etcd was empty, and deployment "+g.Deployment+" goes on in it", allocation.History{}, allocation.FurthestOpened(s.instant()), s.random.hex(8))
	d.Since, d.Named = s.now().UTC(), slices.Clone(g.Regions)
	made.History = d.History
	return d
}

// RegisterRequest registers a region. Owner is for one that etcd lost, while all is frozen.
type RegisterRequest struct {
	Region string      `json:"region"`
	Owner  *KnownOwner `json:"owner,omitempty"`
}

// KnownOwner is what a region's database says of itself. It is then asked to state what it holds, and goes on; else its
// incarnation would be one that etcd never heard of, and it would begin anew with nothing.
type KnownOwner struct {
	Incarnation string          `json:"incarnation"`
	Home        allocation.Home `json:"home"`
}

// registerOwner enters the owner of a region that etcd lost.
func (s *Service) registerOwner(d *RegionDocument, owner *KnownOwner, change *Change) error {
	switch {
	case owner == nil:
		return nil
	case !s.state.frozen():
		return refused("register it without its owner: it then begins anew, with nothing", "nothing is frozen: nobody would wait for what region %s holds", d.Region)
	case slices.Contains(d.Former, owner.Incarnation):
		return refused("register it without its owner: it then begins anew, with nothing", "region %s was removed with incarnation %s", d.Region, owner.Incarnation)
	case owner.Incarnation == "" || owner.Home == allocation.Home{}:
		return invalid("owner", "has no incarnation or no home", "give what the region's database says, as `tranche regions register REGION --postgres-url URL` does")
	}
	d.Incarnation, d.Home, d.Confirmed, d.GivenUnder = owner.Incarnation, owner.Home, true, s.state.descent().History
	_, deployment, raised, err := s.state.raise(func(d *Deployment) { d.Members++ })
	if err != nil {
		return err
	}
	change.Reads, change.Puts = append(change.Reads, deployment), append(change.Puts, raised)
	s.state.onStanding(change)
	return nil
}

// registerKnown is registerRegion for a region with an owner that is known.
func (s *Service) registerKnown(ctx context.Context, who actor, q RegisterRequest) (RegionAnswer, error) {
	a, err := s.registerRegion(ctx, who, q.Region, q.Owner)
	if err == nil && q.Owner != nil {
		a.Incarnation, a.Home = q.Owner.Incarnation, q.Owner.Home
		s.nudgeBackground()
	}
	return a, err
}
