package cli

import (
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
)

// An owner that was stopped and then failed over makes no call, so nothing but the person who runs the command can tell the
// coordinator where it lives: the command must say how. A database that goes on calls, and one of another incarnation is
// simply the wrong one.
func TestHandoverSaysWhenToAdopt(t *testing.T) {
	home := allocation.Home{System: "s", Database: 1, Timeline: 1}
	promoted := home
	promoted.Timeline++
	m := &mover{region: coordinator.RegionAnswer{Region: "us-east", Incarnation: "life", Home: home}}
	m.from.flag = "from-url"
	loaded := func(incarnation, stop string) (l regional.Loaded) {
		l.Home, l.Incarnation, l.Handover.ID = promoted, incarnation, stop
		return l
	}
	for what, c := range map[string]struct {
		loaded regional.Loaded
		adopt  bool
	}{
		"stopped and promoted":         {loaded("life", "h"), true},
		"not stopped":                  {loaded("life", ""), false},
		"stopped, another incarnation": {loaded("other", "h"), false},
	} {
		err := m.movable(c.loaded)
		if err == nil || !strings.Contains(err.Error(), "--from-url") || strings.Contains(err.Error(), "adopt-failover us-east") != c.adopt {
			t.Errorf("%s: %v", what, err)
		}
	}
}
