package coordinator

import (
	"cmp"
	"slices"
	"time"

	"tranche/allocation"
)

// HistoryAnswer is how etcd's history stands.
type HistoryAnswer struct {
	*Evidence
	Deployment string `json:"deployment"`
	allocation.Standing
	Since   *time.Time      `json:"since,omitempty"` // of the freeze
	Regions []HistoryRegion `json:"regions"`         // by name: those that are registered, and those that only regions know of
}

// HistoryRegion is what a freeze knows of one region.
type HistoryRegion struct {
	Region      string     `json:"region"`
	Incarnation string     `json:"incarnation,omitempty"`
	Registered  bool       `json:"registered"`
	Stated      bool       `json:"stated"` // all that it holds, or nothing is frozen
	InContact   bool       `json:"in_contact"`
	LastContact *time.Time `json:"last_contact,omitempty"`
	Next        string     `json:"next,omitempty"` // what helps
}

// historyAnswer shows the standing.
func (s *Service) historyAnswer() (HistoryAnswer, error) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.deployment == nil || s.state.standing == nil {
		return HistoryAnswer{}, errStarting
	}
	d := s.state.standing.value
	answer := HistoryAnswer{Evidence: s.evidence(), Deployment: s.state.deployment.value.ID, Standing: d.Standing, Regions: []HistoryRegion{}}
	if d.Freeze != nil {
		since := d.Since
		answer.Since = &since
	}
	missing := s.state.awaited()
	for _, name := range s.state.awaitable(d.Named) {
		answer.Regions = append(answer.Regions, s.historyRegion(name, !slices.Contains(missing, name)))
	}
	slices.SortFunc(answer.Regions, func(a, b HistoryRegion) int { return cmp.Compare(a.Region, b.Region) })
	return answer, nil
}

func (s *Service) historyRegion(name string, stated bool) HistoryRegion {
	h := HistoryRegion{Region: name, Stated: stated}
	if r := s.state.regions[name]; r != nil && r.doc != nil {
		a := s.answerRegion(r)
		h.Registered, h.Incarnation, h.InContact, h.LastContact = true, a.Incarnation, a.InContact, a.LastContact
	}
	switch {
	case stated:
	case !h.Registered:
		h.Next = "register it again and start its nodes with the new token, or give it up"
	case h.InContact:
		h.Next = "wait"
	default:
		h.Next = "bring back its nodes and the link, or give it up"
	}
	return h
}
