package main

import (
	"encoding/json"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional"
)

// exposed: what a revoked key has cost is told by the regions' own ids, also by one that the coordinator cannot reach, and what
// it can still cost is what that region holds.
func (v *vault) exposed(key string) {
	v.t.Helper()
	args := []string{"exposure", "--key", allocation.Fingerprint(key), "--node-token", v.Gateways[stage.Edge1]}
	printed := v.run(0, args...)
	v.contains(printed, "revoked since", "us-east: in contact, enforced", "eu-west: unreachable, does not enforce it", "note: what was charged is that of all keys of the name acme together, also of ")
	var e struct {
		coordinator.Exposure
		Charged []struct {
			Region, Kind string
			Charged      *regional.ChargedAnswer
		}
	}
	if err := json.Unmarshal([]byte(v.run(0, append(args, "--json")...)), &e); err != nil {
		v.t.Fatal(err)
	}
	spent := map[string]int64{}
	for _, in := range e.Charged {
		if in.Charged == nil || len(in.Charged.Lines) != 1 || in.Kind != coordinator.FigureAtMost {
			v.t.Fatalf("%s: %+v", in.Region, in)
		}
		spent[in.Region] = in.Charged.Lines[0].Spent
	}
	// Of each region an admission and a reservation of one; the east settled it, the west admitted one more, which both keys replayed.
	if spent["us-east"] != 2 || spent["eu-west"] != 2 {
		v.t.Errorf("spent %v", spent)
	}
	b := e.Budgets[0]
	if len(e.Budgets) != 1 || b.Budget != "vault/requests" || b.Charged != coordinator.EveryRequest || b.AfterCut.Units == 0 || b.AfterCut.Units > b.Now.Units || b.AfterCutAhead.Units == 0 {
		v.t.Errorf("%+v", b)
	}
	for _, r := range b.Regions {
		// In the east the reservation stands until its settle is stated, and may cost all that is held until then.
		if holds := r.Region == "eu-west" || r.Reserved > 0; holds && r.AfterCut != r.Now || !holds && r.AfterCut.Units > 0 {
			v.t.Errorf("%+v", r)
		}
	}
	if strings.Contains(printed, key) {
		v.t.Error("the key itself is printed")
	}
	v.run(2, "exposure")
	v.run(2, "exposure", "--key", key)
	v.run(2, "exposure", "--tenant", "acme", "--since", "yesterday")
	v.run(2, "exposure", "--key", "nobody")
}

// exposes: a block that was made at a node of a region that is cut off is shown with what it refuses there, before anybody else
// knows of it: who does not see it blocks once more, or believes that a suspect goes on.
func (v *vault) exposes(key string, alone bool) {
	v.t.Helper()
	args := []string{"exposure", "--key", allocation.Fingerprint(key), "--node-token", v.ops, "--json"}
	printed := v.run(0, args[:len(args)-1]...)
	v.contains(printed, "(tenant=acme, by kim (token ops)) refuses all of it there until ")
	if strings.Contains(printed, "the coordinator was not told of it yet") != alone || strings.Contains(printed, "not known") {
		v.t.Errorf("told of alone: %v: %s", alone, printed)
	}
	var e coordinator.Exposure
	if err := json.Unmarshal([]byte(v.run(0, args...)), &e); err != nil {
		v.t.Fatal(err)
	}
	for _, r := range e.Regions {
		switch {
		case r.Region != "eu-west" && len(r.Blocks) == 0:
		case r.Region == "eu-west" && len(r.Blocks) == 1 && r.Blocks[0].Every && r.Blocks[0].Told != alone:
		default:
			v.t.Errorf("%+v", r)
		}
	}
	other := v.run(0, "exposure", "--tenant", "globex", "--node-token", v.ops)
	if strings.Contains(other, "refuses") {
		v.t.Errorf("a block of acme is shown for another tenant: %s", other)
	}
	unread := v.run(0, "exposure", "--tenant", "acme", "--node-token", "wrong")
	v.contains(unread, "what its nodes block by themselves is not known")
	if strings.Contains(unread, "refuses all of it there") == alone {
		v.t.Errorf("what the coordinator knows without the nodes (told: %v): %s", !alone, unread)
	}
}

// audited: the audit says why, in a field of its own that every act has in the same place.
func (v *vault) audited(act, object, reason string) {
	v.t.Helper()
	var page coordinator.AuditPage
	if err := json.Unmarshal([]byte(v.run(0, "audit", "--limit", "1000", "--json")), &page); err != nil {
		v.t.Fatal(err)
	}
	for _, l := range page.Lines {
		if l.Act == act && l.Reason == reason && (object == "" || l.Object == object) {
			return
		}
	}
	v.t.Errorf("no line of %s because %q: %+v", act, reason, page.Lines)
}

// What the command asks for is checked before anything is called.
func TestExposureNeedsASubject(t *testing.T) {
	if status, printed := inProcess("exposure"); status != 2 || !strings.Contains(printed, "--key, --tenant or --capability") {
		t.Errorf("%d %s", status, printed)
	}
}
