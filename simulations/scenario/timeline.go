package scenario

import "tranche/allocation"

// Timeline answers what a scenario's events make true at a moment, in whole seconds since the start.
type Timeline struct{ s Scenario }

// NewTimeline reads a scenario's events.
func NewTimeline(s Scenario) Timeline { return Timeline{s} }

func (e Event) during(at allocation.Duration) bool { return e.At <= at && at < e.Until }

// down says whether a partition cuts the link at a moment within it: a flapping link is down first, then up.
func (e Event) down(at allocation.Duration) bool {
	return e.Down == 0 || (at-e.At)%(e.Down+e.Up) < e.Down
}

// links says which direction of a region's links works: to and from the coordinator, or, with wide, all other regions.
func (t Timeline) links(region int, at allocation.Duration, wide bool) (out, in bool) {
	out, in = true, true
	for i := range t.s.Events {
		e := &t.s.Events[i]
		if e.Kind != Partition || !e.during(at) || e.Region != t.s.Regions[region].Name || !e.down(at) || wide && e.From == FromCoordinatorOnly {
			continue
		}
		out = out && e.Direction == FromCoordinator
		in = in && e.Direction == ToCoordinator
	}
	return out, in
}

// Reaches says whether a region's calls reach the coordinator, and whether its answers come back.
func (t Timeline) Reaches(region int, at allocation.Duration) (calls, answers bool) {
	return t.links(region, at, false)
}

// Connected says whether a request from one region to another, and its answer, pass.
func (t Timeline) Connected(a, b int, at allocation.Duration) bool {
	if a == b {
		return true
	}
	aOut, aIn := t.links(a, at, true)
	bOut, bIn := t.links(b, at, true)
	return aOut && aIn && bOut && bIn
}

// Hears says whether what one region sends reaches another.
func (t Timeline) Hears(from, to int, at allocation.Duration) bool {
	out, _ := t.links(from, at, true)
	_, in := t.links(to, at, true)
	return out && in
}

// CoordinatorUp says whether the coordinator, or its etcd, answers.
func (t Timeline) CoordinatorUp(at allocation.Duration) bool {
	for i := range t.s.Events {
		if e := &t.s.Events[i]; e.Kind == CoordinatorLoss && e.during(at) {
			return false
		}
	}
	return true
}

// DatabaseUp says whether a region's database answers. lost names the end of a loss that has ended by now in which its
// data was lost: the latest one, or 0.
func (t Timeline) DatabaseUp(region int, at allocation.Duration) (up bool, lost allocation.Duration) {
	up = true
	for i := range t.s.Events {
		e := &t.s.Events[i]
		if e.Kind != DatabaseLoss || e.Region != t.s.Regions[region].Name {
			continue
		}
		up = up && !e.during(at)
		if e.Data == DataLost && e.Until <= at {
			lost = max(lost, e.Until)
		}
	}
	return up, lost
}

// NodesLost is the part of a region's nodes to which callers still send requests in vain: those that crashed within this
// second, or all of them while none is left.
func (t Timeline) NodesLost(region int, at allocation.Duration) float64 {
	r := t.s.Regions[region]
	var down, fresh int64
	for i := range t.s.Events {
		e := &t.s.Events[i]
		if e.Kind == NodeCrash && e.Region == r.Name && e.during(at) {
			down += e.Nodes
			if at-e.At < t.s.Tick {
				fresh += e.Nodes
			}
		}
	}
	if down >= r.Nodes {
		return 1
	}
	// A tick may be longer than the second that a gateway needs to turn away.
	return float64(fresh) / float64(r.Nodes) / float64(t.s.Tick)
}
