package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

const (
	// maxRegions bounds how many regions a deployment has.
	maxRegions = 64
	// maxRegionNames bounds how many names are remembered, with those of removed regions.
	maxRegionNames = 256
	// nodeForgotten is how long a node that does not call any more is listed.
	nodeForgotten = time.Minute
)

// RegionAnswer is a region as it is listed. Token is said once, when it is made.
type RegionAnswer struct {
	Region        string          `json:"region"`
	Registered    time.Time       `json:"registered"`
	Draining      bool            `json:"draining"`
	Unannounced   bool            `json:"unannounced,omitempty"` // no other region has said that it knows of it: it is granted nothing before
	Incarnation   string          `json:"incarnation,omitempty"` // empty: it has not called yet, or was ended
	Sealing       string          `json:"sealing,omitempty"`     // the incarnation that was ended to be sealed
	Home          allocation.Home `json:"home,omitzero"`
	Contradiction *Contradiction  `json:"contradiction,omitempty"` // the owner or etcd lost history, or another database calls
	Handover      *Handover       `json:"handover,omitempty"`      // to another database, that is under way
	Token         string          `json:"token,omitempty"`

	InContact        bool                `json:"in_contact"`
	LastContact      *time.Time          `json:"last_contact,omitempty"`
	ContactAgeMillis int64               `json:"contact_age_ms,omitempty"`
	Nodes            []NodeSeen          `json:"nodes,omitempty"` // that called lately, each name once: they take turns, so there may be more
	SkewMillis       int64               `json:"clock_skew_ms"`   // its database's clock less ours
	ClosedBefore     *allocation.Instant `json:"closed_before,omitempty"`
	Config           int64               `json:"config"`           // the configuration number that it has stored
	History          allocation.History  `json:"history,omitzero"` // of etcd, that it has stored
	Stopped          string              `json:"stopped,omitempty"`
	OpenReservations int64               `json:"open_reservations"`
	OldestReserved   *time.Time          `json:"oldest_reservation,omitempty"`
	RunwaySeconds    *int64              `json:"runway_seconds,omitempty"` // until a budget has no term left that it holds; 0: one has none now; absent: no budget bounds it
	RunwayBudget     string              `json:"runway_budget,omitempty"`  // that budget
	Waiting          int                 `json:"waiting"`                  // shares whose newest generation it has not stated yet
}

// registerRegion makes a region and its token. It gets an incarnation with its first call.
func (s *Service) registerRegion(ctx context.Context, who actor, name string, owner *KnownOwner) (RegionAnswer, error) {
	if !allocation.ValidRegion(name) {
		return RegionAnswer{}, invalid("region", fmt.Sprintf("%.70q is not a region's name", name), "use 1 to 63 of a-z 0-9 -")
	}
	d := RegionDocument{Format: documentFormat, Region: name, Registered: s.now().UTC()}
	var secret string
	err := s.inTurn(ctx, func() (Change, error) {
		registered := s.state.members().Regions
		switch {
		case slices.Contains(registered, name):
			return Change{}, problem(409, CodeExists, "there is a region of this name", "make it a new token with POST /v1/regions/"+name+"/token")
		case len(registered) >= maxRegions:
			return Change{}, refused("", "there are %d regions already", maxRegions)
		case len(registered)+len(s.state.removed()) >= maxRegionNames && s.state.tombOf(name) == nil:
			return Change{}, refused("use the name of a removed region again", "%d names of regions are remembered already", maxRegionNames)
		case s.state.deployment == nil:
			return Change{}, errStarting
		}
		var token TokenDocument
		secret, token = s.regionCredential(who, name)
		key, change, tomb := tokenKey(token.Name), Change{}, s.state.tombOf(name)
		if d.Former = nil; tomb != nil {
			d.Former = tomb.value.Former // an old database is known by them
		}
		if err := s.registerOwner(&d, owner, &change); err != nil {
			return Change{}, err
		}
		change.Reads = append(change.Reads, tomb.known(regionKey(name)), s.state.tokens[token.Name].known(key))
		change.Puts = append(change.Puts, put(regionKey(name), d), put(key, token), s.auditLine(who, "region.register", name, nil, d))
		s.keepReceiptKey(&change, token)
		return change, nil
	})
	return RegionAnswer{Region: name, Registered: d.Registered, Token: secret}, err
}

func (s *Service) regionCredential(who actor, name string) (string, TokenDocument) {
	secret := s.newToken(RoleRegion, s.state.deployment.value.ID, name)
	return secret, TokenDocument{
		Format: documentFormat, Name: regionToken(name), Role: RoleRegion, Region: name, Hash: hashToken(secret), Made: s.now().UTC(), By: who.name,
	}
}

// renewRegionToken replaces a region's token. The old one ends; a region that still uses it goes on alone from what it
// holds until its nodes know the new one.
func (s *Service) renewRegionToken(ctx context.Context, who actor, name string) (RegionAnswer, error) {
	var secret string
	err := s.act(ctx, func() (Change, error) {
		if r := s.state.regions[name]; r == nil || r.doc == nil {
			return Change{}, notFound("region", name)
		}
		var token TokenDocument
		secret, token = s.regionCredential(who, name)
		key := tokenKey(token.Name)
		change := Change{
			Reads: []Item{s.state.tokens[token.Name].known(key)},
			Puts:  []Item{put(key, token), s.auditLine(who, "region.token", name, nil, nil)},
		}
		s.keepReceiptKey(&change, token)
		return change, nil
	})
	return RegionAnswer{Region: name, Token: secret}, err
}

// setDraining lets a region give back what it holds, or take part again. The ledgers follow in the background.
func (s *Service) setDraining(ctx context.Context, who actor, name string, draining bool) (RegionAnswer, error) {
	verb := "region.resume"
	if draining {
		verb = "region.drain"
	}
	err := s.inTurn(ctx, func() (Change, error) {
		r := s.state.regions[name]
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", name)
		}
		if r.doc.value.Draining == draining {
			return Change{}, nil
		}
		next := r.doc.value
		next.Draining = draining
		return s.membersChange(who, verb, r, next)
	})
	if err != nil {
		return RegionAnswer{}, err
	}
	s.nudgeBackground()
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if r := s.state.regions[name]; r.doc != nil {
		return s.answerRegion(r), nil
	}
	return RegionAnswer{}, notFound("region", name) // it was removed meanwhile
}

// membersChange is a change of a region that ledgers must follow.
func (s *Service) membersChange(who actor, verb string, r *region, next RegionDocument) (Change, error) {
	_, deployment, raised, err := s.state.raise(func(d *Deployment) { d.Members++ })
	if err != nil {
		return Change{}, err
	}
	return Change{
		Reads: []Item{deployment, r.doc.item},
		Puts:  []Item{raised, put(regionKey(r.name), next), s.auditLine(who, verb, r.name, r.doc.value, next)},
	}, nil
}

func (s *Service) regionsList() RegionsList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := RegionsList{Evidence: s.evidence(), Regions: s.listRegions()}
	for _, name := range s.state.removed() {
		list.Removed = append(list.Removed, RemovedRegion{Region: name, Removal: *s.state.tombOf(name).value.Removed})
	}
	return list
}

// listRegions is all regions by name. The caller holds the lock.
func (s *Service) listRegions() []RegionAnswer {
	list := []RegionAnswer{}
	for _, name := range slices.Sorted(maps.Keys(s.state.regions)) {
		if r := s.state.regions[name]; r.doc != nil {
			list = append(list, s.answerRegion(r))
		}
	}
	return list
}

func (s *Service) answerRegion(r *region) RegionAnswer {
	now, d, c := s.now(), r.doc.value, r.contact
	a := RegionAnswer{
		Region: r.name, Registered: d.Registered, Draining: d.Draining, Incarnation: d.Incarnation, Sealing: d.Sealing, Home: d.Home, Contradiction: d.Contradiction, Handover: d.Handover, Unannounced: s.state.unannounced(r),
		Nodes: calledLately(c.Nodes, now), SkewMillis: c.SkewMicros / 1000, Config: c.Config, History: c.History, Stopped: c.Stopped, OpenReservations: c.OpenReservations,
		Waiting: r.queue.len(),
	}
	if !c.At.IsZero() {
		a.LastContact, a.ContactAgeMillis = &c.At, now.Sub(c.At).Milliseconds()
		a.InContact = r.inContact(now, s.config.ReportUnreachableAfter)
		a.ClosedBefore = &c.ClosedBefore
	}
	if c.OldestReservation > 0 {
		at := time.UnixMicro(c.OldestReservation).UTC()
		a.OldestReserved = &at
	}
	if budget, seconds := s.runway(r, allocation.At(now)); budget != "" {
		a.RunwayBudget, a.RunwaySeconds = budget, &seconds
	}
	return a
}

// calledLately are the nodes that called within nodeForgotten.
func calledLately(nodes []NodeSeen, now time.Time) (out []NodeSeen) {
	for _, n := range mergeNodes(nodes, nil) {
		if now.Sub(n.At) < nodeForgotten {
			out = append(out, n)
		}
	}
	return out
}

// runway is how long the region can go on alone, and the budget that ends it: the first that runs out of terms that the
// region has stored. One that has none for the present moment is refused there already, and the runway is 0. Permits are
// not counted: a share that is spent is no end of the runway. No budget: nothing bounds it.
func (s *Service) runway(r *region, now allocation.Instant) (budget string, seconds int64) {
	if _, joined := r.holder(); !joined {
		return "", 0
	}
	first := allocation.Never
	for _, name := range s.state.names {
		b := s.state.budgets[name].value
		if b.Deleted {
			continue
		}
		until := s.coveredUntil(r, name, now)
		if o := b.Budget.Window.Once; o != nil && (now < o.From || o.Until != 0 && until >= o.Until) {
			continue // it has not begun, or nothing is to follow
		}
		if until < first {
			budget, first = name, until
		}
	}
	return budget, int64(first - now)
}

// coveredUntil is the end of the terms without a gap, from now on, that the region has stored; now, if there is none.
func (s *Service) coveredUntil(r *region, budget string, now allocation.Instant) allocation.Instant {
	until := now
	for _, l := range s.state.opened(budget, now) {
		if _, stored := r.stated[refOf(l.value)]; !stored || l.value.Periods.Start() > until {
			break
		}
		until = l.value.Periods.End()
	}
	return until
}
