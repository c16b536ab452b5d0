package coordinator

import (
	"fmt"
	"strings"
	"time"
)

// lostNamedFor is how long a status names a budget of which etcd lost a version, unless it is declared again before.
const lostNamedFor = 7 * 24 * time.Hour

// LostChange is a budget of which a region knows a version that etcd lost. What else was changed in what was lost nobody
// knows.
type LostChange struct {
	Budget  string `json:"budget"`
	Version int64  `json:"version"`       // the latest that a region has stated
	Had     int64  `json:"had,omitempty"` // that etcd had; 0: it lost the declaration as well
}

// lostChanges are those budgets, by name. The caller holds the lock.
func (s *Service) lostChanges() (list []LostChange) {
	for _, name := range s.state.names {
		d := s.state.budgets[name].value
		switch {
		case d.Lost:
			list = append(list, LostChange{Budget: name, Version: d.Version})
		case d.LostVersion > 0 && s.now().Sub(d.Changed) < lostNamedFor:
			list = append(list, LostChange{Budget: name, Version: d.LostVersion, Had: d.Before})
		}
	}
	return list
}

func (c LostChange) text() string {
	if c.Had == 0 {
		return fmt.Sprintf("%s (its declaration, version %d)", c.Budget, c.Version)
	}
	if c.Had == c.Version {
		return fmt.Sprintf("%s (version %d, which was given out twice)", c.Budget, c.Version)
	}
	return fmt.Sprintf("%s (version %d, etcd had %d)", c.Budget, c.Version, c.Had)
}

// fillLost names what etcd lost of budgets, as far as regions know. The caller holds the lock.
func (s *Service) fillLost(st *Status, add addStatus) {
	st.LostChanges = s.lostChanges()
	if len(st.LostChanges) == 0 {
		return
	}
	var names []string
	for _, c := range st.LostChanges[:min(maxListed, len(st.LostChanges))] {
		names = append(names, c.text())
	}
	more := ""
	if n := len(st.LostChanges) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	add(SeverityWarning, "declare them again: `tranche budgets apply`; until then the lower of both limits counts, and a budget without its declaration goes on in the regions as they know it",
		"etcd lost changes of budgets that regions know of: %s%s", strings.Join(names, ", "), more)
}
